"""What the examples share: a task, a network, the controls, and the loop with a reweighter."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import untuned

BATCH = 64


@dataclass(frozen=True)
class Task:
    """Training rows, a few trusted rows, and test rows; `wrong` where the given label is."""

    features: Tensor
    labels: Tensor
    trusted_features: Tensor
    trusted_labels: Tensor
    test_features: Tensor
    test_labels: Tensor
    wrong: Tensor | None = None
    batch: int = field(default=BATCH, kw_only=True)


class Outcome(NamedTuple):
    """One run: accuracy on test rows, AUROC of right against wrong rows, processor seconds."""

    accuracy: float
    auroc: float
    seconds: float


Network = Callable[[], nn.Module]


def all_rows(task: Task) -> tuple[Tensor, Tensor]:
    """Features and labels of the noisy rows, then of the trusted ones: what there is to train on.

    A row that is trusted is a good row to train on as well, with or without weights.
    """
    features = torch.cat([task.features, task.trusted_features])
    return features, torch.cat([task.labels, task.trusted_labels])


def data_file(name: str) -> dict[str, np.ndarray]:
    """The arrays of a file in the folder that UNTUNED_DATA names."""
    with np.load(Path(os.environ["UNTUNED_DATA"]) / name) as arrays:
        return dict(arrays)


def coarse_cifar() -> dict[str, np.ndarray]:
    """CIFAR-100 with its 20 coarse classes, a field more than the package's loader asks for."""
    raw = data_file("cifar100.npz")
    return raw | {"y_train": raw["coarse_train"], "y_test": raw["coarse_test"]}


