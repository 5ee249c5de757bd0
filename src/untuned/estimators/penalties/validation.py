"""Rows that a search has not seen: what they say about penalties, and when that is chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES, bounded
from untuned.estimators.penalties.standardisation import Standardised

PATIENCE = 5  # steps without a gain
PAID_BACK = 2  # steps in a row whose whole gain in f was chance: one may just have gone too far
ERRORS = 2  # standard ones, of a gain that is more than chance


class Rows(NamedTuple):
    """What penalties are searched with."""

    loss: str
    table: Standardised
    target: np.ndarray
    weight: np.ndarray

    def divided(self) -> Rows:
        """With a table that is not to be divided by its scales later."""
        return self._replace(table=self.table.rows(slice(None)))

    def some(self, which: Any) -> Rows:
        """Some of them."""
        # By columns, as models want targets: they then need no copy of their own.
        target = np.take(self.target.T, which, axis=1).T
        return Rows(self.loss, self.table.rows(which), target, self.weight[which])

    def losses(self, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Of all rows, (models, rows), for coefficients (features, models, columns)."""
        loss = LOSSES[self.loss]
        if self.table.shift.any():
            b = b - np.tensordot(self.table.shift, w, axes=1)
        found = loss.value(stacked.outputs(self.table.X, w, b), self.target.T, 1)
        return (bounded(found) if loss.is_log_loss else found).astype(np.float64)


class Point(NamedTuple):
    """A point of a run, and its mean loss on rows that had no part in it."""

    x: np.ndarray
    losses: np.ndarray
    loss: float
    step: int
    outer: float | None = None  # f there, for each vector; None before the first step


class Watch:
    """The callback of a run: keeps the point with the least loss on rows that f has not seen.

    What f gains by chance those rows lose, as much in the mean, since both are drawn alike. So
    where they have lost more since the best point than f has gained, nothing of that gain was real,
    and the run ends if the next step says so too; or where it is far worse than the best.
    """

    def __init__(
        self, losses: Callable[[np.ndarray], np.ndarray], weight: np.ndarray, x: np.ndarray,
        note: Callable[[np.ndarray], None],
    ):  # fmt: skip
        self.losses, self.weight, self.note = losses, weight, note
        self.start = self.best = self._point(x, 0)
        self.paid_back = 0

    def __call__(self, snapshot: Any) -> bool:
        self.note(snapshot.x)
        outer = snapshot.record["outer"] / len(snapshot.x)
        now = self._point(snapshot.x, snapshot.step)
        if self.best.outer is None:
            self.start = self.best = self.start._replace(outer=outer)
        if now.loss < self.best.loss:
            self.best = now._replace(outer=outer)
        by_chance = now.loss - self.best.loss > self.best.outer - outer
        self.paid_back = self.paid_back + 1 if by_chance else 0
        return (
            self.paid_back >= PAID_BACK
            or now.step - self.best.step >= PATIENCE
            or is_far_worse(now.losses, self.best.losses, self.weight)
        )

    def gains(self) -> np.ndarray:
        """Of each row, from the start to the best point."""
        return self.start.losses - self.best.losses

    def _point(self, x: np.ndarray, step: int) -> Point:
        losses = self.losses(x)
        return Point(x.copy(), losses, float(self.weight @ losses / self.weight.sum()), step)


def weights(weight: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Those of the rows of `held` (rows, models), model by model."""
    return np.broadcast_to(weight, held.T.shape)[held.T]


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
