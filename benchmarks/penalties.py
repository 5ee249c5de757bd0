"""Penalties against their peers, in one run: test loss, processor seconds, support F1.

Each set is fitted by our estimators (one strength; one per feature or block) and by scikit-learn's
`RidgeCV`, `LassoCV`, `ElasticNetCV`, `LogisticRegressionCV`, a two-stage adaptive lasso, and, in
the Python given by --peers, skglm, asgl, glum and Optuna (benchmarks/penalties_peers.py). Losses
are squared errors over the target's variance, or log-losses. With --records each fit is noted in a
file of JSON lines as it ends, and is not made again by the next call.

    python benchmarks/penalties.py --seeds 5 --peers /path/to/python --records penalties.jsonl

Prints Markdown. Of each set a line per model: loss, how far it is behind the best peer of its kind
(squared, absolute or mixed penalties) in standard errors of the paired difference, seconds over
those of that kind's own cross-validation, F1. Then how often each of ours is at or below the best
peer of its kind, and the best of all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from penalties_sets import SETS, STORED, Set, table

MOST_PEER_SECONDS = 40
KINDS = {
    "ridge": ("RidgeCV", "LogisticRegressionCV", "optuna l2"),
    "lasso": ("LassoCV", "LogisticRegressionCV l1", "adaptive lasso", "skglm", "asgl"),
    "elastic net": ("ElasticNetCV", "glum", "optuna"),
}
OUTSIDE = ("skglm", "asgl", "glum", "optuna")


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
            f"ours {kind}, {name}": estimators.BilevelLogisticRegression(
                penalty=penalty, norm=norm, random_state=0
            )
            for kind, norm in (("ridge", "l2"), ("lasso", "l1"))
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
        f"ours {kind}, {name}": model(penalty=penalty, random_state=0)
        for kind, model in (("ridge", estimators.BilevelRidge), ("lasso", estimators.BilevelLasso))
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


def others(
    python: Path, name: str, sets: list[Set], seconds: list[float]
) -> list[tuple[float, float, float]]:
    """What a peer in another environment makes of sets; not a number where it fails."""
    script = Path(__file__).parent / "penalties_peers.py"
    found = []
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root, str(number)) for number in range(len(sets))]
        for folder, data, limit in zip(folders, sets, seconds, strict=True):
            folder.mkdir()
            np.savez(
                folder / "in.npz", X=data.X, y=data.y, T=data.T, classes=data.classes,
                seconds=limit, blocks=np.zeros(0) if data.blocks is None else data.blocks,
            )  # fmt: skip
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            subprocess.run(
                [python, script, name, *folders], timeout=MOST_PEER_SECONDS * len(sets),
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        for folder, data in zip(folders, sets, strict=True):
            if not (folder / f"{name}.npz").exists():
                found.append((np.nan, np.nan, np.nan))
                continue
            with np.load(folder / f"{name}.npz") as out:
                values = loss(data, out["predicted"]), float(out["seconds"]), f1(data, out["coef"])
            found.append(values)
    return found


class Records(dict):
    """What was measured, by (set, seed, model), and the file that holds it."""

    def __init__(self, file: Path | None):
        self.file = file
        for line in file.read_text().splitlines() if file and file.exists() else ():
            each = json.loads(line)
            self[each["set"], each["seed"], each["model"]] = tuple(each["values"])

    def add(self, key: tuple[str, int, str], values: tuple[float, float, float]) -> None:
        """Keep it, and write it down."""
        self[key] = values
        if self.file:
            with self.file.open("a") as out:
                named = dict(zip(("set", "seed", "model"), key, strict=True))
                print(json.dumps(named | {"values": values}), file=out)


def run(
    name: str, make: Any, seeds: int, peers: Path | None, records: Records, only: str,
    outside: list[str],
) -> dict[str, np.ndarray]:  # fmt: skip
    """(seeds, 3) of each model: loss, seconds, F1. Peers that failed on a seed are left out."""
    sets = [make(seed) for seed in range(seeds)]
    names = []
    for seed, data in enumerate(sets):
        for each, model in models(data).items():
            if only not in each:
                continue
            names.append(each)
            if (name, seed, each) not in records:
                records.add((name, seed, each), measured(data, model))
    ours = [
        max(
            [v[1] for k, v in records.items() if k[:2] == (name, seed) and k[2][:4] == "ours"],
            default=1.0,
        )
        for seed in range(seeds)
    ]
    for each in outside if peers else ():
        # Of classes Optuna searches the strength of a squared penalty.
        title = "optuna l2" if each == "optuna" and sets[0].classes else each
        names.append(title)
        if peers and (name, seeds - 1, title) not in records:
            for seed, values in enumerate(others(peers, each, sets, ours)):
                records.add((name, seed, title), values)
    table = {each: [records[name, seed, each] for seed in range(seeds)] for each in names}
    return {each: np.array(v) for each, v in table.items() if not np.isnan(v).all(axis=1).any()}


def behind(ours: np.ndarray, peers: dict[str, np.ndarray]) -> tuple[str, float, float]:
    """The best peer by test loss, which nobody knows beforehand; the mean difference, its error."""
    best = min(peers, key=lambda each: peers[each][:, 0].mean())
    apart = ours[:, 0] - peers[best][:, 0]
    error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    return best, float(apart.mean()), float(error)


def show(name: str, found: dict[str, np.ndarray], verdicts: dict[tuple[str, str], list]) -> None:
    """Print the lines of a set, and note who is at or below the best peer, or near it."""
    peers = {each: v for each, v in found.items() if not each.startswith("ours")}
    for each, values in found.items():
        kind = each.removeprefix("ours ").split(",")[0] if each not in peers else ""
        alike = {p: v for p, v in peers.items() if p in KINDS.get(kind, ())}
        mean, text = values.mean(axis=0), " | "
        if each not in peers and alike:
            best, apart, error = behind(values, alike)
            own = next(iter(alike))
            ratio = mean[1] / peers[own][:, 1].mean()
            text = f"{apart:+.4f} +- {error:.4f} {best} | {ratio:.1f} {own}"
            for against, of in (("its kind", alike), ("all", peers)):
                _, apart, error = behind(values, of)
                verdicts.setdefault((each, against), []).append((apart <= 0, apart <= error))
        score = "" if np.isnan(mean[2]) else f"{mean[2]:.2f}"
        print(f"| {name} | {each} | {mean[0]:.4f} | {text} | {mean[1]:.2f} | {score} |")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="sets whose name holds this")
    parser.add_argument("--models", default="", help="ours and scikit-learn's with this in a name")
    parser.add_argument("--peers", type=Path, help="a Python with skglm, asgl, glum and optuna")
    parser.add_argument("--outside", nargs="*", default=OUTSIDE, help="which of those, in --peers")
    parser.add_argument("--records", type=Path, help="JSON lines to read from and add to")
    parser.add_argument(
        "--tables", nargs="*", default=[], help="files.csv:target or files.csv:target:classes"
    )
    options = parser.parse_args()
    records = Records(options.records)
    sets = {n: m for n, m in SETS.items() if options.only in n}
    if not os.environ.get("UNTUNED_DATA"):
        sets = {n: m for n, m in sets.items() if n.split(",")[0] not in STORED}
    if options.tables:
        parts = [each.split(":") for each in options.tables]
        sets = {Path(f).stem: table(Path(f), target, bool(kind)) for f, target, *kind in parts}
    print("| set | model | loss | behind its kind's best | times its kind's first | s | F1 |")
    print("|---|---|---|---|---|---|---|")
    verdicts: dict[tuple[str, str], list] = {}
    for name, make in sets.items():
        found = run(
            name, make, options.seeds, options.peers, records, options.models, options.outside
        )
        show(name, found, verdicts)
    print("\n| ours | against the best of | sets | at or below | at most one error behind |")
    print("|---|---|---|---|---|")
    for (each, against), seen in verdicts.items():
        below, near = np.array(seen).sum(axis=0)
        print(f"| {each} | {against} | {len(seen)} | {below} | {near} |")