def of_each_class(labels: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The first rows of each class, `count` in all: how trusted rows are best drawn.

    Where a class has too few of them by chance, weights follow that chance.
    """
    classes = np.unique(labels[rows])
    return np.concatenate([rows[labels[rows] == c][: count // len(classes)] for c in classes])


def batches(rows: int, seed: int, size: int = BATCH) -> Iterator[Tensor]:
    """Row numbers, one permutation after another."""
    generator = torch.Generator().manual_seed(seed)
    size = min(size, rows)
    while True:
        yield from torch.randperm(rows, generator=generator)[: rows - rows % size].split(size)


@torch.no_grad()
def accuracy(model: nn.Module, features: Tensor, labels: Tensor) -> float:
    model.eval()
    found = torch.cat([model(part).argmax(1) for part in features.split(500)])
    model.train()
    return float((found == labels).float().mean())


def averaged(model: nn.Module) -> AveragedModel:
    """The mean of a network over about its latest hundred steps, which gives every run its score.

    Whoever compares the last step of one run with that of another compares noise.
    """
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)


def adam(model: nn.Module, quick: bool) -> torch.optim.Adam:
    """Adam at its defaults, or at the rates of `auto`: 3 % of each tensor's size at the start."""
    if not quick:
        return torch.optim.Adam(model.parameters())
    sizes = [(part, float(part.detach().square().mean().sqrt())) for part in model.parameters()]
    return torch.optim.Adam([{"params": [part], "lr": 0.03 * (size or 1)} for part, size in sizes])


def plain(
    task: Task, network: Network, epochs: int, seed: int, together: bool, quick: bool = False
) -> Outcome:
    """The honest controls: Adam, early-stopped by the accuracy on trusted rows.

    `together` trains on the trusted rows too, and so cannot be stopped by them.
    """
    torch.manual_seed(seed)
    model = network()
    features, labels = all_rows(task) if together else (task.features, task.labels)
    optimizer, mean = adam(model, quick), averaged(model)
    order = batches(len(labels), seed, task.batch)
    start, best, kept = time.process_time(), -1.0, 0.0
    for _ in range(epochs):
        for _ in range(max(1, len(labels) // task.batch)):
            index = next(order)
            loss = cross_entropy(model(features[index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean.update_parameters(model)
        scored = 0.0 if together else accuracy(mean, task.trusted_features, task.trusted_labels)
        if scored >= best:
            best = scored
            kept = accuracy(mean, task.test_features, task.test_labels)
    return Outcome(kept, float("nan"), time.process_time() - start)


def reweighted(
    task: Task,
    network: Network,
    epochs: int,
    seed: int,
    watch: Any = None,
    quick: bool = False,
    **options: Any,
) -> Outcome:
    """The same loop on noisy and trusted rows with a weight for each; no early stop."""
    torch.manual_seed(seed)
    model = network()
    features, labels = all_rows(task)
    rows, noisy = len(labels), len(task.labels)
    reweighter = untuned.Reweighter(model, rows=rows, **options)
    optimizer, mean = adam(model, quick), averaged(model)
    order = batches(rows, seed, task.batch)
    drawn = batches(len(task.trusted_labels), seed + 1, task.batch)
    start = time.process_time()
    for _ in range(epochs):
        for _ in range(max(1, rows // task.batch)):
            index = next(order)

            def rows_alone(at: Tensor = index) -> Tensor:
                return cross_entropy(model(features[at]), labels[at], reduction="none")

            def trusted_loss() -> Tensor:
                at = next(drawn)
                return cross_entropy(model(task.trusted_features[at]), task.trusted_labels[at])

            losses = rows_alone()
            asked = rows_alone if options.get("order") == 1 else losses
            weights = reweighter(asked, index, trusted_loss)
            optimizer.zero_grad()
            (weights * losses).mean().backward()
            optimizer.step()
            mean.update_parameters(model)
        if watch is not None:
            watch(reweighter.weights[:noisy])
    seconds = time.process_time() - start
    found = accuracy(mean, task.test_features, task.test_labels)
    return Outcome(found, auroc(reweighter.weights[:noisy], task.wrong), seconds)


def by_auto(task: Task, network: Network, epochs: int, seed: int) -> Outcome:
    """The same problem through `untuned.minimize`, which trains the network itself."""
    torch.manual_seed(seed)
    model = network()
    start, apply = untuned.from_module(model)
    features, labels = all_rows(task)
    rows, noisy = len(labels), len(task.labels)

    def outer(x: Tensor, y: Any, batch: Any) -> Tensor:
        return cross_entropy(apply(y, batch[0]), batch[1])

    def inner(x: Tensor, y: Any, batch: Any) -> Tensor:
        losses = cross_entropy(apply(y, batch[0]), batch[1], reduction="none")
        return (torch.sigmoid(x[batch[2]]) * losses).mean()

    size, began = min(task.batch, rows, len(task.trusted_labels)), time.process_time()
    result = untuned.minimize(
        outer, inner, torch.zeros(rows), start,
        outer_data=(task.trusted_features, task.trusted_labels),
        inner_data=(features, labels, torch.arange(rows)),
        batch_size=(min(task.batch, rows), size), seed=seed,
        max_steps=max(1, epochs * rows // task.batch // 2),
    )  # fmt: skip
    seconds = time.process_time() - began
    model.load_state_dict(result.y, strict=False)
    found = accuracy(model, task.test_features, task.test_labels)
    return Outcome(found, auroc(result.x[:noisy], task.wrong), seconds)


def auroc(weights: Tensor, wrong: Tensor | None) -> float:
    """How well weights tell right rows from wrong ones."""
    from sklearn.metrics import roc_auc_score

    if wrong is None or not 0 < int(wrong.sum()) < len(wrong):
        return float("nan")
    return float(roc_auc_score(~wrong.numpy(), weights.numpy()))


RUNS: dict[str, Callable[[Task, Network, int, int], Outcome]] = {
    "plain, early-stopped on trusted rows": partial(plain, together=False),
    "noisy and trusted rows together": partial(plain, together=True),
    "the same at the rates of auto": partial(plain, together=True, quick=True),
    "Reweighter, form='rows'": reweighted,
    "Reweighter at the rates of auto": partial(reweighted, quick=True),
    "Reweighter, form='loss'": partial(reweighted, form="loss"),
    "Reweighter, form='batch'": partial(reweighted, form="batch"),
    "Reweighter, order=1": partial(reweighted, order=1),
    "minimize, auto": by_auto,
}


def report(
    tasks: Callable[[int], Task], network: Network, epochs: int, asked: argparse.Namespace
) -> dict[str, list[Outcome]]:
    """The runs asked for on every seed, as a Markdown table of means and spreads."""
    seeds: Sequence[int] = asked.seeds
    print(f"\n{asked.task}, {epochs} epochs, seeds {list(seeds)}\n", flush=True)
    print(
        "| | test accuracy | AUROC of the weights | processor seconds |\n|---|---|---|---|",
        flush=True,
    )
    given = [tasks(seed) for seed in seeds]
    found = {}
    for name, run in RUNS.items():
        if not any(part in name for part in asked.only):
            continue
        outcomes = [
            run(task, network, epochs, seed) for task, seed in zip(given, seeds, strict=True)
        ]
        found[name] = outcomes
        accuracies, aurocs, seconds = (np.array(column) for column in zip(*outcomes, strict=True))
        shown = "" if np.isnan(aurocs).all() else f"{aurocs.mean():.3f}"
        print(
            f"| {name} | {accuracies.mean():.4f} +- {accuracies.std():.4f} | {shown} "
            f"| {seconds.mean():.1f} |",
            flush=True,
        )
    return found


def arguments(description: str | None, *choices: str) -> argparse.Namespace:
    """What every example is asked: which task, how small, which seeds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("task", choices=choices, nargs="?", default=choices[0])
    parser.add_argument("--small", action="store_true", help="seconds, on few rows, for a try")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument(
        "--only", nargs="+", default=[""], help="runs with these words in their name"
    )
    return parser.parse_args()


def small_cnn(channels: int = 1, side: int = 28, classes: int = 10) -> nn.Module:
    """Two convolutions and one linear layer."""
    left = ((side - 2) // 2 - 2) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 8 * channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8 * channels, 16 * channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * channels * left**2, classes),
    )  # fmt: skip


def tensors(features: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    """Images as floats in [0, 1] with their channels first, and labels as whole numbers."""
    images = torch.as_tensor(np.asarray(features, np.float32)) / 255
    if images.shape[-1] == 3:
        images = images.permute(0, 3, 1, 2).contiguous()
    else:
        images = images.reshape(len(images), 1, 28, 28)
    return images, torch.as_tensor(np.asarray(labels, np.int64))
