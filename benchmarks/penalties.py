"""Penalties against their peers, in one run: test loss, processor seconds, support F1.

Each set is fitted by our estimators (one strength; one per feature or block) and by scikit-learn's
`RidgeCV`, `LassoCV`, `ElasticNetCV`, `LogisticRegressionCV`, a two-stage adaptive lasso, and, in
the Python given by --peers, skglm, asgl, glum and Optuna (benchmarks/penalties_peers.py). Losses
are squared errors over the target's variance, or log-losses. Prints Markdown: a line per set and
model with the ratio to the best peer, then how often each of ours is at or below it.

    python benchmarks/penalties.py --seeds 2 --peers /path/to/python
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

MOST_PEER_SECONDS = 40


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


def loss(data: Set, predicted: np.ndarray) -> float:
    """Squared errors over the variance, or the log-loss of probabilities."""
    if not data.classes:
        return float(np.mean((data.t - predicted) ** 2) / np.var(data.t))
    from sklearn.metrics import log_loss

    predicted = predicted.astype(np.float64)
    labels = np.unique(data.y)
    return float(log_loss(data.t, predicted / predicted.sum(axis=1, keepdims=True), labels=labels))


def f1(data: Set, coef: np.ndarray) -> float:
    """Of the features that are in the model, where it is known which should be."""
    if data.support is None or not data.support.any():
        return np.nan
    found = np.atleast_2d(coef).any(axis=0)
    return 2 * float((found & data.support).sum()) / float(found.sum() + data.support.sum())


def models(data: Set) -> dict[str, Any]:
    """Ours and scikit-learn's; peers get standardised features, as ours make their own."""
    from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from untuned import estimators

    scaled = lambda model: make_pipeline(StandardScaler(), model)
    many = "feature" if data.blocks is None else list(data.blocks)
    if data.classes:
        ours = {
            f"ours {norm}, {name}": estimators.BilevelLogisticRegression(
                penalty=penalty, norm=norm, random_state=0
            )
            for norm in ("l2", "l1")
            for name, penalty in (("one", "all"), ("many", many))
        }
        peers: dict[str, Any] = {
            "LogisticRegressionCV": scaled(LogisticRegressionCV(Cs=10, cv=5, max_iter=1000))
        }
        if len(np.unique(data.y)) == 2:
            peers["LogisticRegressionCV l1"] = scaled(
                LogisticRegressionCV(Cs=10, cv=5, l1_ratios=(1.0,), solver="liblinear")
            )
        return ours | peers
    ours = {
        f"ours {norm}, {name}": kind(penalty=penalty, random_state=0)
        for norm, kind in (("l2", estimators.BilevelRidge), ("l1", estimators.BilevelLasso))
        for name, penalty in (("one", "all"), ("many", many))
    }
    ours["ours elastic net, one"] = estimators.BilevelElasticNet(penalty="all", random_state=0)
    return ours | {
        "RidgeCV": scaled(RidgeCV(np.logspace(-4, 4, 10))),
        "LassoCV": scaled(LassoCV(cv=5)),
        "ElasticNetCV": scaled(ElasticNetCV(l1_ratio=[0.2, 0.5, 0.9], cv=5)),
        "adaptive lasso": scaled(AdaptiveLasso()),
    }


class AdaptiveLasso(RegressorMixin, BaseEstimator):
    """Two stages: ridge, then `LassoCV` with each feature scaled by its ridge coefficient."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> AdaptiveLasso:
        """As scikit-learn's."""
        from sklearn.linear_model import LassoCV, RidgeCV

        scale = np.abs(RidgeCV(np.logspace(-4, 4, 10)).fit(X, y).coef_) + 1e-12
        self.model_ = LassoCV(cv=5).fit(X * scale, y)
        self.coef_, self.intercept_ = self.model_.coef_ * scale, self.model_.intercept_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """As scikit-learn's."""
        return X @ self.coef_ + self.intercept_


