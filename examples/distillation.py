"""Dataset distillation: ten images, one per digit, that replace MNIST for training.

    python examples/distillation.py softmax     a linear model
    python examples/distillation.py lenet       LeNet

x holds the ten images, y is the model trained on them, and f is its loss on many real rows. g is
solved exactly, on all rows. For LeNet, y holds the last layers of several LeNets whose other layers
are random and redrawn now and then: images made for one network are of no use to another. The score
comes from new models that train all their layers on the ten images alone, never from y.
UNTUNED_DATA names the folder of mnist.npz.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import untuned
from imbalance import lenet
from loops import accuracy, arguments, tensors
from untuned_paper import datasets

TASKS = ("softmax", "lenet")
PENALTY = 1e-3  # of the linear model, as much as makes its solution one
LABELS = torch.arange(10)
BODIES, ROUNDS = 8, 8


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
    features, labels = rows(seed, 500 if small else 2000)
    began, x = time.process_time(), means(features, labels)
    if task == "softmax":
        x = moved(x, [nn.Flatten()], features, labels, seed, 3 if small else 60)
    else:
        for _ in range(1 if small else ROUNDS):
            whole = [lenet(10) for _ in range(2 if small else BODIES)]
            bodies = [nn.Sequential(*list(network.children())[:-1]) for network in whole]
            x = moved(x, bodies, features, labels, seed, 3 if small else 8)
    return x, time.process_time() - began


def moved(
    x: Tensor, bodies: Sequence[nn.Module], features: Tensor, labels: Tensor, seed: int, steps: int
) -> Tensor:
    """Images for linear models on what each body makes of an image, brought to one size."""
    with torch.no_grad():
        real = [body.requires_grad_(False)(features) for body in bodies]
    # A random body makes everything small; pixels have their size.
    sizes = [
        1.0 if isinstance(body, nn.Flatten) else float(part.square().mean().sqrt())
        for body, part in zip(bodies, real, strict=True)
    ]
    start = {
        "W": torch.zeros(len(bodies), real[0].shape[1], 10),
        "b": torch.zeros(len(bodies), 1, 10),
    }

    def loss(y: Any, seen: Tensor, labels: Tensor) -> Tensor:
        scores = seen @ y["W"] + y["b"]
        return cross_entropy(scores.flatten(0, 1), labels.repeat(len(bodies)))

    def outer(x: Tensor, y: Any, batch: Any) -> Tensor:
        return loss(y, batch[0].transpose(0, 1), batch[1])

    def inner(x: Tensor, y: Any) -> Tensor:
        seen = torch.stack([body(x) / size for body, size in zip(bodies, sizes, strict=True)])
        size = sum((part**2).sum() for part in y.values())
        return len(bodies) * loss(y, seen, LABELS) + PENALTY / 2 * size

    scaled = torch.stack([part / size for part, size in zip(real, sizes, strict=True)], 1)
    result = untuned.minimize(
        outer, inner, x, start, outer_data=(scaled, labels), seed=seed, max_steps=steps
    )
    return result.x


def means(features: Tensor, labels: Tensor) -> Tensor:
    """The mean image of each class: where x starts, and a control."""
    return torch.stack([features[labels == c].mean(0) for c in range(10)])


def scored(images: Tensor, task: str, seed: int, small: bool) -> float:
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
            right = scored(given, asked.task, seed, asked.small)
            found.setdefault(name, []).append((right, took))
    for name, runs in found.items():
        right, took = np.array(runs).T
        print(f"| {name} | {right.mean():.3f} +- {right.std():.3f} | {took.mean():.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
