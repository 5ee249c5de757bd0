"""Communication between the processes of a torch group: sums, and numbers they agree on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import distributed

from untuned.ops import Tree


class Processes:
    """The processes of a group, as this one sees them."""

    def __init__(self, group: Any):
        self.group = group
        self.rank, self.processes = distributed.get_rank(group), distributed.get_world_size(group)
        on_gpus = distributed.get_backend(group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpus else "cpu"

    def communicate(self, collective: Callable, *arguments: Any, **options: Any) -> None:
        """Carry out a collective operation; a process that is gone is named, not a traceback."""
        try:
            collective(*arguments, **options, group=self.group)
        except RuntimeError as error:
            reason = str(error).splitlines()[0][:200]
            raise RuntimeError(
                f"Process {self.rank} of {self.processes} has lost the others: one of them ended, "
                f"or did not answer in time ({reason}); see what it wrote, then start all of "
                "them again. A run with checkpoint= goes on from the last one saved."
            ) from None

    def summed(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor summed over all processes, in place."""
        if self.processes > 1:
            self.communicate(distributed.all_reduce, tensor)
        return tensor

    def of_each(self, number: float) -> list[float]:
        """A number of each process."""
        slots = torch.zeros(self.processes, dtype=torch.float64, device=self.device)
        slots[self.rank] = number
        return self.summed(slots).tolist()

    def max_over_processes(self, number: float, like: Tree, /) -> float:
        return max(self.of_each(number))

    def sum_over_processes(self, number: int, like: Tree, /) -> int:
        mine = torch.tensor([number], dtype=torch.uint64).view(torch.int64).to(self.device)
        return int(self.summed(mine).cpu().view(torch.uint64).item())

    def is_main_process(self, like: Tree, /) -> bool:
        return self.rank == 0

    def same_on_all(self, text: str, like: Tree, /) -> bool:
        digest = int.from_bytes(text.encode(), "little") % (2**61 - 1)
        halves = np.array([digest >> 31, digest & (2**31 - 1)], float)  # exact as floats
        return all(max(self.of_each(half)) == min(self.of_each(half)) for half in halves)
