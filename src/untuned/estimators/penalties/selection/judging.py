"""Rows that judge strengths which had no part in choosing them, and what their verdict is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES, bounded
from untuned.estimators.penalties.standardisation import Standardised

PATIENCE = 5
ERRORS = 2  # standard ones, of a gain that is more than chance


class Rows(NamedTuple):
    """What strengths are searched with."""

    loss: str
    table: Standardised
    target: np.ndarray
    weight: np.ndarray


class Point(NamedTuple):
    """A point of a run, and its mean loss on rows that had no part in it."""

    x: np.ndarray
    y: np.ndarray
    loss: float
    step: int


class Watch:
    """The callback of a run: keeps the best point by the judges' loss, and notes each x."""

    def __init__(
        self, judges: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, y: np.ndarray,
        note: Callable[[np.ndarray], None],
    ):  # fmt: skip
        self.judges, self.note = judges, note
        self.start = self.best = Point(x, y, judges(x, y), 0)

    def __call__(self, snapshot: Any) -> bool:
        self.look(snapshot.x, snapshot.y, snapshot.step)
        self.note(snapshot.x)
        return snapshot.step - self.best.step >= PATIENCE

    def look(self, x: np.ndarray, y: np.ndarray, step: int) -> None:
        """Keep this point if it is better."""
        loss = self.judges(x, y)
        if loss < self.best.loss:
            self.best = Point(x, y, loss, step)


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
    gain = weight @ gains
    error = (weight @ (gains - gain / weight.sum()) ** 2) ** 0.5
    return bool(gain > errors * error)
