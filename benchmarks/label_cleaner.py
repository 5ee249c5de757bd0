"""`LabelCleaner` against cleanlab with four models: who finds more of the wrong labels, how fast.

    python benchmarks/label_cleaner.py [--tables digits,moons] [--noise 0.05,0.2,0.4]
                                       [--kinds uniform,next] [--rows 3000] [--seed 0]

cleanlab gets the probabilities of 5-fold cross-validated models, each as scikit-learn makes it. Its
best is taken metric by metric, which only someone who knows the wrong labels can do. Ratios of
AUROC, average precision (AP) and F1 are ours to that best, so 1 and more is level or ahead. Seconds
are of the processor; the best model in time is the one with the best average precision. Boosting is
left out where columns are sparse, as it takes dense ones only. cifar100n has the labels that people
gave, so shares and kinds of noise do not apply to it.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from label_tables import CIFAR, CONFIRM, PEOPLE, TABLES, Noisy, by_people, make
from untuned.estimators import LabelCleaner

SHARES, KINDS = "0.05,0.2,0.4", "uniform,next"
FOLDS = 5


class Found(NamedTuple):
    """How well wrong labels were found, and in how many seconds of the processor."""

    auroc: float
    ap: float
    f1: float
    rate: float  # of wrong labels, as estimated
    seconds: float

    def __str__(self) -> str:
        scores = f"AUROC {self.auroc:.4f}  AP {self.ap:.4f}  F1 {self.f1:.3f}"
        return f"{scores}  rate {self.rate:.3f}  {self.seconds:6.1f} s"


def timed(data: Noisy, judge: Callable[[], tuple[np.ndarray, np.ndarray, float]]) -> Found:
    """Scores of what a judge returns: quality of labels, True where it flags one, and a rate."""
    begun = time.process_time()
    quality, flagged, rate = judge()
    seconds = time.process_time() - begun
    return Found(
        float(roc_auc_score(data.wrong, -quality)),
        float(average_precision_score(data.wrong, -quality)),
        float(f1_score(data.wrong, flagged)),
        rate,
        seconds,
    )


def ours(data: Noisy, seed: int) -> tuple[Found, dict[str, float]]:
    """What `LabelCleaner` finds as it comes, and whom it heard."""
    cleaner = LabelCleaner(random_state=seed)

    def judge() -> tuple[np.ndarray, np.ndarray, float]:
        cleaner.fit(data.X, data.given)
        flagged = np.isin(np.arange(len(data.given)), cleaner.issues_)
        return cleaner.quality_, flagged, cleaner.noise_rate_

    found = timed(data, judge)
    return found, cleaner.judges_


def models(seed: int, sparse: bool) -> dict[str, Any]:
    """cleanlab's four, or three where columns are sparse."""
    several = {
        "logistic": LogisticRegression(max_iter=1000),
        "extra trees": ExtraTreesClassifier(random_state=seed),
        "neighbours": KNeighborsClassifier(),
    }
    return several if sparse else several | {
        "boosting": HistGradientBoostingClassifier(random_state=seed)
    }  # fmt: skip


def theirs(data: Noisy, model: Any, seed: int) -> Found:
    """What cleanlab finds with a model."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)

    def judge() -> tuple[np.ndarray, np.ndarray, float]:
        X = data.X if issparse(data.X) else StandardScaler().fit_transform(data.X)
        said = cross_val_predict(model, X, data.given, cv=folds, method="predict_proba")
        issues = find_label_issues(data.given, said, n_jobs=1)  # JAX forbids forks
        return get_label_quality_scores(data.given, said), issues, float(issues.mean())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps run out, classes with few rows
        return timed(data, judge)


def compare(title: str, data: Noisy, seed: int) -> list[str]:
    """Both sides on one table, and the ratios."""
    mine, heard = ours(data, seed)
    others = {
        name: theirs(data, model, seed)
        for name, model in models(seed, issparse(data.X)).items()
    }  # fmt: skip
    found = list(others.values())
    best = [max(each[place] for each in found) for place in range(3)]
    quick = max(found, key=lambda each: each.ap).seconds
    ratios = [one / other for one, other in zip(mine[:3], best, strict=True)]
    rows, columns = data.X.shape
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in heard.items())
    return [
        f"{title}: {rows:,} x {columns:,}, {data.given.max() + 1} classes, "
        f"{data.wrong.mean():.3f} wrong",
        f"  {'ours':<12} {mine}  ({weights})",
        *(f"  {name:<12} {each}" for name, each in others.items()),
        f"  to the best  AUROC {ratios[0]:.4f}  AP {ratios[1]:.4f}  F1 {ratios[2]:.3f}; rate off "
        f"by {mine.rate - data.wrong.mean():+.3f}; time {mine.seconds / quick:.2f} of its best "
        f"model, {mine.seconds / sum(each.seconds for each in found):.2f} of all",
    ]


def cases(name: str, asked: argparse.Namespace) -> Iterator[tuple[str, Noisy]]:
    """A table with each noise that was asked for."""
    watched = "confirms" if name in CONFIRM else "looked at"
    if name == CIFAR:
        yield f"{name}, {PEOPLE} ({watched})", by_people(asked.rows, asked.seed)
        return
    for share in map(float, asked.noise.split(",")):
        for kind in asked.kinds.split(","):
            data = make(name, asked.rows, share, kind == "next", asked.seed)
            if kind == "next" and data.given.max() == 1 and "uniform" in asked.kinds:
                continue  # the same as uniform
            yield f"{name}, {share:.0%} {kind} ({watched})", data


def main() -> int:
    """The command line; 2 if a table is not here."""
    every = [*TABLES, CIFAR]
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default=",".join(every), help=f"of {', '.join(every)}")
    parser.add_argument("--noise", default=SHARES, help="shares of wrong labels")
    parser.add_argument("--kinds", default=KINDS, help="to which class wrong labels go")
    parser.add_argument("--rows", type=int, default=6000, help="at most so many of each table")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for chosen, known in ((asked.tables, every), (asked.kinds, KINDS.split(","))):
        unknown = sorted(set(chosen.split(",")) - set(known))
        if unknown:
            parser.error(f"{unknown[0]!r} is unknown; choose of {', '.join(known)}.")
    missing = 0
    for name in asked.tables.split(","):
        try:
            loaded = list(cases(name, asked))
        except (OSError, ValueError) as error:
            print(f"{name}: left out. {error}", flush=True)
            missing = 2
            continue
        for title, data in loaded:
            print("\n".join(compare(title, data, asked.seed)), flush=True)
    return missing


if __name__ == "__main__":
    sys.exit(main())
