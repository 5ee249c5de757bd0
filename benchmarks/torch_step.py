"""A step of S-TFBO on torch against the same steps written by hand, MNIST hyper-cleaning."""

from __future__ import annotations

from functools import partial

import torch

import mnist
from common import WARM_UP, Row, beside, main, ratio_row

BATCH_SIZE = 64


def measure(quick: bool) -> list[Row]:
    """Ratios of time per step to torch.autograd.grad and to torch.func by hand, batch 64."""
    # Threads that wait for each other on a shared machine would hide what a step costs.
    torch.set_num_threads(1)
    rounds = 7 if quick else 41
    rows = []
    for model, build, steps in (("softmax", mnist.softmax, 200), ("CNN", mnist.cnn, 60)):
        cleaning = build()
        indices = mnist.batches(cleaning.problem, BATCH_SIZE, (WARM_UP + rounds) * steps)
        loops = {
            "by hand": mnist.by_hand(cleaning, indices),
            "torch.func": mnist.by_func(cleaning, indices),
        }
        others = {name: partial(mnist.advance, loop, steps) for name, loop in loops.items()}
        times = beside(cleaning.problem, "s-tfbo", others, steps, rounds, batch_size=BATCH_SIZE)
        name = f"torch S-TFBO step / loop {{}}, MNIST {model}, batch {BATCH_SIZE}"
        rows += [
            ratio_row(name.format("by hand"), 1.15, times["ours"], times["by hand"]),
            ratio_row(name.format("with torch.func"), None, times["ours"], times["torch.func"]),
        ]
    return rows


if __name__ == "__main__":
    main(measure)
