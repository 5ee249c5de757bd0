"""One strength for all groups: what is seen along it, and how far to go."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.objectives.objective import Models
from untuned.estimators.penalties.path import Trail
from untuned.estimators.penalties.selection.fitting import solved
from untuned.estimators.penalties.selection.judging import is_far_worse

STRIDE = 0.5 * np.log(10)  # of one strength, where each costs a fit
STRIDE_SHARE = 0.01  # of the error that a stride causes, that is left
AROUND = np.r_[0.5:3.1:0.5]  # decades on either side of the best strength, for the path
HONEST = 1e-3  # share of the error that is left in models that are compared


class Seen:
    """The callback of the run for one strength: notes what is seen at each step."""

    def __init__(self, models: Models, plan: RowRoles, weight: np.ndarray, trail: Trail):
        self.models, self.trail, self.rows = models, trail, plan.valid.T
        self.weight = np.broadcast_to(weight, self.rows.shape)[self.rows]

    def __call__(self, snapshot: Any) -> None:
        self.look(snapshot.x, snapshot.y)
        groups = np.full(snapshot.x.shape[1] - 1, self._strength(snapshot.x))
        self.trail.found.append(groups)

    def look(self, x: np.ndarray, y: np.ndarray) -> float:
        """Note the losses of the rows held back, and the mean of the models; their mean loss."""
        return float(self.weight @ self._losses(x, y) / self.weight.sum())

    def descended(
        self, x: np.ndarray, y: np.ndarray, seconds: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The bottom of the loss along strengths, and models near it.

        Of very many features a step of `minimize` costs several fits, and one of these one: half a
        decade at a time as long as the loss falls, then to the bottom of the last parabola.
        """
        bend, losses = self.models.shares.bend, {}
        before, began = y, time.monotonic()

        def at(place: int, near: np.ndarray) -> np.ndarray:
            nonlocal before
            there = x.copy()
            there[0, 0] = bend.inverse(bend(x[0, 0])[0] + STRIDE * place)
            solution = solved(self.models, there, near, STRIDE_SHARE)
            losses[place] = self.look(there, solution)
            if losses[place] == min(losses.values()):
                before = near
            return solution

        late = lambda: seconds is not None and time.monotonic() - began > seconds
        start = at(0, y)
        for side in (-1, 1):  # weaker, and stronger only if that was worse at once
            near, place = start, 0
            while bend.limits[0] < bend(x[0, 0])[0] + STRIDE * (place + side) < bend.limits[1]:
                place += side
                near = at(place, near)
                if losses[place] > losses[place - side] or late():
                    break
            if place < -1 or late():
                break
        best = min(losses, key=lambda each: losses[each])
        shift = 0.0
        if best - 1 in losses and best + 1 in losses:
            left, middle, right = (losses[best + d] for d in (-1, 0, 1))
            shift = 0.5 * (left - right) / max(left - 2 * middle + right, 1e-300)
        x = x.copy()
        x[0, 0] = bend.inverse(bend(x[0, 0])[0] + STRIDE * (best + shift))
        # The models one stride away: `minimize` is exact to a share of what is left to solve.
        return x, before

    def around(self, x: np.ndarray, y: np.ndarray) -> None:
        """Look on either side of x, towards weak strengths until the loss is far worse.

        There models are the hardest to solve for, and those beyond are worse still.
        """
        bend, best = self.models.shares.bend, self._losses(x, y)
        for side in (1, -1):
            near = y
            for decades in side * AROUND:
                logarithm = bend(x[0, 0])[0] + decades * np.log(10)
                if bend.limits[0] < logarithm < bend.limits[1]:
                    there = x.copy()
                    there[0, 0] = bend.inverse(logarithm)
                    near = solved(self.models, there, near, HONEST)
                    losses = self._losses(there, near)
                    if side < 0 and is_far_worse(losses, best, self.weight):
                        break

    def _losses(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the rows held back; noted, with the mean of the models."""
        at = self.models.at(x, y)
        losses = self.models.judged(at.z)[self.rows].astype(np.float64)
        self.trail.add(self._strength(x), losses, self.weight, at.w.mean(axis=1))
        return losses

    def _strength(self, x: np.ndarray) -> float:
        return float(np.exp(self.models.shares.bend(x[0, 0])[0]))
