"""Who has seen which row: folds, and pairs of folds left out together.

A judge says what it thinks of a row that it has not seen. What judges thought of other rows then
decides what the next judge is taught about them; so that a row's own label does not come back to it
that way, those opinions, too, must be of judges that had not seen it. A judge that has seen neither
fold a nor fold b gives the opinions of a's rows from which the judge of b's rows may learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning.labelled_rows import scarce

FEWEST, MOST = 4, 8
FEW_ROWS = 2000  # below, a fit may take some seconds, and judges miss every row they do not see
# Of all trainings beyond those of the fewest folds, each about as long as so many numbers take to
# pass through plus those it has: on one core a second in all.
WORK, OVERHEAD = 4_000_000, 130_000


@dataclass(frozen=True)
class Task:
    """Rows that are each there once, with the labels they were given and their folds."""

    X: Any  # float32, dense or CSR
    label: np.ndarray
    weight: np.ndarray
    trusted: np.ndarray
    fold: np.ndarray
    folds: int
    classes: int
    seed: int
    order: np.ndarray  # of the rows, in which one says nothing of the next: for samples

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Folds to leave out together; of two folds nothing would be left, so one at a time."""
        return iter([(0, 0), (1, 1)]) if self.folds == 2 else combinations(range(self.folds), 2)


def as_many_as_pay(X: Any, classes: int) -> int:
    """How many folds: of few rows more, as long as the trainings of all pairs of folds are cheap.

    With 8 folds in place of 4 the judges of the first round learn from three quarters of the rows
    in place of half.
    """
    if X.shape[0] >= FEW_ROWS:
        return FEWEST
    each = OVERHEAD + (X.nnz if issparse(X) else X.size) * classes
    found = FEWEST
    while found < MOST and (comb(found + 1, 2) - comb(FEWEST, 2)) * each <= WORK:
        found += 1
    return found


def deal(group: np.ndarray, label: np.ndarray, folds: int, rng: Any) -> np.ndarray:
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


def second_hand(task: Task, judged: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """Opinions of shape (folds, rows, classes), from judges that have seen only given labels.

    `judged(train, rows)` trains on some rows and gives probabilities of others. Entry [b, i] is of
    a judge that has seen neither fold b nor the fold of i; where these are the same, it is the
    mean over all b.
    """
    shape = task.folds, len(task.label), task.classes
    # Half precision is far finer than what a judge knows.
    found = np.zeros(shape, np.float16 if scarce(task.X) else np.float32)
    for a, b in task.pairs():
        left = (task.fold != a) & (task.fold != b)
        rows = np.flatnonzero(~left)
        said = judged(np.flatnonzero(left), rows)
        for mine, other in ((a, b), (b, a)):
            here = task.fold[rows] == mine
            if a == b:
                found[:, rows[here]] = said[here]
            else:
                found[other, rows[here]] = said[here]
    if task.folds > 2:
        at = np.arange(len(task.label))
        found[task.fold, at] = found.sum(axis=0, dtype=np.float32) / (task.folds - 1)
    return found
