"""One strength for squared errors, by leaving out every row once, in closed form.

With A = sqrt(weight) times the centred features, A A^t = U Lambda U^t and c = U^t sqrt(weight) t,
the model with strength s has y = Lambda / (Lambda + s) c, leaves the errors e = t - (U y) /
sqrt(weight), and would have erred by e_i / (1 - h_i) on a row that it had not seen, where
h_i = weight_i / N + sum_k U_ik^2 Lambda_k / (Lambda_k + s). So every row judges, no strength needs
a second fit, and many strengths cost one product of matrices. The curve may have several valleys:
a grid finds the deepest, and a finer one its bottom. The same U has the model of all rows.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from untuned.estimators.penalties import outcome
from untuned.estimators.penalties.path import Trail
from untuned.estimators.penalties.penalties import Bend, two_digits
from untuned.estimators.penalties.standardisation import Standardised
from untuned.run.result import Result

MOST_DIRECTIONS = 1024  # eigenvectors of more cost more than folds
MOST_SHOWN = 20  # points of the path whose coefficients are kept
PER_DECADE = 5  # strengths of the grid
FINER = 10  # strengths of the second grid, on either side, for one of the first
BLOCK = 2**18  # entries that are worked on at once
LEAST_LEFT = 1e-8  # of 1 - h: a row that decides its own fit says nothing about others


class Found(NamedTuple):
    """x, where it was found, and the coefficients (features, columns) and intercepts there."""

    x: float
    result: Result
    coef: np.ndarray
    intercept: np.ndarray


class Curve:
    """The rows along their main directions, and the errors of rows left out."""

    def __init__(self, table: Standardised, target: np.ndarray, weight: np.ndarray) -> None:
        used = np.flatnonzero(weight > 0)
        self.table = table if len(used) == len(weight) else table.rows(used)
        self.total = weight.sum()
        self.root = np.sqrt(weight[used])
        self.mean = weight[used] @ target[used] / self.total
        self.target = (target[used] - self.mean) * self.root[:, None]
        self.directions, self.spread = _directions(self.table, self.root)
        self.along = (self.directions.T @ self.target).astype(np.float64)

    def losses(self, strengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Half the mean squared error of rows left out, and its standard error, of each."""
        shrink = self.spread[:, None] / (self.spread[:, None] + strengths)
        total, squares = np.zeros((2, len(strengths)))
        rows, columns = self.directions.shape
        step = max(1, BLOCK // max(columns, 1))
        for start in range(0, rows, step):
            part = slice(start, start + step)
            U, own = self.directions[part], self.root[part, None] ** 2
            left = np.maximum(1 - own / self.total - np.square(U) @ shrink, LEAST_LEFT)
            missed = np.zeros(())
            for column in range(self.target.shape[1]):
                fitted = U @ (shrink * self.along[:, column, None])
                missed = missed + ((self.target[part, column, None] - fitted) / left) ** 2
            total += missed.sum(axis=0)
            squares += (missed**2 / own).sum(axis=0)
        errors = np.sqrt(np.maximum(squares - total**2 / self.total, 0))
        return total / (2 * self.total), errors / (2 * self.total)

    def coefficients(self, s: Any) -> np.ndarray:
        """Of the models of all rows with strengths s, (features, columns, strengths)."""
        inside = self.directions @ (
            self.along[:, :, None] / (self.spread[:, None, None] + s)
        ).reshape(len(self.spread), -1)
        found = self.table.gradient(self.root[:, None] * inside)
        return found.reshape(len(found), self.along.shape[1], -1)


def applies(table: Standardised, weight: np.ndarray) -> bool:
    """Whether there are few enough directions."""
    return min(np.count_nonzero(weight), table.X.shape[1]) <= MOST_DIRECTIONS


def search(
    table: Standardised, target: np.ndarray, weight: np.ndarray, bend: Bend, trail: Trail
) -> Found:
    """The strength, of two digits, with the least error on rows left out."""
    start = time.perf_counter()
    curve = Curve(table, target, weight)
    low, high = bend.limits
    grid = np.linspace(low, high, 1 + int(PER_DECADE * (high - low) / np.log(10)))
    loss, error = curve.losses(np.exp(grid))
    best = int(np.argmin(loss))
    apart = (grid[1] - grid[0]) / FINER
    fine = np.clip(grid[best] + apart * np.arange(1 - FINER, FINER), low, high)
    values, errors = curve.losses(np.exp(fine))
    lowest = int(np.argmin(values))
    x = bend.inverse(fine[[lowest]])  # not quite a limit
    s = two_digits(bend(x)[0])
    shown = np.arange(0, len(grid), max(1, len(grid) // MOST_SHOWN))
    coef = curve.coefficients(np.r_[s, np.exp(grid[shown])])
    for k, strength in enumerate(np.exp(grid[shown])):
        trail.note(strength, loss[shown[k]], error[shown[k]], coef[:, :, 1 + k])
    trail.note(s[0], values[lowest], errors[lowest], coef[:, :, 0])
    message = (
        f"One strength, {s[0]:g}, in closed form: the least of {len(grid) + len(fine)} errors of "
        f"rows left out, {2 * values[lowest]:.6g} of the targets' variance."
    )
    seconds = time.perf_counter() - start
    result = outcome.result(x[None], coef[:, :, 0], (loss[best], values[lowest]), seconds, message)
    return Found(float(x[0]), result, coef[:, :, 0], curve.mean)


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
