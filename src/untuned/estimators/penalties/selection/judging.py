"""Rows that judge strengths which had no part in choosing them, and what their verdict is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES, bounded
from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.objectives.closed import Closed
from untuned.estimators.penalties.objectives.objective import Models
from untuned.estimators.penalties.standardisation import Standardised

PATIENCE = 5  # steps without a gain
PAID_BACK = 2  # steps in a row whose whole gain in f was chance: one may just have gone too far
ERRORS = 2  # standard ones, of a gain that is more than chance


class Rows(NamedTuple):
    """What strengths are searched with."""

    loss: str
    table: Standardised
    target: np.ndarray
    weight: np.ndarray

    def divided(self) -> Rows:
        """With a table that is not to be divided by its scales later."""
        return self._replace(table=self.table.rows(slice(None)))


class Point(NamedTuple):
    """A point of a run, and its mean loss on rows that had no part in it."""

    x: np.ndarray
    y: np.ndarray
    loss: float
    step: int
    outer: float | None = None  # f there, for each vector; None before the first step


class Watch:
    """The callback of a run: keeps the best point by the judges' mean loss, and notes each x.

    What f gains by chance the judges lose, as much in the mean: rows that choose strengths and rows
    that judge them are drawn alike. So where the judges have lost more since the best point than f
    has gained, nothing of that gain was real, and the run ends if the next step says so too.
    """

    def __init__(
        self, judges: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, y: np.ndarray,
        note: Callable[[np.ndarray], None],
    ):  # fmt: skip
        self.judges, self.note = judges, note
        self.start = self.best = Point(x, y, judges(x, y), 0)
        self.paid_back = 0

    def __call__(self, snapshot: Any) -> bool:
        self.note(snapshot.x)
        loss = self.judges(snapshot.x, snapshot.y)
        outer = snapshot.record["outer"] / len(snapshot.x)
        if self.best.outer is None:
            self.start = self.best = self.start._replace(outer=outer)
        if loss < self.best.loss:
            self.best = Point(snapshot.x, snapshot.y, loss, snapshot.step, outer)
        by_chance = loss - self.best.loss > self.best.outer - outer
        self.paid_back = self.paid_back + 1 if by_chance else 0
        return self.paid_back >= PAID_BACK or snapshot.step - self.best.step >= PATIENCE


class Judges:
    """Rows on which a point of a run is judged, and their weights."""

    def __init__(self, models: Models | Closed, plan: RowRoles, weight: np.ndarray):
        self.models = models
        self.of = np.flatnonzero(plan.judge.any(axis=0))
        self.rows = plan.judge[:, self.of].T
        self.weight = np.broadcast_to(weight, self.rows.shape)[self.rows]
        self.first = self.best = np.zeros(0)  # losses of the first point, and of the best
        self.is_worse = False  # whether the last point is far worse than that

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        """The mean of their losses."""
        z = self.models.seen(x, y)[self.of]
        losses = self.models.judged(z)[self.rows].astype(np.float64)
        if not len(self.first):
            self.first = self.best = losses
        if self.weight @ losses < self.weight @ self.best:
            self.best = losses
        self.is_worse = is_far_worse(losses, self.best, self.weight)
        return float(self.weight @ losses / self.weight.sum())


def judged(rows: Rows, judge: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The loss of each row that judges a model, model by model."""
    loss, of = LOSSES[rows.loss], np.flatnonzero(judge.any(axis=0))
    w, b = w[:, of], b[of]
    z = stacked.outputs(rows.table.X, w, b - np.tensordot(rows.table.shift, w, axes=1))
    losses = loss.value(z, rows.target.T, 1)
    return (bounded(losses) if loss.is_log_loss else losses)[judge[:, of].T].astype(np.float64)


def weights(rows: Rows, judge: np.ndarray) -> np.ndarray:
    """Those of the rows of `judged`."""
    judge = judge[:, judge.any(axis=0)].T
    return np.broadcast_to(rows.weight, judge.shape)[judge]


def is_more_than_chance(gains: np.ndarray, weight: np.ndarray, errors: float = ERRORS) -> bool:
    """Whether gains of rows with these weights add up to more than these standard errors."""
    return bool(weight @ gains > errors * _error(gains, weight))


def is_far_worse(losses: np.ndarray, best: np.ndarray, weight: np.ndarray) -> bool:
    """Whether losses exceed the best ones by more than chance, and than the latter are known to.

    The second is the rule of one standard error. The first alone would see steps that are as
    small as they are sure, such as the first of a run, which say nothing of those to come.
    """
    more = losses - best
    return is_more_than_chance(more, weight) and bool(weight @ more > _error(best, weight))


def _error(values: np.ndarray, weight: np.ndarray) -> float:
    """The standard error of their weighted sum."""
    mean = weight @ values / weight.sum()
    return float((weight @ (values - mean) ** 2) ** 0.5)
