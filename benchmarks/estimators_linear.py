"""`BilevelLogisticRegression` and `BilevelRidge` against scikit-learn's own, set by set.

Test loss as the mean over several splits, seconds of `fit` as they come (ours with compilation in
the first), then a fresh process on 569 x 30 with all imports, and the peak memory of a fit of
100,000 x 100. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from memory import peak_above

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def bundled(name: str) -> Callable[[int], Split]:
    """A data set of scikit-learn, half of it for the test."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    def split(seed: int) -> Split:
        X, y = getattr(datasets, "load_" + name)(return_X_y=True)
        strata = None if name == "diabetes" else y
        X, T, y, t = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=strata)
        return X, y, T, t

    return split


def drawn(rows: int, features: int, matter: int, labels: bool = True) -> Callable[[int], Split]:
    """Gaussian features of which some matter; none for pure noise."""

    def split(seed: int) -> Split:
        random = np.random.default_rng(seed)
        X = random.normal(size=(rows + 10_000, features)).astype(np.float32)
        w = np.zeros(features, np.float32)
        w[:matter] = 2 / max(matter, 1) ** 0.5 * random.choice([-1, 1], matter)
        z = X @ w
        y = z + (random.logistic(size=len(X)) if labels else 2 * random.normal(size=len(X)))
        y = (y > 0).astype(int) if labels else y
        return X[:rows], y[:rows], X[rows:], y[rows:]

    return split


def made(rows: int, features: int, classes: int) -> Callable[[int], Split]:
    """scikit-learn's own generator."""
    from sklearn.datasets import make_classification

    def split(seed: int) -> Split:
        X, y = make_classification(
            rows + 5000, features, n_informative=8, n_classes=classes, flip_y=0.05,
            random_state=seed,
        )  # fmt: skip
        return X[:rows], y[:rows], X[rows:], y[rows:]

    return split


def stored(name: str, rows: int) -> Callable[[int], Split]:
    """Rows of a file in UNTUNED_DATA."""
    from untuned_paper import datasets

    def split(seed: int) -> Split:
        fields = datasets.load(name)
        X, y = (
            (fields["X"], fields["y"]) if "X" in fields else (fields["X_train"], fields["y_train"])
        )
        X = X.reshape(len(X), -1)
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[:rows], order[rows : rows + 10_000]
        return X[train].astype(np.float32), y[train], X[test].astype(np.float32), y[test]

    return split


SMALL = {
    "iris": bundled("iris"), "wine": bundled("wine"), "breast cancer": bundled("breast_cancer"),
    "digits": bundled("digits"), "made 150 x 60": made(150, 60, 2),
    "made 600 x 40, 4 classes": made(600, 40, 4),
    "5 of 100 matter, 300 rows": drawn(300, 100, 5),
    "10 of 200 matter, 1000 rows": drawn(1000, 200, 10),
    "5 of 300 matter, 100 rows": drawn(100, 300, 5),
    "30 of 30 matter, 300 rows": drawn(300, 30, 30),
    "noise 200 x 20": drawn(200, 20, 0), "noise 100 x 100": drawn(100, 100, 0),
}  # fmt: skip
LARGE = {
    "ijcnn1, 20,000 rows": ("ijcnn1", 20_000), "covtype, 20,000 rows": ("covtype", 20_000),
    "MNIST, 20,000 rows": ("mnist", 20_000), "covtype, 100,000 rows": ("covtype", 100_000),
}  # fmt: skip
RIDGE = {
    "diabetes": bundled("diabetes"), "5 of 100 matter, 300 rows": drawn(300, 100, 5, False),
    "30 of 30 matter, 300 rows": drawn(300, 30, 30, False),
    "noise 200 x 20": drawn(200, 20, 0, False),
    "10 of 50, 20,000 rows": drawn(20_000, 50, 10, False),
}  # fmt: skip


def compare(name: str, split: Callable[[int], Split], seeds: int, ridge: bool) -> str:
    """One line of the table."""
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.metrics import log_loss, mean_squared_error
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from untuned.estimators import BilevelLogisticRegression, BilevelRidge

    losses, seconds = np.zeros((seeds, 2)), np.zeros((seeds, 2))
    for seed in range(seeds):
        X, y, T, t = split(seed)
        peer: Any = RidgeCV(np.logspace(-4, 4, 10)) if ridge else LogisticRegressionCV(Cs=10, cv=5)
        ours = BilevelRidge if ridge else BilevelLogisticRegression
        sides = (make_pipeline(StandardScaler(), peer), ours(random_state=seed))
        for side, model in enumerate(sides):
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of scikit-learn: no convergence, new defaults
                model.fit(X, y)
            seconds[seed, side] = time.perf_counter() - start
            if ridge:
                losses[seed, side] = mean_squared_error(t, model.predict(T)) / np.var(t)
            else:
                guess = model.predict_proba(T).astype(np.float64)
                losses[seed, side] = log_loss(t, guess / guess.sum(axis=1, keepdims=True))
    (theirs, our), took = losses.mean(axis=0), np.median(seconds, axis=0)
    gain = losses[:, 0] - losses[:, 1]
    error = gain.std() / max(seeds - 1, 1) ** 0.5
    return (
        f"| {name} | {theirs:.4f} | {our:.4f} | {gain.mean():+.4f} +- {error:.4f} "
        f"| {took[0]:.2f} | {took[1]:.2f} | {seconds[0, 1]:.2f} |"
    )


def fresh_process() -> float:
    """Seconds of a process that imports, reads 569 x 30 and fits."""
    code = (
        "from sklearn.datasets import load_breast_cancer;"
        "from untuned.estimators import BilevelLogisticRegression as B;"
        "B(random_state=0).fit(*load_breast_cancer(return_X_y=True))"
    )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def memory_ratio() -> float:
    """Peak memory of a fit above what was there before, over the size of X in float32."""
    command = [sys.executable, __file__, "--memory"]
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return float(done.stdout)


def measure_memory() -> float:
    """`memory_ratio`, in this process."""
    from untuned.estimators import BilevelLogisticRegression

    X, y, _, _ = drawn(100, 100, 10)(0)
    BilevelLogisticRegression(cv=0.2, max_steps=2).fit(X, y)  # libraries loaded, code compiled
    X, y, _, _ = drawn(100_000, 100, 10)(0)
    return peak_above(lambda: BilevelLogisticRegression(random_state=0).fit(X, y)) / X.nbytes


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", help="sets whose name holds this")
    parser.add_argument("--memory", action="store_true", help="peak of one fit, in this process")
    options = parser.parse_args()
    if options.memory:
        print(measure_memory())
        sys.exit()
    wanted = options.only or ""
    print("| set | peer's loss | ours | gain | peer's seconds | ours | our first |")
    print("|---|---|---|---|---|---|---|")
    for name, split in SMALL.items():
        if wanted in name:
            print(compare(name, split, options.seeds, ridge=False), flush=True)
    for name, (file, rows) in LARGE.items():
        if wanted in name:
            print(compare(name, stored(file, rows), 1, ridge=False), flush=True)
    for name, split in RIDGE.items():
        if wanted in name:
            print(compare("ridge: " + name, split, options.seeds, ridge=True), flush=True)
    if not wanted:
        print(f"\nfresh process, 569 x 30: {fresh_process():.2f} s (target 3)")
        print(f"peak memory / X in float32, 100,000 x 100: {memory_ratio():.2f} (target 3)")
