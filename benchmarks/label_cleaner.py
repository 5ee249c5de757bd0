"""`LabelCleaner` against cleanlab with four models: who finds more of the wrong labels, how fast.

    python benchmarks/label_cleaner.py [--tables digits,moons] [--noise 0.05,0.2,0.4]
                                       [--kinds uniform,next] [--rows 3000] [--seed 0]
                                       [--records labels.jsonl]

cleanlab gets the probabilities of 5-fold cross-validated models, each as scikit-learn makes it. Its
best is taken metric by metric, which only someone who knows the wrong labels can do. Differences of
AUROC, average precision (AP) and F1 are ours less that best, so 0 and more is level or ahead.
As the best of four is a maximum over chance too, each difference has its standard error
(label_scores.py), and ours is also held against each of the four models alone, the same one on all
tables. Seconds are of the processor; the best model in time is the one with the best average
precision.
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
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from label_scores import METRICS, Found, Judged, found, standard_errors, timed
from label_tables import CIFAR, CONFIRM, PEOPLE, TABLES, Noisy, by_people, make
from untuned.estimators import LabelCleaner

SHARES, KINDS = "0.05,0.2,0.4", "uniform,next"
FOLDS = 5
LEVEL = 5e-4  # a difference of less is none
MOST_FOR_BOOSTING = 5000  # columns times classes
SMALL = 2000  # rows; below, three seconds are allowed


def ours(data: Noisy, seed: int) -> tuple[Judged, dict[str, float]]:
    """What `LabelCleaner` finds as it comes, and whom it heard."""
    cleaner = LabelCleaner(random_state=seed)

    def judge() -> tuple[np.ndarray, np.ndarray, float]:
        cleaner.fit(data.X, data.given)
        flagged = np.isin(np.arange(len(data.given)), cleaner.issues_)
        return cleaner.quality_, flagged, cleaner.noise_rate_

    return timed(judge), cleaner.judges_


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


def theirs(data: Noisy, model: Any, seed: int) -> Judged:
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
        return timed(judge)


class Apart(NamedTuple):
    """A difference, ours less theirs, and its standard error."""

    gain: float
    error: float

    def __str__(self) -> str:
        return f"{self.gain:+.4f} +- {self.error:.4f}"

    def behind(self, errors: float) -> bool:
        """Whether ours is behind by more than so many standard errors."""
        return self.gain <= -LEVEL and self.gain < -errors * self.error


class Case(NamedTuple):
    """Both sides on one table."""

    title: str
    shape: tuple[int, int, int]  # rows, columns, classes
    wrong: float  # share of wrong labels
    heard: dict[str, float]
    ours: Found
    theirs: dict[str, Found]
    errors: dict[str, list[float]]  # standard errors of ours less each of theirs

    def less(self, name: str, metric: int) -> Apart:
        """Ours less one model's."""
        return Apart(self.ours[metric] - self.theirs[name][metric], self.errors[name][metric])

    @property
    def less_best(self) -> list[Apart]:
        """Ours less cleanlab's best AUROC, average precision and F1, each of any model."""
        best = [max(self.theirs, key=lambda name: self.theirs[name][at]) for at in range(3)]
        return [self.less(name, at) for at, name in enumerate(best)]

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
        times = self.times
        differences = "  ".join(map("{} {}".format, METRICS, self.less_best))
        return [
            f"{self.title}: {rows:,} x {columns:,}, {classes} classes, {self.wrong:.3f} wrong",
            f"  {'ours':<12} {self.ours}  ({weights})",
            *(f"  {name:<12} {each}" for name, each in self.theirs.items()),
            f"  less the best  {differences}; rate off by {self.rate_error:+.3f}; time "
            f"{times[0]:.2f} of its best model, {times[1]:.2f} of all",
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
    kept = {}
    for line in records.read_text().splitlines():
        fields = json.loads(line)
        fields["ours"] = Found(*fields["ours"])
        fields["theirs"] = {name: Found(*each) for name, each in fields["theirs"].items()}
        kept[fields["title"]] = Case(**fields)
    return kept


def compare(title: str, data: Noisy, seed: int) -> Case:
    """Both sides on one table."""
    mine, heard = ours(data, seed)
    others = {name: theirs(data, model, seed) for name, model in models(data, seed).items()}
    errors = {name: standard_errors(data.wrong, mine, each) for name, each in others.items()}
    scores = {name: found(data.wrong, each) for name, each in others.items()}
    shape = *data.X.shape, int(data.given.max()) + 1
    heard = {name: round(weight, 3) for name, weight in heard.items()}
    wrong = float(data.wrong.mean())
    return Case(title, shape, wrong, heard, found(data.wrong, mine), scores, errors)


def summary(kept: list[Case]) -> list[str]:
    """In how many cases each target is met."""
    off = np.abs([case.rate_error for case in kept])
    times = np.array([case.times for case in kept])
    small = [case.ours.seconds for case in kept if case.shape[0] < SMALL]
    every = {name: None for case in kept for name in case.theirs}  # in their order
    return [
        f"{len(kept)} cases, {len({case.title.split(',')[0] for case in kept})} tables; ours less "
        f"the best of four models, level within {LEVEL}, s.e. standard errors:",
        *(_against([case.less_best[at] for case in kept], at) for at in range(3)),
        *(
            line
            for name in every
            for line in (
                f"less {name} alone:",
                *(
                    _against([case.less(name, at) for case in kept if name in case.theirs], at)
                    for at in range(3)
                ),
            )
        ),
        "in all:",
        f"  rate   within 0.03 in {(off <= 0.03).sum()}, mean {off.mean():.4f}, worst "
        f"{off.max():.4f}",
        f"  time   {np.median(times[:, 0]):.2f} of its best model (median), at most 1.5 in "
        f"{(times[:, 0] <= 1.5).sum()}; {np.median(times[:, 1]):.2f} of all four, at most 0.5 in "
        f"{(times[:, 1] <= 0.5).sum()}",
        *([f"  below {SMALL:,} rows {max(small):.1f} s at most"] if small else []),
    ]


def _against(apart: list[Apart], metric: int) -> str:
    gains = [each.gain for each in apart]
    ahead = len(apart) - sum(each.behind(0) for each in apart)
    return (
        f"  {METRICS[metric]:<6} level or ahead in {ahead} of {len(apart)}, behind by more than 1 "
        f"s.e. in {sum(each.behind(1) for each in apart)}, 2 s.e. in "
        f"{sum(each.behind(2) for each in apart)}; mean {np.mean(gains):+.4f}, worst "
        f"{min(gains):+.4f}"
    )


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
