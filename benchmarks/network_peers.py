"""Peers on the examples' tasks, each in an environment of its own, over three decades of its rate.

python benchmarks/networks.py --part betty|torchopt|jaxopt --peer /path/to/python [--seeds 0 1 2]
                                                 [--tasks cifar-tail-100 ...]   (betty)
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
EPOCHS = {
    "mnist": 15, "mnist-40": 15, "mnist-next": 10, "tail-50": 10, "tail-100": 10, "tail-200": 10,
    "cifar": 4, "cifar-next": 4, "cifar-human": 4,
    "cifar-tail-50": 4, "cifar-tail-100": 4, "cifar-tail-200": 4,
}  # fmt: skip


def betty(python: str, seeds: list[int], tasks: list[str]) -> None:
    """Wrong labels and long tails of MNIST and CIFAR-100, Adam on both levels."""
    import imbalance
    import wrong_labels

    for name, seed in itertools.product(tasks or EPOCHS, seeds):
        epochs = EPOCHS[name]
        print(f"\n{name}, {epochs} epochs\n", flush=True)
        given = _arrays((imbalance if "tail" in name else wrong_labels).task(name, seed))

        def one(file: str, rate: str, seed: int = seed, epochs: int = epochs) -> None:
            _run(python, "betty_peer.py", file, rate, seed, epochs)

        _each(given, one)


def torchopt(python: str, seeds: list[int], epochs: int = 10) -> None:
    """Two digits at 99.5 : 0.5, torchopt's own example; the rate is that of its step ahead."""
    from imbalance import task

    for seed in seeds:
        given = _arrays(task("two-digits", seed))

        def one(file: str, rate: str, seed: int = seed) -> None:
            _run(python, "torchopt_peer.py", file, rate, seed, epochs)

        _each(given, one, ("0.001", "0.01", "0.1"))


def jaxopt(python: str, seeds: list[int]) -> None:
    """Ten images for a linear model, and the start for sinusoids; judged as ours are."""
    import torch

    import distillation
    import sinusoids

    for seed in seeds:
        features, labels = distillation.rows(seed, 2000)
        start = distillation.means(features, labels)
        given = {"features": features.numpy(), "labels": labels.numpy(), "start": start.numpy()}

        def images(file: str, rate: str, seed: int = seed) -> None:
            found = _found(python, "distillation", file, rate, 300)
            judged = torch.tensor(found["x"]).reshape(10, 1, 28, 28)
            right = distillation.scored(judged, "softmax", seed, False)
            print(f"| ten images, jaxopt, rate {rate}, seed {seed} | {right:.3f} |", flush=True)

        _each(given, images)
        points = sinusoids.split(sinusoids.tasks(100, seed))
        given = {f"x_{name}": part.numpy() for name, part in sinusoids.network(seed).items()}
        for side, pair in zip(("given", "judging"), points, strict=True):
            given |= {f"{side}_{k}": part.numpy() for k, part in enumerate(pair)}

        def waves(file: str, rate: str, seed: int = seed) -> None:
            found = _found(python, "sinusoids", file, rate, 100)
            weights = {name: torch.tensor(part) for name, part in found.items()}
            error = sinusoids.error(weights, 100, 500)
            print(f"| sinusoids, jaxopt, rate {rate}, seed {seed} | {error:.3f} |", flush=True)

        _each(given, waves, ("0.001", "0.01", "0.1"))


def _arrays(task: Any) -> dict[str, np.ndarray]:
    return {name: part.numpy() for name, part in vars(task).items() if hasattr(part, "numpy")}


def _each(
    given: dict[str, Any],
    run: Callable[[str, str], None],
    rates: tuple[str, ...] = ("0.01", "0.1", "1"),
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "task.npz")
        np.savez(file, **given)
        for rate in rates:
            run(file, rate)


def _run(python: str, script: str, *arguments: object) -> None:
    subprocess.run([python, str(HERE / script), *map(str, arguments)], check=True)


def _found(python: str, example: str, file: str, rate: str, steps: int) -> dict[str, np.ndarray]:
    result = str(Path(file).with_name("found.npz"))
    _run(python, "jaxopt_peer.py", example, file, rate, steps, result)
    with np.load(result) as arrays:
        return dict(arrays)
