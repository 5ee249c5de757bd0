"""One model of very many coefficients behind f: solved in steps, and as little kept as can be.

For `minimize` it is a model that solves its own g, as those of closed.py are: f(x, y*(x)) with its
gradient. y*(x) comes by Newton's method from the last y, and the v of H v = grad_y f by conjugate
gradients from the last v. Both are left with a share of the error that the step of x has caused, so
the value is f - <v, grad_y g>, which has but the square of the error of y. A method that is given y
itself keeps those of two points and of its first one, with gradients: twice the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from untuned import ops as array_libraries
from untuned.estimators.penalties.objectives.objective import Inner, Models, Outer
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import conjugate_gradient

LEFT = 0.03  # share of the error that a step of x causes
FIRST_LEFT = 0.01  # the same of the first v, which comes from nothing
NOTHING = np.zeros((0, 0, 0))

# The solution at x from the one that a list holds, to a share of its error.
Solve = Callable[[Models, np.ndarray, list[np.ndarray], float], np.ndarray]


class Point(NamedTuple):
    """What is known at x."""

    value: float
    gradient: np.ndarray


class Stepwise:
    """f of one model, whose solution at x is y."""

    def __init__(self, models: Models, x: np.ndarray, y: np.ndarray, solve: Solve):
        self.models, self.solve = models, solve
        self.inner, self.outer = Inner(models), Outer(models)
        self.x, self.y, self.v = x, y, NOTHING
        self._last: Point | None = None

    def seen(self, x: np.ndarray, _: np.ndarray) -> np.ndarray:
        """The outputs, (models, columns, rows)."""
        self._solve_at(x)
        return self.models.seen(x, self.y)

    def judged(self, z: np.ndarray) -> np.ndarray:
        """The losses of rows that judge, (models, rows)."""
        return self.models.judged(z)

    def __call__(self, x: np.ndarray, _: np.ndarray) -> float:
        return self._at(x).value

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, its gradient in x, and that in y, on which it does not depend."""
        at = self._at(x)
        return at.value, at.gradient, np.zeros_like(y)

    def model(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (features, models, columns) and intercepts (models, columns) at the last x.

        Nothing else is kept from then on.
        """
        y, self.y, self.v = self.y, NOTHING, NOTHING
        return self.models.model(self.x, y)

    def _solve_at(self, x: np.ndarray) -> None:
        """y of x, from the last one: coordinates have moved with the strengths."""
        if np.array_equal(x, self.x):
            return
        start, self.y, self._last = [self.y], NOTHING, None
        self.x, self.y = x.copy(), self.solve(self.models, x, start, LEFT)

    def _at(self, x: np.ndarray) -> Point:
        self._solve_at(x)
        if self._last is None:
            value, in_x, residual = self.outer.value_and_grads(x, self.y)
            self._solve_for_v(x, [residual])
            del residual
            in_x = in_x - self.inner.products(x, self.y)(self.v, "x")
            value -= float(np.vdot(self.v, self.inner.grad_y(x, self.y)))
            self._last = Point(value, in_x)
        return self._last

    def _solve_for_v(self, x: np.ndarray, side: list[np.ndarray]) -> None:
        """H v = side, which the list holds, so that nobody has to keep it."""
        pull = self.inner.products(x, self.y)
        o = Oracles(array_libraries.get("numpy"), self.inner, self.inner)
        share = LEFT if self.v.size else FIRST_LEFT
        start = [self.v if self.v.size else np.zeros_like(self.y)]
        self.v = NOTHING
        residual = [side.pop()]
        if start[0].any():
            residual[0] -= pull(start[0], "y")
        tolerance = share**2 * float(np.vdot(residual[0], residual[0]))
        with o.ops.precision(self.y):
            self.v = conjugate_gradient.solve(
                o.ops, lambda v: pull(v, "y"), residual.pop(), start.pop(),
                tolerance=tolerance, most=2 * self.y.size,
            ).z  # fmt: skip
