"""`CoresetSelector`: test accuracy of logistic regression trained on 1 % of the rows.

Every strategy on every set, mean of the seeds, without and with the weights; then time and memory
of a fit. The rows hold "bilevel" to be above uniform: what is printed is uniform's accuracy
over ours, at most 1.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from common import Row, main
from memory import peak_above
from untuned.estimators import CoresetSelector
from untuned_paper.datasets import load

SHARE = 0.01
TARGET_MEMORY = 3.0  # times X in float32


class Split(NamedTuple):
    """Training and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def split(X: np.ndarray, y: np.ndarray, rows: int, seed: int) -> Split:
    """`rows` random rows to train on, at most 10,000 others to test."""
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:rows], order[rows : rows + 10_000]
    return Split(X[train], y[train], X[test], y[test])


def made(rows: int, **settings: object) -> Callable[[int], Split]:
    """A set of scikit-learn's generator, another one for every seed."""

    def get(seed: int) -> Split:
        X, y = make_classification(rows + 5_000, random_state=seed, **settings)
        return split(X, y, rows, seed)

    return get


def covtype(rows: int, binary: bool = False) -> Callable[[int], Split]:
    """Covtype, its seven classes or the largest against the rest."""

    def get(seed: int) -> Split:
        data = load("covtype")
        y = (data["y"] == 2).astype(int) if binary else data["y"]
        return split(data["X"].astype(np.float32), y, rows, seed)

    return get


def ijcnn1(seed: int) -> Split:
    """20,000 rows of ijcnn1 and its official test rows."""
    data = load("ijcnn1")
    part = split(data["X_train"], data["y_train"], 20_000, seed)
    return Split(part.X, part.y, data["X_test"], data["y_test"])


def mnist(rows: int, wrong: float = 0.0) -> Callable[[int], Split]:
    """MNIST with a share of wrong labels among the training rows."""

    def get(seed: int) -> Split:
        data = load("mnist")
        X, X_test = (
            data[name].reshape(-1, 784) / np.float32(255) for name in ("X_train", "X_test")
        )
        part = split(X, data["y_train"].astype(int), rows, seed)
        rng = np.random.default_rng(seed)
        noise = np.where(rng.random(rows) < wrong, rng.integers(1, 10, rows), 0)
        return Split(part.X, (part.y + noise) % 10, X_test, data["y_test"])

    return get


def digits(seed: int) -> Split:
    """scikit-learn's digits: 1,400 rows, so 14 are chosen for ten classes."""
    X, y = load_digits(return_X_y=True)
    return split(X, y, 1_400, seed)


SETS: dict[str, Callable[[int], Split]] = {
    "digits": digits,
    "made, 2,000 x 20": made(2_000, n_features=20, n_informative=10),
    "made, 30 % wrong": made(5_000, n_features=20, n_informative=10, flip_y=0.3),
    "made, 95 : 5": made(10_000, n_features=20, n_informative=10, weights=[0.95]),
    "made, 200 features": made(3_000, n_features=200, n_informative=20),
    "made, 10 classes": made(
        10_000, n_features=30, n_informative=15, n_classes=10, n_clusters_per_class=1
    ),
    "made, 5 uneven classes": made(
        10_000, n_features=25, n_informative=15, n_classes=5, weights=[0.6, 0.2, 0.1, 0.07, 0.03]
    ),
    "made, 100,000 rows": made(100_000, n_features=40, n_informative=20, n_classes=3),
    "ijcnn1": ijcnn1,
    "Covtype, 2 classes": covtype(20_000, binary=True),
    "Covtype": covtype(20_000),
    "Covtype, 100,000 rows": covtype(100_000),
    "MNIST, 2,000 rows": mnist(2_000),
    "MNIST, 20,000 rows": mnist(20_000),
    "MNIST, 30 % wrong": mnist(20_000, wrong=0.3),
}
QUICK = ("digits", "made, 2,000 x 20", "made, 95 : 5", "made, 10 classes", "ijcnn1")


def accuracy(
    data: Split, rows: np.ndarray, weights: np.ndarray | None, scaled: bool = True
) -> float:
    """Of logistic regression trained on these rows."""
    X, X_test = data.X, data.X_test
    if scaled:
        scaler = StandardScaler().fit(X)
        X, X_test = scaler.transform(X[rows]), scaler.transform(X_test)
    else:
        X = X[rows]
    if len(np.unique(data.y[rows])) < 2:  # it happens to uniform choices of few rows
        return float(np.mean(data.y_test == data.y[rows[0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # columns as they come
        model = LogisticRegression(max_iter=1000).fit(X, data.y[rows], sample_weight=weights)
    return float(model.score(X_test, data.y_test))


def compare(get: Callable[[int], Split], seeds: int) -> dict[str, np.ndarray]:
    """Per strategy the mean accuracy: plain, weighted, plain and weighted unscaled; seconds."""
    found: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        data = get(seed)
        for strategy in ("uniform", "kmeans", "herding", "bilevel"):
            start = time.perf_counter()
            fit = CoresetSelector(SHARE, strategy=strategy, random_state=seed).fit(data.X, data.y)
            seconds = time.perf_counter() - start
            rows, weights = fit.indices_, fit.weights_[fit.indices_]
            scores = [
                accuracy(data, rows, given, scaled)
                for scaled in (True, False)
                for given in (None, weights)
            ]
            found.setdefault(strategy, []).append([*scores, seconds])
    return {strategy: np.mean(values, axis=0) for strategy, values in found.items()}


def memory(name: str) -> float:
    """Peak of a fit above what was there, over the size of X in float32; in this process."""
    data = SETS[name](0)
    CoresetSelector(SHARE, random_state=0).fit(data.X[:1000], data.y[:1000])  # loads what it needs
    fit = CoresetSelector(SHARE, random_state=0)
    return peak_above(lambda: fit.fit(data.X, data.y)) / (4 * data.X.size)


def measure(quick: bool) -> list[Row]:
    """One row per set and per way to train, and the memory."""
    rows = []
    for name in QUICK if quick else SETS:
        means = compare(SETS[name], 2 if quick else 5)
        for column, how in (
            (0, "plain"),
            (1, "weighted"),
            (2, "unscaled"),
            (3, "unscaled, weighted"),
        ):
            ours, base = means["bilevel"][column], means["uniform"][column]
            detail = ", ".join(f"{key} {value[column]:.4f}" for key, value in means.items())
            if column == 0:
                detail += f"; {means['bilevel'][4]:.1f} s a fit"
            target = 1.0 if column < 2 else None
            rows.append(Row(f"{name}, {how}", target, base / ours, detail=detail))
            print(rows[-1], file=sys.stderr, flush=True)
    for name in () if quick else ("Covtype, 100,000 rows", "MNIST, 20,000 rows"):
        command = [sys.executable, __file__, "--memory", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(Row(f"{name}: memory / X", TARGET_MEMORY, float(done.stdout)))
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        print(memory(sys.argv[2]))
    else:
        main(measure)
