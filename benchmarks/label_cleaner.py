"""`LabelCleaner` against cleanlab with four models: who finds more of the wrong labels, how fast.

    python benchmarks/label_cleaner.py [--tables digits,moons] [--noise 0.05,0.2,0.4]
                                       [--kinds uniform,next] [--rows 3000] [--seed 0]
                                       [--records labels.jsonl]

cleanlab gets the probabilities of 5-fold cross-validated models, each as scikit-learn makes it. Its
best is taken metric by metric, which only someone who knows the wrong labels can do. Differences of
AUROC, average precision (AP) and F1 are ours less that best, so 0 and more is level or ahead.
Seconds are of the processor; the best model in time is the one with the best average precision.
Boosting is left out where columns are sparse, as it takes dense ones only, and on images, where it
takes minutes. cifar100n has the labels that people gave, so shares and kinds of noise do not apply
to it.

With `--records` every case is kept, and a run that was ended goes on where it was. A summary over
all cases kept comes last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
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
LEVEL = 5e-4  # a difference of less is none
MOST_FOR_BOOSTING = 5000  # columns times classes
SMALL = 2000  # rows; below, three seconds are allowed


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


def models(data: Noisy, seed: int) -> dict[str, Any]:
    """cleanlab's four, or three where columns are sparse or very many."""
    several = {
        "logistic": LogisticRegression(max_iter=1000),
        "extra trees": ExtraTreesClassifier(random_state=seed),
        "neighbours": KNeighborsClassifier(),
    }
    dear = issparse(data.X) or data.X.shape[1] * (data.given.max() + 1) > MOST_FOR_BOOSTING
    return several if dear else several | {
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


class Case(NamedTuple):
    """Both sides on one table."""

    title: str
    shape: tuple[int, int, int]  # rows, columns, classes
    wrong: float  # share of wrong labels
    heard: dict[str, float]
    ours: Found
    theirs: dict[str, Found]

    @property
    def best(self) -> list[float]:
        """cleanlab's best AUROC, average precision and F1, each of any model."""
        return [max(each[place] for each in self.theirs.values()) for place in range(3)]

    @property
    def gains(self) -> list[float]:
        """Ours less that best."""
        return [one - other for one, other in zip(self.ours[:3], self.best, strict=True)]

    @property
    def rate_error(self) -> float:
        """How far the estimated share of wrong labels is off."""
        return self.ours.rate - self.wrong

    @property
    def times(self) -> tuple[float, float]:
        """Our time in those of the model with the best average precision, and of all models."""
        every = list(self.theirs.values())
        best = max(every, key=lambda each: each.ap)
        return self.ours.seconds / best.seconds, self.ours.seconds / sum(e.seconds for e in every)

    def lines(self) -> list[str]:
        """For people."""
        rows, columns, classes = self.shape
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in self.heard.items())
        gains, times = self.gains, self.times
        return [
            f"{self.title}: {rows:,} x {columns:,}, {classes} classes, {self.wrong:.3f} wrong",
            f"  {'ours':<12} {self.ours}  ({weights})",
            *(f"  {name:<12} {each}" for name, each in self.theirs.items()),
            f"  less the best  AUROC {gains[0]:+.4f}  AP {gains[1]:+.4f}  F1 {gains[2]:+.3f}; rate "
            f"off by {self.rate_error:+.3f}; time {times[0]:.2f} of its best model, {times[1]:.2f} "
            "of all",
        ]

    def as_json(self) -> str:
        """For `read`."""
        fields = self._asdict() | {"ours": list(self.ours)}
        fields["theirs"] = {name: list(each) for name, each in self.theirs.items()}
        return json.dumps(fields)


def read(records: Path | None) -> dict[str, Case]:
    """The cases that were kept, by title."""
    if records is None or not records.exists():
        return {}
    found = {}
    for line in records.read_text().splitlines():
        fields = json.loads(line)
        fields["ours"] = Found(*fields["ours"])
        fields["theirs"] = {name: Found(*each) for name, each in fields["theirs"].items()}
        found[fields["title"]] = Case(**fields)
    return found


