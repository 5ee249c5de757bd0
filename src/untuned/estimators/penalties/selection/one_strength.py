"""One strength for all groups by `minimize`: what is seen along it, and on either side."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.objectives.objective import Models
from untuned.estimators.penalties.path import Trail
from untuned.estimators.penalties.selection.fitting import solved
from untuned.estimators.penalties.selection.judging import is_far_worse

AROUND = np.r_[0.5:3.1:0.5]  # decades on either side of the best strength, for the path
HONEST = 1e-3  # share of the error that is left in models that are compared
SHOWN = 0.01  # the same, of models that are only looked at
ASIDE = 0.5  # of the search's own work, that models for the picture may take at most


class Seen:
    """The callback of the run for one strength: notes what is seen at each step."""

    def __init__(self, models: Models, plan: RowRoles, weight: np.ndarray, trail: Trail):
        self.models, self.trail, self.rows = models, trail, plan.valid.T
        self.weight = np.broadcast_to(weight, self.rows.shape)[self.rows]

    def __call__(self, snapshot: Any) -> None:
        self._losses(snapshot.x, snapshot.y)
        groups = np.full(snapshot.x.shape[1] - 1, self._strength(snapshot.x))
        self.trail.found.append(groups)

    def around(self, x: np.ndarray, y: np.ndarray) -> None:
        """Look on either side of x, towards weak strengths until the loss is far worse.

        There models are the hardest to solve for, and those beyond are worse still.
        """
        bend, best = self.models.shares.bend, self._losses(x, y)
        most = (1 + ASIDE) * self.models.passes
        for side in (1, -1):
            near = y
            for decades in side * AROUND:
                logarithm = bend(x[0, 0])[0] + decades * np.log(10)
                if self.models.passes > most:
                    return
                if bend.limits[0] < logarithm < bend.limits[1]:
                    there = x.copy()
                    there[0, 0] = bend.inverse(logarithm)
                    near = solved(self.models, there, [near], SHOWN)
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
