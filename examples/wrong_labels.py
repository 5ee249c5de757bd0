"""Wrong labels: weights of rows on MNIST and on CIFAR-100's coarse classes.

    python examples/wrong_labels.py mnist          half of 5,000 labels redrawn
    python examples/wrong_labels.py mnist-40       40 % of them
    python examples/wrong_labels.py mnist-next     40 % of them become the next class
    python examples/wrong_labels.py cifar          coarse classes, 40 % redrawn
    python examples/wrong_labels.py cifar-next     coarse classes, 40 % become the next class
    python examples/wrong_labels.py cifar-human    coarse classes as people gave them

UNTUNED_DATA names the folder of mnist.npz, cifar100.npz and cifar100n.npz.
"""

from __future__ import annotations

import numpy as np
import torch

from loops import (
    Task,
    arguments,
    coarse_cifar,
    data_file,
    of_each_class,
    report,
    small_cnn,
    tensors,
)
from untuned_paper import datasets

TASKS = ("mnist", "mnist-40", "mnist-next", "cifar", "cifar-next", "cifar-human")


def task(name: str, seed: int, small: bool = False) -> Task:
    """5,000 (CIFAR-100: 10,000) training rows with wrong labels and a tenth as many trusted."""
    is_mnist = name.startswith("mnist")
    raw = datasets.load("mnist") if is_mnist else coarse_cifar()
    right, test = raw["y_train"], raw["y_test"]
    classes = int(right.max()) + 1
    count = 640 if small else 5000 if is_mnist else 10_000
    random = np.random.default_rng(seed)
    order = random.permutation(len(right))
    train, trusted = order[:count], of_each_class(right, order[count:], count // 10)
    given = right.astype(np.int64).copy()
    if name == "cifar-human":
        given[train] = data_file("cifar100n.npz")["noisy_coarse_label"][train]
    else:
        hit = train[random.random(count) < (0.5 if name == "mnist" else 0.4)]
        drawn = random.integers(0, classes, len(hit))
        given[hit] = (right[hit] + 1) % classes if name.endswith("next") else drawn
    images = raw["X_train"]
    tests = slice(0, 500 if small else None)
    return Task(
        *tensors(images[train], given[train]),
        *tensors(images[trusted], right[trusted]),
        *tensors(raw["X_test"][tests], test[tests]),
        wrong=torch.as_tensor(given[train] != right[train]),
    )


def main() -> None:
    """One task, all runs."""
    asked = arguments(__doc__, *TASKS)
    is_mnist = asked.task.startswith("mnist")
    epochs = asked.epochs or (2 if asked.small else 15 if is_mnist else 10)
    network = small_cnn if is_mnist else lambda: small_cnn(3, 32, 20)
    tasks = lambda seed: task(asked.task, seed, asked.small)
    report(tasks, network, epochs, asked)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
