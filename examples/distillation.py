"""Dataset distillation: ten images, one per digit, such that who trains on them knows MNIST.

    python examples/distillation.py softmax     a linear model, all rows, solved exactly
    python examples/distillation.py lenet       LeNet, on minibatches

x are the ten images, y is the model trained on them, f its loss on many real rows. Judged by models
trained on the ten images alone from fresh starts, and never by y itself. UNTUNED_DATA names the
folder of mnist.npz.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import untuned
from imbalance import lenet
from loops import BATCH, accuracy, arguments, tensors
from untuned.experiments import datasets

TASKS = ("softmax", "lenet")
PENALTY = 1e-3  # of the linear model, as much as makes its solution one
LABELS = torch.arange(10)


def softmax() -> nn.Module:
    """A linear model, which starts from zero."""
    linear = nn.Linear(784, 10)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.Flatten(), linear)


def rows(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Real rows in a random order."""
    raw = datasets.load("mnist")
    order = np.random.default_rng(seed).permutation(len(raw["y_train"]))[:count]
    return tensors(raw["X_train"][order], raw["y_train"][order])


def learned(task: str, seed: int, small: bool) -> tuple[Tensor, float]:
    """The ten images, and the processor seconds they took."""
    torch.manual_seed(seed)
    features, labels = rows(seed, 500 if small else 2000 if task == "softmax" else 20_000)
    start, apply = untuned.from_module(softmax() if task == "softmax" else lenet(10))

    def outer(x: Tensor, y: Any, batch: Any) -> Tensor:
        return cross_entropy(apply(y, batch[0]), batch[1])

    def inner(x: Tensor, y: Any) -> Tensor:
        size = sum((part**2).sum() for part in y.values())
        return cross_entropy(apply(y, x), LABELS) + PENALTY / 2 * size

    options: dict[str, Any] = {"max_steps": 3 if small else 60}
    if task == "lenet":
        options = {"batch_size": (None, BATCH), "max_steps": 20 if small else 1500}
    began = time.process_time()
    result = untuned.minimize(
        outer, inner, means(features, labels), start, outer_data=(features, labels), seed=seed,
        **options,
    )  # fmt: skip
    return result.x, time.process_time() - began


def means(features: Tensor, labels: Tensor) -> Tensor:
    """The mean image of each class: where x starts, and a control."""
    return torch.stack([features[labels == c].mean(0) for c in range(10)])


def judged(images: Tensor, task: str, seed: int, small: bool) -> float:
    """Test accuracy of a model trained on ten images alone, from a start of its own."""
    raw = datasets.load("mnist")
    torch.manual_seed(1000 + seed)
    model = softmax() if task == "softmax" else lenet(10)
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=PENALTY)
    for _ in range(20 if small else 500):
        optimizer.zero_grad()
        cross_entropy(model(images), LABELS).backward()
        optimizer.step()
    count = 500 if small else None
    return accuracy(model, *tensors(raw["X_test"][:count], raw["y_test"][:count]))


def main() -> None:
    """Ten images learned, and the controls."""
    asked = arguments(__doc__, *TASKS)
    print(f"\nten images, {asked.task}, seeds {asked.seeds}\n")
    print("| trained on | test accuracy | processor seconds |\n|---|---|---|", flush=True)
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in asked.seeds:
        features, labels = rows(seed, 2000)
        images, seconds = learned(asked.task, seed, asked.small)
        first = torch.stack([features[labels == c][0] for c in range(10)])
        for name, given, took in (
            ("a real image of each class", first, 0.0),
            ("the mean image of each class", means(features, labels), 0.0),
            ("ten learned images", images, seconds),
        ):
            right = judged(given, asked.task, seed, asked.small)
            found.setdefault(name, []).append((right, took))
    for name, runs in found.items():
        right, took = np.array(runs).T
        print(f"| {name} | {right.mean():.3f} +- {right.std():.3f} | {took.mean():.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
