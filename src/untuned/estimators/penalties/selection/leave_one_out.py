"""One strength for squared errors, by leaving out every row once, in closed form.

With A = sqrt(weight) times the centred features, A A^t = U Lambda U^t and c = U^t sqrt(weight) t,
the model with strength s has y = Lambda / (Lambda + s) c, leaves the errors e = t - (U y) /
sqrt(weight), and would have erred by e_i / (1 - h_i) on a row that it had not seen, where
h_i = weight_i / N + sum_k U_ik^2 Lambda_k / (Lambda_k + s). So every row judges, and no strength
needs a second fit. The curve may have several valleys: a grid finds the deepest, and `minimize`
goes to its bottom, with

    f(x, y) = 1/(2N) sum_i weight_i (e_i(y) / (1 - h_i(x)))^2,   g(x, y) = 1/2 |y - y*(x)|^2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from untuned.estimators.penalties.objectives.solved import Solution, Solved
from untuned.estimators.penalties.path import Trail
from untuned.estimators.penalties.standardisation import Standardised
from untuned.estimators.penalties.strengths import Bend
from untuned.run import minimize
from untuned.run.result import Result

MOST_DIRECTIONS = 1024  # eigenvectors of more cost more than folds
MOST_SHOWN = 20  # points of the path whose coefficients are kept
PER_DECADE = 5  # strengths of the grid
BLOCK = 2**18  # entries that are worked on at once
LEAST_LEFT = 1e-8  # of 1 - h: a row that decides its own fit says nothing about others


class Found(NamedTuple):
    """x, where it was found, and the coefficients (features, columns) and intercepts there."""

    x: float
    result: Result
    coef: np.ndarray
    intercept: np.ndarray


class Curve:
    """The rows along their main directions, and f."""

    def __init__(
        self, table: Standardised, target: np.ndarray, weight: np.ndarray, bend: Bend
    ) -> None:
        used = np.flatnonzero(weight > 0)
        self.table, self.bend, self.total = table.rows(used), bend, weight.sum()
        self.root = np.sqrt(weight[used])
        self.mean = weight[used] @ target[used] / self.total
        self.target = (target[used] - self.mean) * self.root[:, None]
        self.directions, self.spread = _directions(self.table, self.root)
        self.along = (self.directions.T @ self.target).astype(np.float64)

    def grid(self, trail: Trail) -> float:
        """The x with the least f among many, all of which are noted."""
        low, high = self.bend.limits / np.log(10)
        grid = np.log(10) * np.linspace(low, high, 1 + int(PER_DECADE * (high - low)))
        shrink = self._shrink(np.exp(grid))  # (directions, strengths)
        total, squares = np.zeros((2, len(grid)))
        for part, U in self._blocks():
            left, missed = self._left(part, U, shrink), np.zeros(())
            for column in range(self.target.shape[1]):
                fitted = U @ (shrink * self.along[:, column, None])
                missed = missed + ((self.target[part, column, None] - fitted) / left) ** 2
            total += missed.sum(axis=0)
            squares += (missed**2 / self.root[part, None] ** 2).sum(axis=0)
        errors = np.sqrt(np.maximum(squares - total**2 / self.total, 0))
        means = np.stack([total, errors]) / (2 * self.total)
        best = int(np.argmin(total))
        for k in {best, *range(0, len(grid), max(1, len(grid) // MOST_SHOWN))}:
            s = float(np.exp(grid[k]))
            trail.note(s, float(means[0, k]), float(means[1, k]), self._coefficients(s))
        return float(self.bend.inverse(grid[best]))

    def solve(self, x: np.ndarray) -> Solution:
        """y*(x) and its derivative."""
        s, slope = self._strength(x)
        y = self._shrink(s) * self.along
        falls = -slope * (s / (self.spread + s))[:, None] * y
        return Solution(y, lambda q: np.full_like(x, np.vdot(q, falls)))

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.value_and_grads(x, y)[0]

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f and grad_y f."""
        s, slope = self._strength(x)
        shrink = self._shrink(s)
        falls = -slope * shrink * (s / (self.spread + s))[:, None]
        value, in_x, in_y = 0.0, 0.0, np.zeros_like(y)
        for part, U in self._blocks():
            left = self._left(part, U, shrink)
            missed = (self.target[part] - U @ y) / left
            value += (missed**2).sum()
            in_x += ((missed**2).sum(axis=1) / left[:, 0]) @ (np.square(U) @ falls)[:, 0]
            in_y -= U.T @ (missed / left)
        return value / (2 * self.total), np.full_like(x, in_x / self.total), in_y / self.total

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """Of the model of all rows."""
        return self._coefficients(self._strength(x)[0])

    def _coefficients(self, s: float) -> np.ndarray:
        inside = self.directions @ (self.along / (self.spread[:, None] + s))
        return self.table.gradient(self.root[:, None] * inside)

    def _strength(self, x: np.ndarray) -> tuple[float, float]:
        logarithm, slope = self.bend(x)
        return float(np.exp(logarithm.item())), float(slope.item())

    def _shrink(self, s: Any) -> np.ndarray:
        return self.spread[:, None] / (self.spread[:, None] + s)

    def _left(self, part: slice, U: np.ndarray, shrink: np.ndarray) -> np.ndarray:
        """1 - h, (rows, strengths)."""
        h = self.root[part, None] ** 2 / self.total + np.square(U) @ shrink
        return np.maximum(1 - h, LEAST_LEFT)

    def _blocks(self) -> list[tuple[slice, np.ndarray]]:
        rows, columns = self.directions.shape
        step = max(1, BLOCK // max(columns, 1))
        parts = [slice(start, start + step) for start in range(0, rows, step)]
        return [(part, self.directions[part]) for part in parts]


def applies(table: Standardised, weight: np.ndarray) -> bool:
    """Whether there are few enough directions."""
    return min(np.count_nonzero(weight), table.X.shape[1]) <= MOST_DIRECTIONS


def search(
    table: Standardised, target: np.ndarray, weight: np.ndarray, bend: Bend, trail: Trail,
    run: Callable[..., Result] = minimize,
) -> Found:  # fmt: skip
    """The strength with the least error on rows left out, through `run`."""
    curve = Curve(table, target, weight, bend)
    x = np.array([[curve.grid(trail)]])
    result = run(curve, Solved(curve.solve), x, curve.solve(x).y)
    coef = curve.coefficients(result.x)
    return Found(result.x.item(), result, coef, curve.mean)


def _directions(table: Standardised, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """U and Lambda, from the smaller of the two products; one of nothing where X is constant."""
    rows, features = table.X.shape
    if not (table.X.nnz if sparse.issparse(table.X) else table.X.any()):
        return np.zeros((rows, 1)), np.ones(1)
    if rows <= features:
        centred = root[:, None] * table.dense(slice(None))
        values, U = np.linalg.eigh(centred @ centred.T)
        kept = values > max(rows, features) * np.finfo(table.X.dtype).eps * values.max(initial=0)
        return U[:, kept], values[kept].astype(np.float64)
    products = np.zeros((features, features))
    step = max(1, BLOCK // features)
    parts = [slice(start, start + step) for start in range(0, rows, step)]
    for part in parts:
        block = root[part, None] * table.dense(part).astype(np.float64)
        products += block.T @ block
    values, V = np.linalg.eigh(products)
    kept = values > max(rows, features) * np.finfo(table.X.dtype).eps * values.max(initial=0)
    values = values[kept]
    turn = (V[:, kept] * values**-0.5).astype(table.X.dtype)
    U = np.empty((rows, len(values)), table.X.dtype)
    for part in parts:
        U[part] = root[part, None] * (table.dense(part) @ turn)
    return U, values
