"""`LabelCleaner` against cleanlab: who finds more of the wrong labels, and who is faster.

cleanlab gets the probabilities of cross-validated logistic regressions, as its documentation
proposes, for each of five penalties; what is compared is its best by AUROC, which only someone who
knows the wrong labels can pick. Errors are 1 - AUROC and 1 - F1, so ratios below 1 are ahead.
Seconds are those of one fit at that best penalty and of all five; ours have compilation in them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import StandardScaler

from common import Row, main
from untuned.estimators import LabelCleaner
from untuned.experiments import datasets

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class Noisy(NamedTuple):
    """A set with wrong labels, which ones they are, and trusted rows."""

    X: np.ndarray
    given: np.ndarray
    wrong: np.ndarray
    trusted: tuple[np.ndarray, np.ndarray]


class Found(NamedTuple):
    """How well wrong labels were found."""

    auroc: float
    f1: float
    seconds: float
    cpu: float  # seconds of all threads, which a loaded machine disturbs less

    def __str__(self) -> str:
        spent = f"{self.seconds:.1f} s ({self.cpu:.1f} s CPU)"
        return f"AUROC {self.auroc:.4f}, F1 {self.f1:.3f}, {spent}"


def mnist() -> tuple[np.ndarray, np.ndarray]:
    data = datasets.load("mnist")
    return data["X_train"].reshape(-1, 784), data["y_train"].astype(int)


def covtype() -> tuple[np.ndarray, np.ndarray]:
    data = datasets.load("covtype")
    return data["X"], data["y"].astype(int)


def ijcnn1() -> tuple[np.ndarray, np.ndarray]:
    data = datasets.load("ijcnn1")
    return data["X_train"], data["y_train"].astype(int)


def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X, y


def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return X, y


# Set, rows, trusted rows, share of wrong labels, and whether to the next class or to any other.
CASES: dict[str, tuple[Callable[[], tuple[np.ndarray, np.ndarray]], int, int, float, bool]] = {
    "MNIST, 10 %": (mnist, 20_000, 1_000, 0.1, False),
    "MNIST, 50 %": (mnist, 20_000, 1_000, 0.5, False),
    "digits, 3 %": (digits, 1_600, 160, 0.03, False),
    "digits, 30 %": (digits, 1_600, 160, 0.3, False),
    "digits, 30 % to the next class": (digits, 1_600, 160, 0.3, True),
    "breast cancer, 10 %": (cancer, 500, 50, 0.1, False),
    "Covtype, 10 %": (covtype, 5_000, 500, 0.1, False),
    "ijcnn1, 10 %": (ijcnn1, 5_000, 500, 0.1, False),
}
TARGETS = ("MNIST, 10 %", "MNIST, 50 %")


def make(name: str) -> Noisy:
    """The set of a case; seeds are the same in every run."""
    load, rows, trusted, share, to_next = CASES[name]
    X, y = load()
    classes, y = np.unique(y, return_inverse=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))[: rows + trusted]
    X, y = np.asarray(X[order], np.float32), y[order]
    true = y[trusted:]
    wrong = np.zeros(len(true), bool)
    wrong[rng.permutation(len(true))[: round(share * len(true))]] = True
    shift = 1 if to_next else rng.integers(1, len(classes), len(true))
    given = np.where(wrong, (true + shift) % len(classes), true)
    return Noisy(X[trusted:], given, wrong, (X[:trusted], y[:trusted]))


def cleanlab(data: Noisy) -> list[Found]:
    """What cleanlab finds, for each penalty."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    X = StandardScaler().fit_transform(data.X)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)

    def judge(C: float) -> tuple[np.ndarray, np.ndarray]:
        model = LogisticRegression(C=C, max_iter=1000)
        probabilities = cross_val_predict(model, X, data.given, cv=folds, method="predict_proba")
        issues = find_label_issues(data.given, probabilities, n_jobs=1)  # JAX forbids forks
        return get_label_quality_scores(data.given, probabilities), issues

    return [_found(data, judge, C) for C in PENALTIES]


def ours(data: Noisy, trusted: bool) -> Found:
    """What `LabelCleaner` finds."""

    def judge() -> tuple[np.ndarray, np.ndarray]:
        cleaner = LabelCleaner(random_state=0)
        cleaner.fit(data.X, data.given, *(data.trusted if trusted else ()))
        return cleaner.quality_, np.isin(np.arange(len(data.given)), cleaner.issues_)

    return _found(data, judge)


def _found(data: Noisy, judge: Callable[..., tuple[np.ndarray, np.ndarray]], *args: Any) -> Found:
    start, cpu = time.perf_counter(), time.process_time()
    quality, issues = judge(*args)
    spent = time.perf_counter() - start, time.process_time() - cpu
    return Found(roc_auc_score(~data.wrong, quality), f1_score(data.wrong, issues), *spent)


def measure(quick: bool) -> list[Row]:
    """Ratios of errors and of times; quick leaves MNIST out."""
    rows = []
    for name in CASES:
        if quick and name in TARGETS:
            continue
        data = make(name)
        all_theirs = cleanlab(data)
        theirs = max(all_theirs, key=lambda found: found.auroc)
        search = sum(found.seconds for found in all_theirs)
        search_cpu = sum(found.cpu for found in all_theirs)
        for trusted in (True, False):
            mine = ours(data, trusted)
            label = f"{name}, {len(data.trusted[1]) if trusted else 'no'} trusted rows"
            target = 1.0 if name in TARGETS else None
            third = 1 / 3 if name in TARGETS and trusted else None
            detail = f"{mine} / {theirs} of {search:.1f} s ({search_cpu:.1f} s CPU)"
            rows += [
                Row(
                    f"{label}: 1 - AUROC", target, (1 - mine.auroc) / (1 - theirs.auroc), "", detail
                ),
                Row(f"{label}: 1 - F1", target, (1 - mine.f1) / (1 - theirs.f1)),
                Row(f"{label}: time, of its search", third, mine.seconds / search),
                Row(f"{label}: time, of its one best fit", third, mine.seconds / theirs.seconds),
            ]
            print(rows[-4].name, detail, flush=True, file=sys.stderr)
    return rows


if __name__ == "__main__":
    main(measure)
