"""Few-shot sinusoids by implicit MAML: a start from which ten points are enough.

    python examples/sinusoids.py maml

x holds the weights of a network, and y those of one network for each task. g is the loss of each on
the ten points of its task plus its distance from x, and f their loss on other points of the same
tasks. The score comes from new tasks: Adam solves the same g from the start x, and the error on
other points counts.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

import untuned
from loops import arguments

TASKS = ("maml",)
POINTS, PENALTY, HIDDEN = 10, 0.1, 40
Weights = dict[str, Tensor]


def tasks(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sinusoids of any amplitude and phase: twice ten points of each."""
    random = np.random.default_rng(seed)
    amplitude, phase = random.uniform(0.1, 5, (count, 1)), random.uniform(0, math.pi, (count, 1))
    at = random.uniform(-5, 5, (count, 2 * POINTS))
    values = amplitude * np.sin(at - phase)
    return torch.tensor(at[..., None]).float(), torch.tensor(values[..., None]).float()


def network(seed: int) -> Weights:
    """One network with two hidden layers, in PyTorch's usual random start."""
    torch.manual_seed(seed)
    sizes = (1, HIDDEN, HIDDEN, 1)
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    weights = {f"W{k}": layer.weight.detach().T.clone() for k, layer in enumerate(layers)}
    return weights | {f"b{k}": layer.bias.detach()[None].clone() for k, layer in enumerate(layers)}


def for_each(weights: Weights, count: int) -> Weights:
    """The same network for each of many tasks."""
    return {name: part.repeat(count, 1, 1) for name, part in weights.items()}


def losses(y: Weights, points: tuple[Tensor, Tensor]) -> Tensor:
    """The mean square error of each task's network."""
    hidden, values = points
    for k in range(3):
        hidden = hidden @ y[f"W{k}"] + y[f"b{k}"]
        hidden = torch.relu(hidden) if k < 2 else hidden
    return ((hidden - values) ** 2).mean((1, 2))


def inner(x: Weights, y: Weights, points: tuple[Tensor, Tensor]) -> Tensor:
    """What a task's network is trained by: its ten points, and not far from x."""
    distance = sum(((part - x[name]) ** 2).sum((1, 2)) for name, part in y.items())
    return (losses(y, points) + PENALTY / 2 * distance).mean()


def split(data: tuple[Tensor, Tensor]) -> tuple[Any, Any]:
    """The ten points that are given, and the ten that test."""
    return tuple(part[:, :POINTS] for part in data), tuple(part[:, POINTS:] for part in data)


def learned(seed: int, count: int, steps: int) -> tuple[Weights, float]:
    """The start found on many tasks, and the processor seconds it took."""
    given, tested = split(tasks(count, seed))
    start = network(seed)
    began = time.process_time()
    result = untuned.minimize(
        lambda x, y: losses(y, tested).mean(), lambda x, y: inner(x, y, given),
        start, for_each(start, count), method=untuned.solvers.Auto(network=True), max_steps=steps,
    )  # fmt: skip
    return result.x, time.process_time() - began


def joint(seed: int, count: int, steps: int) -> Weights:
    """A control: one network for all tasks at once."""
    at, values = tasks(count, seed)
    weights = {name: part.requires_grad_() for name, part in network(seed).items()}
    optimizer = torch.optim.Adam(weights.values())
    points = (at.reshape(1, -1, 1), values.reshape(1, -1, 1))
    for _ in range(steps):
        optimizer.zero_grad()
        losses({name: part[None] for name, part in weights.items()}, points).sum().backward()
        optimizer.step()
    return {name: part.detach() for name, part in weights.items()}


def error(start: Weights, count: int, steps: int) -> float:
    """The mean square error on other points of new tasks, after training on ten of each."""
    given, tested = split(tasks(count, 10**6))
    y = {name: part.requires_grad_() for name, part in for_each(start, count).items()}
    optimizer = torch.optim.Adam(y.values(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        (inner(start, y, given) * count).backward()
        optimizer.step()
    with torch.no_grad():
        return float(losses(y, tested).mean())


def main() -> None:
    """The start that is learned, and two that are not."""
    asked = arguments(__doc__, *TASKS)
    count, steps = (10, 20) if asked.small else (100, 500)
    print(f"\nsinusoids, {count} tasks, seeds {asked.seeds}\n")
    print("| start | error on new tasks | processor seconds |\n|---|---|---|", flush=True)
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in asked.seeds:
        x, seconds = learned(seed, count, steps)
        for name, start, took in (
            ("random", network(seed), 0.0),
            ("one network for all tasks", joint(seed, count, steps // 5), 0.0),
            ("learned", x, seconds),
        ):
            after = error(start, count, 20 if asked.small else 500)
            found.setdefault(name, []).append((after, took))
    for name, runs in found.items():
        errors, took = np.array(runs).T
        print(f"| {name} | {errors.mean():.3f} +- {errors.std():.3f} | {took.mean():.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
