"""Out-of-fold probabilities: folds, and pairs of folds left out together.

A base model predicts rows that it has not seen. What models predicted of other rows then decides
what the second round learns from them. So that a row's own label does not come back to it that
way, those predictions, too, must be of models that had not seen it: a model trained without the
folds a and b gives the probabilities of a's rows from which the model of b's rows may learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning.labelled_rows import scarce

if TYPE_CHECKING:
    from untuned.run.result import Result

FEWEST, MOST = 4, 8
FEW_ROWS = 2000  # below, a fit may take some seconds, and models miss every row they do not see
# Of all trainings beyond those of the fewest folds, each about as long as so many numbers take to
# pass through plus those it has: on one core a second in all.
WORK, OVERHEAD = 4_000_000, 130_000


class TimeIsUpError(Exception):
    """A model is left unfinished, as the limit of time is reached."""


class Settings(NamedTuple):
    """How searches are made, and until when."""

    method: Any = "auto"
    max_steps: int = 4
    progress: bool = False
    began: float = 0.0  # on the clock `time.monotonic`
    seconds: float = np.inf

    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() > self.ends

    @property
    def ends(self) -> float:
        """When time is up, on the same clock."""
        return self.began + self.seconds

    def within(self, share: float) -> Settings:
        """The same in a share of the time."""
        return self._replace(seconds=share * self.seconds)

    def minimize(self, *args: Any, **more: Any) -> Result:
        """`untuned.minimize` by the method the user named, in what time is left."""
        from untuned.run import minimize

        left = None if self.ends == np.inf else max(self.ends - time.monotonic(), 1e-3)
        named: dict[str, Any] = {
            "method": self.method, "max_steps": self.max_steps, "progress": self.progress,
        }  # fmt: skip
        return minimize(*args, max_seconds=left, **(named | more))


@dataclass(frozen=True)
class Task:
    """Distinct rows with the labels they were given and their folds."""

    X: Any  # float32, dense or CSR
    label: np.ndarray
    weight: np.ndarray
    trusted: np.ndarray
    fold: np.ndarray
    folds: int
    classes: int
    seed: int
    order: np.ndarray  # of the rows, independent of their content: for samples
    settings: Settings

    def without_limit(self) -> Task:
        """The same with time for all."""
        return replace(self, settings=self.settings._replace(seconds=np.inf))

    def check_time(self) -> None:
        """Raise TimeIsUpError if it is."""
        if self.settings.is_over():
            raise TimeIsUpError

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Folds to leave out together; of two folds nothing would be left, so one at a time."""
        return iter([(0, 0), (1, 1)]) if self.folds == 2 else combinations(range(self.folds), 2)


def default_folds(X: Any, classes: int) -> int:
    """How many folds: of few rows more, as long as the trainings of all pairs of folds are cheap.

    With 8 folds in place of 4 the models of the first round learn from three quarters of the rows
    in place of half.
    """
    if X.shape[0] >= FEW_ROWS:
        return FEWEST
    each = OVERHEAD + (X.nnz if issparse(X) else X.size) * classes
    found = FEWEST
    while found < MOST and (comb(found + 1, 2) - comb(FEWEST, 2)) * each <= WORK:
        found += 1
    return found


def stratified(group: np.ndarray, label: np.ndarray, folds: int, rng: Any) -> np.ndarray:
    """A fold for each row, classes spread evenly, equal features in the same fold."""
    groups, first = np.unique(group, return_index=True)
    order = rng.permutation(len(groups))
    order = order[np.argsort(label[first][order], kind="stable")]
    fold_of_group = np.empty(len(groups), int)
    fold_of_group[order] = np.arange(len(groups)) % folds
    return fold_of_group[np.searchsorted(groups, group)]


def coarser(task: Task, most: int) -> Task:
    """The same task with whole groups of folds for folds, so that fewer pairs are trained."""
    return replace(task, fold=task.fold % most, folds=most) if task.folds > most else task


def out_of_fold(
    task: Task, predicted: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:  # fmt: skip
    """Probabilities (folds, rows, classes) of models that have learned given labels.

    `predicted(train, rows)` trains on some rows and gives probabilities of others. Entry [b, i] is
    of a model that has seen neither fold b nor the fold of i; where these are the same, it is the
    mean over all b.
    """
    shape = task.folds, len(task.label), task.classes
    # Half precision is far finer than what a model knows.
    found = np.zeros(shape, np.float16 if scarce(task.X) else np.float32)
    for a, b in task.pairs():
        task.check_time()
        seen = (task.fold != a) & (task.fold != b)
        rows = np.flatnonzero(~seen)
        probabilities = predicted(np.flatnonzero(seen), rows)
        for own, other in ((a, b), (b, a)):
            here = task.fold[rows] == own
            if a == b:
                found[:, rows[here]] = probabilities[here]
            else:
                found[other, rows[here]] = probabilities[here]
    if task.folds > 2:
        at = np.arange(len(task.label))
        found[task.fold, at] = found.sum(axis=0, dtype=np.float32) / (task.folds - 1)
    return found
