"""An inner problem that another solver solves, as a g that `minimize` understands.

Given y*(x) and the product of its derivative with any q, g(x, y) = 1/2 |y - y*(x)|^2 has the same
solution and the same derivative of it, whatever is not smooth about the problem behind it: the
method's Newton step lands on y*(x) at once, v is grad_y f, and the hypergradient is
grad_x f + (dy*/dx)^t grad_y f.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Solution(NamedTuple):
    """y*(x), and q -> (dy*/dx)^t q."""

    y: np.ndarray
    pull: Callable[[np.ndarray], np.ndarray]


class Solved:
    """g, from `solve`, which gives a `Solution` for each x."""

    def __init__(self, solve: Callable[[np.ndarray], Solution]):
        self.solve = solve
        self._last: tuple[np.ndarray, Solution] | None = None

    def at(self, x: np.ndarray) -> Solution:
        """The solution at x; methods ask for the same one many times."""
        if self._last is None or not np.array_equal(x, self._last[0]):
            self._last = x.copy(), self.solve(x)
        return self._last[1]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return 0.5 * float(np.square(y - self.at(x).y).sum())

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        return y - self.at(x).y

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        apart = self.grad_y(x, y)
        return self(x, y), -self.at(x).pull(apart), apart

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v; the one in y is the identity."""

        def pull(v: np.ndarray, wrt: str) -> Any:
            if wrt == "y":
                return v
            in_x = -self.at(x).pull(v)
            return in_x if wrt == "x" else (in_x, v)

        return pull
