"""One strength of many coefficients, in strides of half a decade: each costs a fit of every fold.

A step of `minimize` would cost several, with the models of all folds at once. Here folds are gone
through one after another, on their own rows alone, and of each only the coefficients are kept from
one strength to the next. The bottom is that of a parabola through three losses; where a fit is
cheap there is a look at it, and a second parabola, as the curve is steeper towards weak strengths.
Models of one output and few rows are solved on their kernel (kernel_newton.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.objectives import kernel_newton, scaling
from untuned.estimators.penalties.objectives.kernel_newton import KernelNewton
from untuned.estimators.penalties.path import Trail
from untuned.estimators.penalties.selection.fitting import (
    SETTLED,
    Scales,
    alike,
    from_nothing,
    make,
    nothing,
    solved,
)
from untuned.estimators.penalties.selection.judging import Rows, judged
from untuned.estimators.penalties.selection.outcome import Limit
from untuned.estimators.penalties.strengths import Bend
from untuned.util import watch

STRIDE = 0.5 * np.log(10)
SHARE = 0.01  # of the error that a stride causes, that is left
FIRST_PER_ROW = 0.1  # strength for each row, at least 10: hardly more than intercepts


class Bottom(NamedTuple):
    """Where the loss along strengths is least."""

    logarithm: float
    losses: list[float]  # of each stride
    passes: int  # through the rows, of each model


class Walk:
    """The models of all folds at the strength that was looked at last."""

    def __init__(
        self, rows: Rows, plan: RowRoles, scales: Scales, limit: Limit, trail: Trail,
        first: float,
    ):  # fmt: skip
        self.rows, self.limit, self.trail = rows, limit, trail
        shape = rows.table.X.shape[1], rows.target.shape[1]
        self.by_kernel = kernel_newton.applies(rows.loss, rows.table.X, 1, shape[1])
        self.scales = scaling.none(*shape) if self.by_kernel else scales()
        self.folds = [
            (np.flatnonzero(train), np.flatnonzero(valid))
            for train, valid in zip(plan.train.T, plan.valid.T, strict=True)
        ]
        self.weight = np.concatenate([rows.weight[valid] for _, valid in self.folds])
        self.near: list[Any] = [None] * len(self.folds)  # inner variables
        self.bend, self.passes = Bend.of_rows(rows.weight), 0
        self.first, self.share = first, SETTLED if from_nothing(rows) else SHARE
        self.losses: dict[float, float] = {}

    @property
    def is_cheap(self) -> bool:
        """Whether a fit is."""
        return self.by_kernel or len(self.scales.basis) > 0

    def logarithm(self, place: float) -> float:
        """Of the strength so many strides away."""
        return self.first + STRIDE * place

    def look(self, place: float) -> float:
        """The mean loss of the rows held back there, which is noted."""
        losses, sizes = [], np.zeros(())
        for k, (train, valid) in enumerate(self.folds):
            w, b = self._model(k, train, self.logarithm(place))
            seen = w[:, 0] if w.shape[2] == 1 else np.abs(w).max(axis=2)
            sizes = sizes + seen / len(self.folds)
            every = np.ones((len(valid), 1), bool)
            losses.append(judged(_some(self.rows, valid), every, w, b))
            del w, seen  # there may be very many coefficients
        self.trail.add(
            float(np.exp(self.logarithm(place))), np.concatenate(losses), self.weight, sizes
        )
        self.losses[place] = float(self.weight @ np.concatenate(losses) / self.weight.sum())
        return self.losses[place]

    def bottom(self) -> Bottom:
        """By the losses seen."""
        return Bottom(self.logarithm(self._lowest()), list(self.losses.values()), self.passes)

    def closer(self) -> None:
        """Look at the bottom, if there is a parabola to find it by."""
        place = self._lowest()
        if place not in self.losses:
            self.look(place)

    def _lowest(self) -> float:
        """The bottom of the parabola through the best place and those beside it."""
        best = min(self.losses, key=lambda each: self.losses[each])
        left = max((each for each in self.losses if each < best), default=None)
        right = min((each for each in self.losses if each > best), default=None)
        if left is None or right is None:
            return best
        slopes = [(self.losses[best] - self.losses[each]) / (best - each) for each in (left, right)]
        # The slope is zero between the middles of both sides, where it is known.
        middles = 0.5 * (left + best), 0.5 * (best + right)
        share = slopes[0] / min(slopes[0] - slopes[1], -1e-300)
        return float(middles[0] + share * (middles[1] - middles[0]))

    def models(self) -> tuple[np.ndarray, np.ndarray]:
        """The mean of the models looked at last, (features, columns), and of their intercepts."""
        last = self.logarithm(list(self.losses)[-1])
        found: list[Any] = []
        for k, (train, _) in enumerate(self.folds):
            models, x = self._at(train, last)
            w, b = models.model(x, self.near[k])
            self.near[k] = None  # there may be very many coefficients
            found = [w[:, 0], b[0]] if not found else [found[0] + w[:, 0], found[1] + b[0]]
        coef, intercept = (each / len(self.folds) for each in found)
        return coef, intercept

    def _model(self, k: int, train: np.ndarray, logarithm: float) -> tuple:
        """Coefficients (features, 1, columns) and intercepts of one fold."""
        models, x = self._at(train, logarithm)
        if self.by_kernel:
            alone = models.strengths(x).s
            w, b, _ = KernelNewton(models).fit(np.repeat(alone, models.table.X.shape[1], axis=0))
            self.near[k] = models.inner_variable(x, w, b)
            return w, b
        start, self.near[k] = [self.near[k]], None
        if start[0] is None:
            shape = self.rows.table.X.shape[1], self.rows.target.shape[1]
            start = [alike(models, x, *nothing(*shape))]
        with watch.over(self.limit.is_over):
            self.near[k] = solved(models, x, start, self.share)
        self.passes += models.passes
        return models.model(x, self.near[k])

    def _at(self, train: np.ndarray, logarithm: float) -> tuple:
        """The model of these rows, and x."""
        part, every = _some(self.rows, train), np.ones((len(train), 1), bool)
        plan = RowRoles(every, every, every, np.ones((1, 1)), np.zeros(1, int))
        shape = part.table.X.shape[1], part.target.shape[1]
        models = make(part, plan, np.broadcast_to(np.int32(0), shape), self.scales, 0.0, 0.0)
        x = np.array([[models.shares.bend.inverse(logarithm), 0]], part.table.X.dtype)
        return models, x


def descend(
    rows: Rows, plan: RowRoles, scales: Scales, limit: Limit, trail: Trail,
    near: float | None = None,
) -> Walk:  # fmt: skip
    """From a strong strength to weaker ones as long as the loss falls; if it does not fall at once,
    to stronger ones. Where the best is known to be `near`, from one stride above.

    To come from stronger ones takes the fewest steps: coefficients only have to grow.
    """
    begin = float(np.log(max(10.0, FIRST_PER_ROW * rows.weight.sum())))
    walk = Walk(rows, plan, scales, limit, trail, begin if near is None else near + STRIDE)
    low, high = walk.bend.limits
    first = walk.look(0)
    for side in (-1, 1):
        place, before = 0, first
        while low < walk.logarithm(place + side) < high and not limit.is_over():
            place += side
            loss = walk.look(place)
            if loss > before:
                break
            before = loss
        if place < -1 or limit.is_over():
            break
    if walk.is_cheap and not limit.is_over():
        walk.closer()
    return walk


def _some(rows: Rows, which: np.ndarray) -> Rows:
    # By columns, as models want targets: they then need no copy of their own.
    target = np.take(rows.target.T, which, axis=1).T
    return Rows(rows.loss, rows.table.rows(which), target, rows.weight[which])
