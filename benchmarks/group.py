"""What a step costs over several processes: messages, bytes, and processor time of each.

    python benchmarks/group.py --processes 2 --rows 8000

Softmax regression with a penalty per feature (784 features, 10 classes) on made-up rows, torch on
gloo. On fewer cores than processes the seconds say little; the counts are exact.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from typing import Any

import torch
from torch import distributed

import untuned
from untuned.solvers import DTFBO

FEATURES, CLASSES = 784, 10
METHODS: dict[str, Any] = {
    "s-tfbo": "s-tfbo",
    "soba": "soba",
    "d-tfbo 10/10": DTFBO(inner_steps=10, linear_steps=10),
    "auto": "auto",
}


def outer(x: Any, y: Any, batch: Any) -> Any:
    features, labels = batch
    return torch.nn.functional.cross_entropy(features @ y, labels)


def inner(x: Any, y: Any, batch: Any) -> Any:
    return outer(x, y, batch) + 0.5 * (torch.exp(x)[:, None] * y**2).sum()


class Counted:
    """All messages of this process, as `torch.distributed` is asked for them."""

    def __init__(self) -> None:
        self.messages = self.numbers = 0
        self.seconds = 0.0
        self.plain = distributed.all_reduce

    def __call__(self, tensor: Any, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        done = self.plain(tensor, *arguments, **options)
        self.seconds += time.perf_counter() - start
        self.messages += 1
        self.numbers += tensor.numel()
        return done


def work(rank: int, processes: int, store: str, rows: int, batch: int | None, steps: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=processes
    )
    counted = Counted()
    distributed.all_reduce = counted
    torch.manual_seed(rank)
    own = rows // processes
    data = (torch.randn(own, FEATURES), torch.randint(CLASSES, (own,)))
    for name, method in METHODS.items():
        marks: list[tuple] = []

        def callback(snapshot: Any, marks: list[tuple] = marks) -> None:
            counts = (counted.messages, counted.numbers, counted.seconds)
            marks.append((snapshot.step, time.perf_counter(), time.process_time(), *counts))

        untuned.minimize(
            outer, inner, torch.full((FEATURES,), -4.0), torch.zeros(FEATURES, CLASSES),
            inner_data=data, outer_data=data, method=method, batch_size=batch, max_steps=steps,
            eval_every=steps // 4, callback=callback, group=distributed.group.WORLD,
        )  # fmt: skip
        first, last = marks[0], marks[-1]
        count = last[0] - first[0]
        wall, processor, messages, numbers, waiting = (
            (b - a) / count for a, b in zip(first[1:], last[1:], strict=True)
        )
        if rank == 0:
            print(
                f"{processes} processes, {name}: {1e3 * wall:.2f} ms a step, processor "
                f"{1e3 * processor:.2f} ms, messages {messages:.1f}, numbers {numbers:,.0f}, "
                f"in messages {1e3 * waiting:.2f} ms",
                flush=True,
            )
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for processes in options.processes:
        with tempfile.TemporaryDirectory() as folder:
            settings = (f"{folder}/store", options.rows, options.batch, options.steps)
            children = [
                context.Process(target=work, args=(rank, processes, *settings))
                for rank in range(processes)
            ]
            for child in children:
                child.start()
            for child in children:
                child.join()


if __name__ == "__main__":
    main()
