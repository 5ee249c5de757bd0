"""The memory: an equal share for every task so far, the most important rows first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from untuned.util.wording import brief


class Part(NamedTuple):
    """Rows of one task, in order, and how much each counts; weights have a mean of one."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def of(self, rows: np.ndarray, weights: np.ndarray) -> Part:
        """Some of the rows, with weights of any size."""
        return Part(self.X[rows], self.y[rows], weights / weights.mean())


Choose = Callable[[int, Part, int], tuple[np.ndarray, np.ndarray]]  # -> rows and their weights


class ReplayMemory:
    """At most `size` rows of all tasks together, `size // tasks` of each.

    A memory that shrinks keeps a prefix of its order, or asks `choose` again (`reselect`).
    Nothing changes until every choice has been made, so an error leaves it as it was.
    """

    def __init__(self, size: int, reselect: bool):
        if type(size) is not int or size < 1:
            raise ValueError(
                f"A memory of {brief(size)} rows is not usable; expected a whole number from 1 up."
            )
        self.size, self.reselect = size, reselect
        self.parts: list[Part] = []

    def add(self, X: np.ndarray, y: np.ndarray, choose: Choose) -> None:
        """Choose from a finished task's candidates, and let the older parts make room."""
        number = len(self.parts)
        share = self.size // (number + 1)
        if share == 0:
            raise ValueError(
                f"A memory of {self.size} rows is too small for {number + 1} tasks; give a "
                "larger memory or fewer tasks."
            )
        shrunk = [self._shrunk(task, part, share, choose) for task, part in enumerate(self.parts)]
        new = Part(X, y, np.ones(len(y)))
        self.parts = [*shrunk, new.of(*choose(number, new, min(share, len(y))))]

    def _shrunk(self, task: int, part: Part, share: int, choose: Choose) -> Part:
        if len(part.y) <= share:
            return part
        if self.reselect:
            return part.of(*choose(task, part, share))
        return part.of(np.arange(share), part.weights[:share])
