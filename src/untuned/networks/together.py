"""What the processes of a group put together, so that all of them move the same weights alike."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def group_of(model: torch.nn.Module) -> Any:
    """The processes that train a model together; None where it is one."""
    return model.process_group if isinstance(model, DistributedDataParallel) else None


def inside(model: torch.nn.Module) -> torch.nn.Module:
    """The user's own module."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def mean(parts: list[torch.Tensor], group: Any) -> list[torch.Tensor]:
    """The mean over processes of each tensor, by one message."""
    if group is None:
        return parts
    wide = reduce(torch.promote_types, (part.dtype for part in parts), torch.float32)
    flat = torch.cat([part.reshape(-1).to(wide) for part in parts])
    distributed.all_reduce(flat, group=group)
    flat /= distributed.get_world_size(group)
    pieces = torch.split(flat, [part.numel() for part in parts])
    return [
        piece.reshape(part.shape).to(part.dtype) for piece, part in zip(pieces, parts, strict=True)
    ]


def gathered(columns: torch.Tensor, group: Any) -> torch.Tensor:
    """The rows of all processes, in the order of the processes."""
    if group is None:
        return columns
    count = distributed.get_world_size(group)
    size = torch.tensor([len(columns)], device=columns.device)
    sizes = [torch.zeros_like(size) for _ in range(count)]
    distributed.all_gather(sizes, size, group=group)
    longest = int(max(sizes))
    padded = columns.new_zeros((longest, columns.shape[1]))
    padded[: len(columns)] = columns
    everyone = [torch.zeros_like(padded) for _ in range(count)]
    distributed.all_gather(everyone, padded, group=group)
    return torch.cat([part[: int(size)] for part, size in zip(everyone, sizes, strict=True)])
