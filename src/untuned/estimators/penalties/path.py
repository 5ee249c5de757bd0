"""What a search saw on its way: losses and coefficients along one strength, and strengths found.

Nothing is fitted for it that the search did not need, except where a fit takes no time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ENTERED = 0.1  # of the largest coefficient, where squared penalties leave none at zero


class Path(NamedTuple):
    """Along one strength for all groups, strongest first; and each group's, step by step."""

    strengths: np.ndarray  # (points,)
    loss: np.ndarray  # (points,), mean over the rows held back
    error: np.ndarray  # (points,), the standard error of that mean
    # (points, features), of standardised features, the mean of the folds' models; where a feature
    # has several coefficients, the size of the largest.
    coef: np.ndarray
    found: np.ndarray  # (steps, groups), the strengths after each step

    def in_units(self, unit: float) -> Path:
        """With all strengths this many times as strong."""
        found = (unit * self.found).astype(self.found.dtype)
        return self._replace(strengths=unit * self.strengths, found=found)

    def best(self) -> int:
        """The point with the least loss."""
        return int(np.argmin(self.loss))

    def entered(self) -> np.ndarray:
        """(features,): the strength at which each enters the model, or 0 for never.

        That is where its coefficient is no longer zero. Squared penalties leave no coefficient at
        zero; of theirs, where it is a tenth of the largest that is best.
        """
        size = np.abs(self.coef)
        is_sparse = bool(((size[0] == 0) & size.any(axis=0)).any())
        least = 0.0 if is_sparse else ENTERED * size[self.best()].max()
        inside = size > least
        return np.where(inside.any(axis=0), self.strengths[inside.argmax(axis=0)], 0.0)

    def weakest(self) -> np.ndarray:
        """Groups by the weakest strength that each had in the search."""
        return np.argsort(self.found.min(axis=0), kind="stable")

    def order(self) -> np.ndarray:
        """Features in the order in which they enter; among those alike the largest first."""
        return np.lexsort((-np.abs(self.coef[self.best()]), -self.entered()))


class Trail:
    """Collects what a search sees."""

    def __init__(self) -> None:
        self.points: dict[float, tuple[float, float, np.ndarray]] = {}
        self.found: list[np.ndarray] = []

    def add(
        self, strength: float, losses: np.ndarray, weight: np.ndarray, coef: np.ndarray
    ) -> None:
        """A strength, the losses of rows held back, and coefficients (features, columns)."""
        total = weight.sum()
        mean = weight @ losses / total
        error = (weight @ (losses - mean) ** 2) ** 0.5 / total
        self.note(strength, float(mean), float(error), coef)

    def note(self, strength: float, mean: float, error: float, coef: np.ndarray) -> None:
        """The same, where the mean and its error are known."""
        seen = coef[:, 0] if coef.shape[1] == 1 else np.abs(coef).max(axis=1)
        self.points[float(f"{strength:.2e}")] = mean, error, seen.astype(np.float32)

    def path(self) -> Path:
        """What was collected."""
        strengths = sorted(self.points, reverse=True)
        loss, error, coef = zip(*(self.points[each] for each in strengths), strict=True)
        return Path(
            np.array(strengths), np.array(loss), np.array(error), np.array(coef),
            np.array(self.found, np.float32),
        )  # fmt: skip
