"""Classes of very different sizes: a few trusted rows of all classes give every row a weight.

    python examples/imbalance.py two-digits     4 against 9 at 99.5 : 0.5, 10 trusted rows, LeNet
    python examples/imbalance.py tail-50        MNIST, the largest class 50 times the smallest
    python examples/imbalance.py tail-100
    python examples/imbalance.py tail-200
    python examples/imbalance.py cifar-tail-50  CIFAR-100's coarse classes, also -100 and -200

UNTUNED_DATA names the folder of mnist.npz and cifar100.npz.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from loops import BATCH, Network, Task, arguments, coarse_cifar, report, small_cnn, tensors
from untuned_paper import datasets

TASKS = (
    "two-digits", "tail-50", "tail-100", "tail-200", "cifar-tail-50", "cifar-tail-100",
    "cifar-tail-200",
)  # fmt: skip


def lenet(classes: int = 2) -> nn.Module:
    """LeNet."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes),
    )  # fmt: skip


def counts(name: str, small: bool) -> list[int]:
    """Training rows of each class."""
    if name == "two-digits":
        return [995, 5] if small else [4975, 25]
    factor, classes = int(name.rpartition("-")[2]), 20 if name.startswith("cifar") else 10
    largest = 300 if small else 1500
    return [max(2, round(largest * factor ** (-k / (classes - 1)))) for k in range(classes)]


def task(name: str, seed: int, small: bool = False) -> Task:
    """Rows of unequal classes, trusted and test rows of equal ones."""
    raw = coarse_cifar() if name.startswith("cifar") else datasets.load("mnist")
    every = int(raw["y_train"].max()) + 1
    digits = (9, 4) if name == "two-digits" else tuple(range(every))
    random = np.random.default_rng(seed)
    train, trusted = [], []
    each = 5 if name == "two-digits" else 10
    for digit, count in zip(digits, counts(name, small), strict=True):
        rows = random.permutation(np.flatnonzero(raw["y_train"] == digit))
        trusted.append(rows[:each])
        train.append(rows[each : each + count])
    number = np.full(every, -1)
    number[list(digits)] = np.arange(len(digits))
    test = np.flatnonzero(np.isin(raw["y_test"], digits))[: 500 if small else None]
    parts = [
        (raw["X_train"], raw["y_train"], np.concatenate(train)),
        (raw["X_train"], raw["y_train"], np.concatenate(trusted)),
        (raw["X_test"], raw["y_test"], test),
    ]
    rows_of = (part for X, y, rows in parts for part in tensors(X[rows], number[y[rows]]))
    # As in torchopt's example: how often a batch holds a rare row decides how fast it is learned.
    return Task(*rows_of, batch=100 if name == "two-digits" else BATCH)


def main() -> None:
    """One task, all runs."""
    asked = arguments(__doc__, *TASKS)
    epochs = asked.epochs or (2 if asked.small else 30)
    network: Network = lenet if asked.task == "two-digits" else small_cnn
    if asked.task.startswith("cifar"):
        network = lambda: small_cnn(3, 32, 20)
    tasks = lambda seed: task(asked.task, seed, asked.small)
    report(tasks, network, epochs, asked)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
