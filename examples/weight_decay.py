"""One weight decay per layer, learned, against one for all layers, searched by Optuna.

    python examples/weight_decay.py mnist

A CNN trains on 1,000 rows with 30 % of the labels redrawn; 1,000 rows with right labels choose the
decays. f is the loss at its best temperature: wrong labels and decays both make a network less
confident, which the plain loss punishes and accuracy does not. Optuna searches one decay, on a log
scale, by accuracy, for as many processor seconds as learning all of them took. Each of its trials
trains for as many epochs. UNTUNED_DATA names the folder of mnist.npz.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import untuned
from loops import (
    BATCH,
    Task,
    accuracy,
    all_rows,
    arguments,
    averaged,
    batches,
    of_each_class,
    small_cnn,
    tensors,
)
from untuned_paper import datasets

TASKS = ("mnist",)
START = math.log(1e-3)


def task(seed: int, small: bool) -> Task:
    """Few rows with wrong labels, as many right ones, test rows."""
    raw = datasets.load("mnist")
    random, count = np.random.default_rng(seed), 200 if small else 1000
    order = random.permutation(len(raw["y_train"]))
    train = order[:count]
    validation = of_each_class(raw["y_train"], order[count:], count)
    given = raw["y_train"].astype(np.int64)
    hit = train[random.random(count) < 0.3]
    given[hit] = random.integers(0, 10, len(hit))
    parts = [(raw["X_train"][rows], given[rows]) for rows in (train, validation)]
    tests = slice(0, 500 if small else None)
    parts.append((raw["X_test"][tests], raw["y_test"][tests]))
    return Task(*(tensor for X, y in parts for tensor in tensors(X, y)))


def loss_when_calibrated(scores: Tensor, labels: Tensor) -> Tensor:
    """The cross entropy with the scores times the one number that makes it least, by Newton steps.

    Where that number is best, moving it changes nothing: so it needs no derivative of its own.
    """
    fixed, times = scores.detach(), torch.ones(())
    centred = fixed - fixed.gather(1, labels[:, None])
    for _ in range(10):
        shares = (times * fixed).softmax(1)
        slope = (shares * centred).sum(1)
        bend = (shares * centred**2).sum(1) - slope**2
        step = slope.mean() / bend.mean().clamp(min=1e-12)
        times = torch.clamp(times - step, times / 2, times * 2)
    return cross_entropy(times * scores, labels)


def learned(given: Task, epochs: int, seed: int) -> tuple[float, float, list[float]]:
    """Test accuracy, processor seconds, and the decay of each tensor."""
    torch.manual_seed(seed)
    model = small_cnn()
    start, apply = untuned.from_module(model)
    decays = {name: torch.tensor(START) for name in start}

    def outer(x: Any, y: Any, batch: Any) -> Tensor:
        return loss_when_calibrated(apply(y, batch[0]), batch[1])

    def inner(x: Any, y: Any, batch: Any) -> Tensor:
        penalty = sum(x[name].exp() * (part**2).sum() for name, part in y.items())
        return cross_entropy(apply(y, batch[0]), batch[1]) + penalty / 2

    began = time.process_time()
    result = untuned.minimize(
        outer, inner, decays, start, outer_data=(given.trusted_features, given.trusted_labels),
        inner_data=(given.features, given.labels), batch_size=min(BATCH, len(given.labels)),
        seed=seed, max_steps=max(1, epochs * len(given.labels) // BATCH // 2),
    )  # fmt: skip
    seconds = time.process_time() - began
    model.load_state_dict(result.y, strict=False)
    found = accuracy(model, given.test_features, given.test_labels)
    return found, seconds, [float(part.exp()) for part in result.x.values()]


def trained(
    given: Task, decay: float, epochs: int, seed: int, together: bool = False
) -> tuple[float, float]:
    """Accuracy on validation and on test rows with one decay for all, by Adam and averaged."""
    torch.manual_seed(seed)
    model = small_cnn()
    features, labels = all_rows(given) if together else (given.features, given.labels)
    optimizer, mean = torch.optim.Adam(model.parameters()), averaged(model)
    order = batches(len(labels), seed)
    for _ in range(epochs * max(1, len(labels) // BATCH)):
        index = next(order)
        penalty = decay / 2 * sum((part**2).sum() for part in model.parameters())
        optimizer.zero_grad()
        (cross_entropy(model(features[index]), labels[index]) + penalty).backward()
        optimizer.step()
        mean.update_parameters(model)
    scored = accuracy(mean, given.trusted_features, given.trusted_labels)
    return scored, accuracy(mean, given.test_features, given.test_labels)


def searched(given: Task, epochs: int, seed: int, seconds: float) -> tuple[float, float, int]:
    """Optuna's best decay for the same seconds: its test accuracy, seconds and trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    best, found, began = -1.0, 0.0, time.process_time()
    while time.process_time() - began < seconds or not study.trials:
        trial = study.ask()
        scored, tested = trained(
            given, trial.suggest_float("decay", 1e-6, 1.0, log=True), epochs, seed
        )
        study.tell(trial, scored)
        if scored > best:
            best, found = scored, tested
    return found, time.process_time() - began, len(study.trials)


def main() -> None:
    """Learned, searched, and the controls."""
    asked = arguments(__doc__, *TASKS)
    epochs = asked.epochs or (1 if asked.small else 40)
    print(f"\nweight decay, {epochs} epochs, seeds {asked.seeds}\n")
    print("| | test accuracy | processor seconds |\n|---|---|---|", flush=True)
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in asked.seeds:
        given = task(seed, asked.small)
        right, seconds, decays = learned(given, epochs, seed)
        runs = {"one decay per layer, learned": (right, seconds)}
        try:
            *searched_run, trials = searched(given, epochs, seed, seconds)
            runs["one decay, searched by Optuna"] = (searched_run[0], searched_run[1])
            print(f"<!-- seed {seed}: {trials} trials; {np.round(decays, 5)} -->", flush=True)
        except ModuleNotFoundError:
            print("<!-- Optuna is not installed, so its row is left out. -->", flush=True)
        for name, both in (("no decay", False), ("no decay, both kinds of rows", True)):
            began = time.process_time()
            _, right = trained(given, 0.0, epochs, seed, both)
            runs[name] = (right, time.process_time() - began)
        for name, run in runs.items():
            found.setdefault(name, []).append(run)
    for name, results in found.items():
        right_of, took = np.array(results).T
        print(f"| {name} | {right_of.mean():.4f} +- {right_of.std():.4f} | {took.mean():.1f} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