def compare(title: str, data: Noisy, seed: int) -> Case:
    """Both sides on one table."""
    mine, heard = ours(data, seed)
    others = {
        name: theirs(data, model, seed)
        for name, model in models(data, seed).items()
    }  # fmt: skip
    shape = *data.X.shape, int(data.given.max()) + 1
    heard = {name: round(weight, 3) for name, weight in heard.items()}
    return Case(title, shape, float(data.wrong.mean()), heard, mine, others)


def summary(kept: list[Case]) -> list[str]:
    """In how many cases each target is met."""
    count = len(kept)
    gains = np.array([case.gains for case in kept])
    off = np.abs([case.rate_error for case in kept])
    times = np.array([case.times for case in kept])
    named = zip(("AUROC", "AP", "F1"), gains.T, strict=True)
    small = [case.ours.seconds for case in kept if case.shape[0] < SMALL]
    return [
        f"{count} cases, {len({case.title.split(',')[0] for case in kept})} tables; ours less the "
        f"best of four models, level within {LEVEL}:",
        *(
            f"  {name:<6} level or ahead in {(gain > -LEVEL).sum()}, mean {gain.mean():+.4f}, "
            f"worst {gain.min():+.4f}"
            for name, gain in named
        ),
        f"  rate   within 0.03 in {(off <= 0.03).sum()}, mean {off.mean():.4f}, worst "
        f"{off.max():.4f}",
        f"  time   {np.median(times[:, 0]):.2f} of its best model (median), at most 1.5 in "
        f"{(times[:, 0] <= 1.5).sum()}; {np.median(times[:, 1]):.2f} of all four, at most 0.5 in "
        f"{(times[:, 1] <= 0.5).sum()}",
        *([f"  below {SMALL:,} rows {max(small):.1f} s at most"] if small else []),
    ]


def cases(
    name: str, asked: argparse.Namespace, known: dict[str, Case]
) -> Iterator[tuple[str, Noisy]]:
    """A table with each noise that was asked for, but for the cases that are known."""
    watched = "confirms" if name in CONFIRM else "looked at"
    size = f"{asked.rows} rows at most, seed {asked.seed}"
    if name == CIFAR:
        title = f"{name}, {PEOPLE} ({watched}; {size})"
        if title not in known:
            yield title, by_people(asked.rows, asked.seed)
        return
    for share in map(float, asked.noise.split(",")):
        for kind in asked.kinds.split(","):
            title = f"{name}, {share:.0%} {kind} ({watched}; {size})"
            if title in known:
                continue
            data = make(name, asked.rows, share, kind == "next", asked.seed)
            if kind == "next" and data.given.max() == 1 and "uniform" in asked.kinds:
                continue  # the same as uniform
            yield title, data


def main() -> int:
    """The command line; 2 if a table is not here."""
    every = [*TABLES, CIFAR]
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default=",".join(every), help=f"of {', '.join(every)}")
    parser.add_argument("--noise", default=SHARES, help="shares of wrong labels")
    parser.add_argument("--kinds", default=KINDS, help="to which class wrong labels go")
    parser.add_argument("--rows", type=int, default=6000, help="at most so many of each table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=Path, help="a file of cases, to go on from and add to")
    asked = parser.parse_args()
    for chosen, known in ((asked.tables, every), (asked.kinds, KINDS.split(","))):
        unknown = sorted(set(chosen.split(",")) - set(known))
        if unknown:
            parser.error(f"{unknown[0]!r} is unknown; choose of {', '.join(known)}.")
    missing, kept = 0, read(asked.records)
    for name in asked.tables.split(","):
        try:
            loaded = list(cases(name, asked, kept))
        except (OSError, ValueError) as error:
            print(f"{name}: left out. {error}", flush=True)
            missing = 2
            continue
        for title, data in loaded:
            case = kept[title] = compare(title, data, asked.seed)
            print("\n".join(case.lines()), flush=True)
            if asked.records:
                with asked.records.open("a") as file:
                    print(case.as_json(), file=file)
    if kept:
        print("\n".join(summary(list(kept.values()))))
    return missing


if __name__ == "__main__":
    sys.exit(main())
