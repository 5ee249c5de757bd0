"""The memory: an equal share for every task so far, the most important rows first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from untuned.util.wording import brief

Choose = Callable[[int, np.ndarray, np.ndarray, int], np.ndarray]  # (task, X, y, size) -> rows


class Part(NamedTuple):
    """What is kept of one task, in order."""

    X: np.ndarray
    y: np.ndarray


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
        rows = choose(number, X, y, min(share, len(y)))
        self.parts = [*shrunk, Part(X[rows], y[rows])]

    def _shrunk(self, task: int, part: Part, share: int, choose: Choose) -> Part:
        if len(part.y) <= share:
            return part
        rows = choose(task, part.X, part.y, share) if self.reselect else np.arange(share)
        return Part(part.X[rows], part.y[rows])
