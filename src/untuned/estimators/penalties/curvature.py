"""Approximate Hessians of generalized linear models: preconditioners of glm.py.

With C the curvatures of the rows' losses times their shares, a model's Hessian is X^t C X + S. It
is held as the smallest of what is exact or close to it:

* features: a Cholesky factor of X^t C X + S, with the intercepts. One for each model where that is
  cheap; else one for all models with the same penalties, since they share most of their rows. All
  columns of outputs are in one matrix, or each has its own where that would be too large.
* rows, where they are fewer than features: with E = (C^-1 + X S^-1 X^t)^-1,
      b = (g_b - 1^t E u) / (1^t E 1),  w = S^-1 (g_w - X^t E (u + b)),  u = X S^-1 g_w.
* a diagonal, where both are many.

X^t C X is kept from one solve to the next until solves take too long; S is always that of now.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from untuned.closed_form import stacked

if TYPE_CHECKING:
    from untuned.estimators.penalties.glm import Glm
    from untuned.estimators.penalties.standardisation import Standardised

MOST_OWN = 2**25  # entries of the matrices of all models; above, some models share one
MOST_VARIABLES = 1024  # of one matrix over features and columns
MOST_SIDE = 2048  # of a matrix over rows or features: a larger one costs more than it saves
MOST_EACH = 128  # variables of a model's own Hessian, if that changes from step to step
MOST_PAIRS = 2**19  # entries of the products of all pairs of columns
OLD = 6  # iterations of a solve, after which the next one has a Hessian of its own
LEAST = 1e-6  # curvature: keeps finite what is divided by it
JITTER = 1e-12  # of the mean diagonal, where columns repeat each other


def choose(glm: Glm) -> Any:
    """The preconditioner for these models."""
    features, _, columns = glm.shape
    rows = int((glm.train > 0).sum(axis=2).max())
    by_rows = rows < features and (columns == 1 or glm.is_squared)
    if sparse.issparse(glm.table.X) and (by_rows or features > MOST_VARIABLES):
        return Diagonal(glm)
    if by_rows and rows <= MOST_SIDE:
        return ByRows(glm)
    if features <= (MOST_SIDE if columns == 1 or glm.is_squared else MOST_VARIABLES):
        return ByFeatures(glm)
    return Diagonal(glm)


class Curvature:
    """What preconditioners share.

    `k` are the curvatures of columns of outputs where nothing is known but the targets' mean.
    """

    exact = False  # whether one step solves a model of squared errors

    def __init__(self, glm: Glm):
        # Models hold this; without a cycle their memory is free as soon as they are.
        self.glm = weakref.proxy(glm)
        share = glm.train[:, 0].mean(axis=0)
        curve = glm.loss.curvature(share @ glm.target.T / share.sum())
        self.k = np.maximum(curve, LEAST).astype(glm.dtype)

    def pull(self, s: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The squared size of the penalties' pull, as gradients are measured, for each model."""
        return np.einsum("jkc,jkc->k", s * w, w, dtype=np.float64)

    def carried(self, before: np.ndarray, s: np.ndarray) -> np.ndarray:
        """About the factor by which coefficients change with penalties."""
        return (self.k + before) / (self.k + s)


