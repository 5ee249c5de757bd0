"""The sets that penalties are compared on: planted ones, scikit-learn's, files, users' tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STORED = ("housing", "ijcnn1", "covtype")  # read from the folder UNTUNED_DATA


class Set(NamedTuple):
    """Rows to fit, rows to test on, and what is known of the truth."""

    X: np.ndarray
    y: np.ndarray
    T: np.ndarray
    t: np.ndarray
    support: np.ndarray | None = None  # which features matter
    blocks: Any = None  # the group of each feature
    classes: bool = False


def planted(
    rows: int, features: int, matter: int, alike: float = 0.0, classes: bool = False,
    blocks: int = 0,
) -> Callable[[int], Set]:  # fmt: skip
    """Gaussian features, neighbours correlated by `alike`, of which some matter.

    With blocks the first block matters, all of it, and the others do not.
    """

    def make(seed: int) -> Set:
        random = np.random.default_rng(seed)
        X = random.normal(size=(rows + 2000, features))
        for j in range(1, features if alike else 0):
            X[:, j] = alike * X[:, j - 1] + (1 - alike**2) ** 0.5 * X[:, j]
        w = np.zeros(features)
        where = np.arange(matter) if blocks else random.choice(features, matter, replace=False)
        w[where] = random.choice([-1, 1], matter) * random.uniform(0.5, 1.5, matter)
        z = X @ w / max(float(np.linalg.norm(w)), 1e-12)
        y = z + random.normal(size=len(X)) if not classes else 3 * z + random.logistic(size=len(X))
        y = (y > 0).astype(int) if classes else y
        of = np.arange(features) * blocks // features if blocks else None
        return Set(X[:rows], y[:rows], X[rows:], y[rows:], w != 0, of, classes)

    return make


def heavy(rows: int, degrees: float) -> Callable[[int], Set]:
    """Student's t in every column."""

    def make(seed: int) -> Set:
        random = np.random.default_rng(seed)
        X = random.standard_t(degrees, size=(rows + 2000, 9))
        y = np.clip(X, -3, 3) @ random.normal(size=9) + random.normal(size=len(X))
        return Set(X[:rows], y[:rows], X[rows:], y[rows:])

    return make


def bundled(name: str, classes: bool) -> Callable[[int], Set]:
    """A set of scikit-learn, half of it for the test."""

    def make(seed: int) -> Set:
        from sklearn import datasets
        from sklearn.model_selection import train_test_split

        X, y = getattr(datasets, "load_" + name)(return_X_y=True)
        parts = train_test_split(
            X, y, test_size=0.5, random_state=seed, stratify=y if classes else None
        )
        X, T, y, t = parts
        return Set(X, y, T, t, classes=classes)

    return make


def stored(name: str, rows: int, classes: bool) -> Callable[[int], Set]:
    """Rows of a file in the folder UNTUNED_DATA."""

    def make(seed: int) -> Set:
        with np.load(Path(os.environ["UNTUNED_DATA"], f"{name}.npz")) as file:
            fields = dict(file)
        side = "" if "X" in fields else "_train"
        X, y = fields["X" + side], fields["y" + side]
        X = X.reshape(len(X), -1).astype(np.float64)
        order = np.random.default_rng(seed).permutation(len(X))[: rows + 4000]
        a, b = order[:rows], order[rows:]
        return Set(X[a], y[a], X[b], y[b], classes=classes)

    return make


def table(file: Path, target: str, classes: bool, rows: int = 3000) -> Callable[[int], Set]:
    """A CSV file: text columns as indicators, rows with gaps left out, half of the rest to test."""

    def make(seed: int) -> Set:
        import pandas as pd
        from sklearn.model_selection import train_test_split

        frame = pd.read_csv(file).dropna().sample(frac=1, random_state=seed)[: 2 * rows]
        given = frame.pop(target)
        y = pd.factorize(given, sort=True)[0] if classes else given.to_numpy(np.float64)
        X = pd.get_dummies(frame, drop_first=True).to_numpy(np.float64)
        X, T, y, t = train_test_split(
            X, y, test_size=0.5, random_state=seed, stratify=y if classes else None
        )
        return Set(X, y, T, t, classes=classes)

    return make


SETS: dict[str, Callable[[int], Set]] = {
    "diabetes": bundled("diabetes", False),
    "breast cancer": bundled("breast_cancer", True),
    "wine": bundled("wine", True),
    "iris": bundled("iris", True),
    "digits": bundled("digits", True),
    "5 of 100, 300 rows": planted(300, 100, 5),
    "5 of 500, 200 rows": planted(200, 500, 5),
    "5 of 500, 200 rows, classes": planted(200, 500, 5, classes=True),
    "all of 30, 300 rows": planted(300, 30, 30),
    "5 blocks of 20, 200 rows": planted(200, 100, 20, blocks=5),
    "5 of 100, correlated 0.9": planted(200, 100, 5, alike=0.9),
    "5 of 600, 60 rows (p = 10 n)": planted(60, 600, 5),
    "none of 50, 200 rows": planted(200, 50, 0),
    "heavy tails t(1.2), 500 rows": heavy(500, 1.2),
    "heavy tails t(3), 500 rows": heavy(500, 3.0),
    "housing, 2,000 rows": stored("california_housing", 2000, False),
    "ijcnn1, 2,000 rows": stored("ijcnn1", 2000, True),
    "covtype, 2,000 rows": stored("covtype", 2000, True),
}
