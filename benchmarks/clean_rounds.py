"""A second round of cleaning after people decided: is it better, and is it quicker?

A reviewer who is right in 95 of 100 cases looks at the first suspects of a run on labels of which
20 % are wrong. Round two counts what was decided as trusted. Both rounds are measured on the same
rows, those nobody looked at.

python benchmarks/clean_rounds.py [--looked-at 0.5] [--sets digits,mnist]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, roc_auc_score

from untuned.commands import verdicts
from untuned.commands.job import Job
from untuned.tables import texts
from untuned.tables.decisions import Decisions

RIGHT = 0.95  # of the reviewer's answers
WRONG = 0.2  # of the labels
ROWS = 2000
DATA = Path(os.environ.get("UNTUNED_DATA", "."))


def _digits() -> tuple[Any, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def _npz(name: str) -> Callable[[], tuple[Any, np.ndarray]]:
    def read() -> tuple[Any, np.ndarray]:
        with np.load(DATA / f"{name}.npz") as data:
            first = "X_train" if "X_train" in data.files else "X"
            X, y = data[first], data[first.replace("X", "y")]
        rows = np.random.default_rng(0).permutation(len(y))[:ROWS]
        X = X[rows].reshape(len(rows), -1).astype(np.float32)
        X = X[:, X.std(axis=0) > 0]
        return (X - X.mean(axis=0)) / X.std(axis=0), y[rows].astype(int)

    return read


def _fortunes() -> tuple[Any, np.ndarray]:
    frame = pd.read_csv(DATA / "fortunes.csv").sample(ROWS, random_state=0)
    return texts.step(texts.WORDS_AND_PIECES).fit_transform(frame[["text"]]), pd.factorize(
        frame["topic"]
    )[0]


SETS: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "digits": _digits,
    "fortunes": _fortunes,
    "mnist": _npz("mnist"),
    "covtype": _npz("covtype"),
    "ijcnn1": _npz("ijcnn1"),
}


def rounds(name: str, seed: int, looked_at: float) -> dict[str, Any]:
    """Both rounds on one set."""
    X, true = SETS[name]()
    true = np.unique(true, return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    classes = int(true.max()) + 1
    wrong = rng.random(len(true)) < WRONG
    given = np.where(wrong, (true + rng.integers(1, classes, len(true))) % classes, true)
    job = Job("clean", Path("none"), "label", Path("none"), "auto", seed, None, False)

    begun = time.process_time()
    first = verdicts.of_classes(job, X, given, None, None, None)
    first_seconds = time.process_time() - begun
    seen = first.issues[: round(looked_at * len(first.issues))]
    slips = rng.random(len(seen)) > RIGHT
    answer = np.where(
        slips, (true[seen] + rng.integers(1, classes, len(seen))) % classes, true[seen]
    )
    judges = tuple(verdicts.worth_training(first.model_weights))  # as the first run's folder says
    decided = Decisions(pd.DataFrame(), seen, answer, np.zeros(0, int), judges)
    begun = time.process_time()
    second = verdicts.with_decisions(job, X, given, (None, None), None, decided)
    second_seconds = time.process_time() - begun

    rest = np.ones(len(true), bool)
    rest[seen] = False
    found: dict[str, Any] = {"set": name, "decided": len(seen)}
    for place, each in enumerate((first, second), 1):
        found |= _scores(each, wrong & (given != true), rest, place)
    found |= {"CPU seconds 1": first_seconds, "CPU seconds 2": second_seconds}
    found["right labels before"] = (given == true).mean()
    kept = np.ones(len(true), bool)
    kept[second.issues] = False
    cleaned = given.copy()
    cleaned[seen] = answer
    found["right labels after"] = (cleaned == true)[kept].mean()
    return found


def _scores(
    judged: verdicts.Verdicts, wrong: np.ndarray, rest: np.ndarray, place: int
) -> dict[str, float]:
    quality = judged.quality[rest]
    flagged = np.zeros(len(rest), bool)
    flagged[judged.issues] = True
    hits = (flagged & wrong)[rest].sum()
    total = flagged[rest].sum() + wrong[rest].sum()
    return {
        f"rate {place}": judged.noise_rate,
        f"suspects {place}": int(flagged[rest].sum()),
        f"AUROC {place}": roc_auc_score(wrong[rest], -quality),
        f"AP {place}": average_precision_score(wrong[rest], -quality),
        f"F1 {place}": 2 * hits / max(1, total),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--looked-at", type=float, default=0.5)
    asked = parser.parse_args()
    for name in asked.sets.split(","):
        for seed in range(asked.seeds):
            found = rounds(name, seed, asked.looked_at)
            shown = (
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
                for key, value in found.items()
            )
            print("  ".join(shown), flush=True)


if __name__ == "__main__":
    main()