class Diagonal(Curvature):
    """The curvature of each coefficient where nothing is known but the targets' mean."""

    def __init__(self, glm: Glm):
        super().__init__(glm)
        X, share = glm.table.X, glm.train[:, 0].mean(axis=0)
        squares = share @ (X.power(2) if sparse.issparse(X) else np.square(X))
        self.spread = np.maximum(squares - glm.table.shift**2, LEAST).astype(X.dtype)

    def factor(self, s: np.ndarray, z: np.ndarray) -> None:
        """For penalties s."""
        self.inverse = 1 / (self.k * self.spread[:, None, None] + s)

    def renew(self, s: np.ndarray, z: np.ndarray) -> bool:
        """Whether it was made anew at outputs z."""
        return False

    def __call__(self, in_w: np.ndarray, in_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse times a gradient."""
        return in_w * self.inverse, in_b / self.k

    def pull(self, s: np.ndarray, w: np.ndarray) -> np.ndarray:
        """At least <w, pull> over the length of w: where penalties are weak, far less than the rows
        pull, which would say nothing of how far off w is."""
        length = np.einsum("jkc,jkc->k", w / self.inverse, w, dtype=np.float64)
        held = super().pull(s, w)
        return held**2 / np.maximum(length, LEAST**6)


class ByFeatures(Curvature):
    """Cholesky factors over features and intercepts."""

    def __init__(self, glm: Glm):
        super().__init__(glm)
        features, models, columns = glm.shape
        together = (features + 1) * columns <= MOST_VARIABLES and not glm.is_squared
        self.blocks = [list(range(columns))] if together else [[c] for c in range(columns)]
        size = (features + 1) * len(self.blocks[0])
        own = models * size**2 * len(self.blocks) <= MOST_OWN
        # To make them must not cost more than the products with X that they spare.
        self.own = own and (size <= MOST_EACH or glm.is_squared)
        self.exact = self.own and glm.is_squared
        if self.own:
            self.users = [(k, np.array([k])) for k in range(models)]
        else:
            vectors = np.unique(glm.owner)
            self.users = [(0, np.flatnonzero(glm.owner == vector)) for vector in vectors]
        self.made: list[np.ndarray] = []
        self.products: Products | None = None
        self.steps = 0

    def factor(self, s: np.ndarray, z: np.ndarray) -> None:
        """For penalties s; outputs z are where curvatures are looked at, if they are."""
        if not self.made or (self.steps > OLD and not self.glm.is_squared):
            self._make(z)
        self.steps = 0
        s = np.broadcast_to(s, self.glm.shape)
        self.factors: list[list[np.ndarray]] = []
        for block, made in zip(self.blocks, self.made, strict=True):
            if self.factors and self.glm.is_squared and (s[..., block] == s[..., :1]).all():
                self.factors.append(self.factors[0])
                continue
            self.factors.append([])
            for number, models in self.users:
                matrix = made[number].copy()
                held = np.full((len(s) + 1, len(block)), self.glm.hold)
                held[:-1] = s[:, models[0], block]
                matrix.flat[:: len(matrix) + 1] += held.ravel()
                self.factors[-1].append(_factor(matrix))

    def renew(self, s: np.ndarray, z: np.ndarray) -> bool:
        """Whether it was made anew at outputs z."""
        if self.glm.is_squared or not self.own:
            return False
        self._make(z)
        self.factor(s, z)
        return True

    def __call__(self, in_w: np.ndarray, in_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse times a gradient."""
        self.steps += 1
        both = np.concatenate([in_w, in_b[None]]).astype(np.float64, copy=False).swapaxes(0, 1)
        found = np.empty_like(both)
        for block, factors in zip(self.blocks, self.factors, strict=True):
            part = slice(block[0], block[-1] + 1)
            sides = both[:, :, part].reshape(len(both), -1)
            solved = np.empty_like(sides)
            for (_, models), factor in zip(self.users, factors, strict=True):
                solved[models] = lapack.dpotrs(factor, sides[models].T)[0].T
            found[:, :, part] = solved.reshape(len(both), -1, len(block))
        found = found.astype(in_w.dtype, copy=False).swapaxes(0, 1)
        return found[:-1], found[-1]

    def _make(self, z: np.ndarray) -> None:
        glm, train = self.glm, self.glm.train[:, 0]
        if self.products is None:
            variables = (glm.shape[0] + 1) * len(self.blocks[0])
            used = np.flatnonzero(train.any(axis=0))
            # The mean over more rows hardly differs; squared errors are solved in one step.
            step = 1 if glm.is_squared else stacked.every(len(used), variables)
            self.products = Products(glm.table, used[::step], glm.is_squared)
        some = self.products.rows
        train, z, target = train[:, some].astype(np.float64), z[:, :, some], glm.target[:, some]
        if not self.own:
            train, z = train.mean(axis=0, keepdims=True), z.mean(axis=0, keepdims=True)
        train = train / train.sum(axis=1, keepdims=True)
        bend, columns = glm.loss.bend(z, 1, target), z.shape[1]
        curves = []
        for c in range(columns):
            unit = np.zeros_like(z)
            unit[:, c] = 1
            curves.append(bend(unit) * train[:, None])
        self.made = []
        entries = glm.shape[0] + 1
        for block in self.blocks:
            if glm.is_squared and self.made:
                self.made.append(self.made[0])
                continue
            made = np.empty((len(train), entries, len(block), entries, len(block)))
            for i, c in enumerate(block):
                for j, d in enumerate(block[: i + 1]):
                    made[:, :, i, :, j] = made[:, :, j, :, i] = self.products(curves[c][:, d])
            if glm.is_softmax and len(block) > 1:  # which is blind to a common intercept
                made[:, -1, :, -1, :] += np.einsum("kcc->k", made[:, -1, :, -1, :])[:, None, None]
            size = entries * len(block)
            self.made.append(made.reshape(len(train), size, size))


class Products:
    """X^t C X for many C, X with a column of ones: of some rows."""

    def __init__(self, table: Standardised, rows: np.ndarray, once: bool):
        self.rows = rows
        X = table.dense(rows).astype(np.float64)
        self.X = np.column_stack([X, np.ones(len(X))])
        count, size = self.X.shape
        self.upper = np.triu_indices(size)
        self.pairs: np.ndarray | None = None
        # Small products of all pairs of columns are made once: one product of matrices is then all.
        if not once and count * size**2 <= MOST_PAIRS:
            self.pairs = self.X[:, self.upper[0]] * self.X[:, self.upper[1]]

    def __call__(self, curves: np.ndarray) -> np.ndarray:
        """Of each row of `curves`, (count, size, size)."""
        found = np.empty((len(curves), self.X.shape[1], self.X.shape[1]))
        if self.pairs is None:
            for one, curve in zip(found, curves, strict=True):
                used = np.flatnonzero(curve)
                X = self.X if len(used) == len(curve) else self.X[used]
                one[...] = (X * curve[used, None]).T @ X
            return found
        found[:, *self.upper] = curves @ self.pairs
        found[:, *self.upper[::-1]] = found[:, *self.upper]
        return found


class ByRows(Curvature):
    """Matrices over rows, of one model and one column each."""

    def __init__(self, glm: Glm):
        super().__init__(glm)
        self.exact = glm.is_squared
        self.X = glm.table.X.astype(np.float64, copy=False)
        self.rows = [np.flatnonzero(each) for each in glm.train[:, 0]]
        self.curve = np.zeros((0, 0, 0))
        self.steps = 0

    def factor(self, s: np.ndarray, z: np.ndarray) -> None:
        """For penalties s and curvatures at outputs z."""
        glm = self.glm
        columns = glm.shape[2]
        if not self.curve.size or (self.steps > OLD and not glm.is_squared):
            self._make(z)
        self.steps = 0
        self.s = np.broadcast_to(s, glm.shape)
        self.E: list[list[tuple]] = []
        for c in range(columns):
            kernel, last = np.zeros((0, 0)), -1
            of_column: list[tuple] = []
            for k, rows in enumerate(self.rows):
                if c > 0 and glm.is_squared and (self.s[:, k, c] == self.s[:, k, 0]).all():
                    of_column.append(self.E[0][k])
                    continue
                if glm.owner[k] != last:  # models of one vector follow each other
                    of_vector = glm.total[k] * self.s[:, k, c]
                    root, last = self.X / np.sqrt(of_vector), glm.owner[k]
                    kernel = root @ root.T
                root_c = np.sqrt(self.curve[k, c, rows])
                matrix = kernel.take(rows, axis=0).take(rows, axis=1)
                matrix *= glm.total[k] * root_c
                matrix *= root_c[:, None]
                matrix.flat[:: len(rows) + 1] += 1
                factor = _factor(matrix)
                one = root_c * lapack.dpotrs(factor, root_c)[0]
                of_column.append((rows, root_c, factor, one))
            self.E.append(of_column)

    def renew(self, s: np.ndarray, z: np.ndarray) -> bool:
        """Whether it was made anew at outputs z."""
        if self.glm.is_squared:
            return False
        self._make(z)
        self.factor(s, z)
        return True

    def carried(self, before: np.ndarray, s: np.ndarray) -> np.ndarray:
        """What rows pull stays about the same."""
        return before / s

    def _make(self, z: np.ndarray) -> None:
        bend, units = self.glm.loss.bend(z, 1, self.glm.target), np.ones_like(z)
        self.curve = (bend(units) * self.glm.train).astype(np.float64)

    def __call__(self, in_w: np.ndarray, in_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse times a gradient."""
        self.steps += 1
        u = stacked.outputs(self.X, in_w / self.s, np.zeros(in_b.shape))
        a, b = np.zeros(u.shape), np.empty(in_b.shape)
        for c, of_column in enumerate(self.E):
            for k, (rows, root, factor, one) in enumerate(of_column):
                side = u[k, c, rows]
                b[k, c] = (in_b[k, c] - one @ side) / (one.sum() + self.glm.hold)
                a[k, c, rows] = root * lapack.dpotrs(factor, root * (side + b[k, c]))[0]
        w = (in_w - stacked.back(self.X, a)[0]) / self.s
        return w.astype(in_w.dtype, copy=False), b.astype(in_w.dtype, copy=False)


def _factor(matrix: np.ndarray) -> np.ndarray:
    """Cholesky's, in place of the matrix; which the transposed one shares, so LAPACK needs no
    copy."""
    size = len(matrix)
    matrix.flat[:: size + 1] += JITTER * np.trace(matrix) / size
    factor, failed = lapack.dpotrf(matrix.T, overwrite_a=True, clean=False)
    if failed:
        raise np.linalg.LinAlgError(
            "The features' products plus the penalties are not positive definite; expected finite "
            "rows and weights that differ by less than 1e12, so scale or drop the smallest weights."
        )
    return factor