def measured(data: Set, model: Any) -> tuple[float, float, float]:
    """Loss, processor seconds of `fit`, and F1."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn: no convergence, new defaults
        model.fit(data.X, data.y)
    seconds = time.process_time() - start
    predicted = model.predict_proba(data.T) if data.classes else model.predict(data.T)
    last = model[-1] if hasattr(model, "steps") else model
    return loss(data, predicted), seconds, f1(data, last.coef_)


def others(python: Path, data: Set, seconds: float) -> dict[str, tuple[float, float, float]]:
    """What peers in another environment make of the set; those that fail are left out."""
    script = Path(__file__).parent / "penalties_peers.py"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            Path(folder, "in.npz"), X=data.X, y=data.y, T=data.T, classes=data.classes,
            seconds=seconds, blocks=np.zeros(0) if data.blocks is None else data.blocks,
        )  # fmt: skip
        for name in ("skglm", "asgl", "glum", "optuna"):
            try:
                subprocess.run(
                    [python, script, name, folder], check=True, timeout=MOST_PEER_SECONDS,
                    stderr=subprocess.DEVNULL,
                )  # fmt: skip
            except (subprocess.SubprocessError, OSError):
                continue
            with np.load(Path(folder, f"{name}.npz")) as out:
                values = loss(data, out["predicted"]), float(out["seconds"]), f1(data, out["coef"])
            found[name] = values
    return found


def compare(
    name: str, make: Callable[[int], Set], seeds: int, peers: Path | None
) -> dict[str, tuple[bool, bool]]:
    """Print the lines of a set; of each of ours whether it is at or below the best peer, or near.

    The best peer is the one with the least test loss, which nobody knows beforehand.
    """
    runs: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(seeds):
        data = make(seed)
        now = {each: measured(data, model) for each, model in models(data).items()}
        if peers:
            ours = max(seconds for each, (_, seconds, _) in now.items() if each.startswith("ours"))
            now |= others(peers, data, ours)
        for each, values in now.items():
            runs.setdefault(each, []).append(values)
    # A peer that failed on some seed is left out.
    table = {each: np.array(values) for each, values in runs.items() if len(values) == seeds}
    of_peers = {each: v[:, 0] for each, v in table.items() if not each.startswith("ours")}
    best = of_peers[min(of_peers, key=lambda each: of_peers[each].mean())]
    verdicts = {}
    for each, found in table.items():
        mean = found.mean(axis=0)
        score = "" if np.isnan(mean[2]) else f"{mean[2]:.2f}"
        numbers = f"{mean[0]:.4f} | {mean[0] / best.mean():.3f} | {mean[1]:.2f} | {score}"
        print(f"| {name} | {each} | {numbers} |")
        if each.startswith("ours"):
            behind = found[:, 0] - best
            error = behind.std(ddof=1) / seeds**0.5 if seeds > 1 else 0.0
            verdicts[each] = bool(mean[0] <= best.mean()), bool(behind.mean() <= error)
    sys.stdout.flush()
    return verdicts


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="sets whose name holds this")
    parser.add_argument("--peers", type=Path, help="a Python with skglm, asgl, glum and optuna")
    options = parser.parse_args()
    print("| set | model | loss | over the best peer | processor s | F1 |")
    print("|---|---|---|---|---|---|")
    verdicts: dict[str, list[tuple[bool, bool]]] = {}
    for name, make in SETS.items():
        if options.only not in name:
            continue
        if name.split(",")[0] in ("housing", "ijcnn1", "covtype") and not os.environ.get(
            "UNTUNED_DATA"
        ):
            continue
        for each, verdict in compare(name, make, options.seeds, options.peers).items():
            verdicts.setdefault(each, []).append(verdict)
    print("\n| ours | sets | at or below the best peer | at most one standard error behind |")
    print("|---|---|---|---|")
    for each, found in verdicts.items():
        below, near = np.array(found).sum(axis=0)
        print(f"| {each} | {len(found)} | {below} | {near} |")
