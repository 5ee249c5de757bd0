"""The models of squared errors in closed form: no iterations, whatever the strengths.

Of a model with training rows of weights W, strengths S = diag(s) and an intercept b,

    p <= n:  (C + S) w = c            C, c: products of the centred features, and with the target
    p > n:   w = S^-1 X^t a,  (K + W^-1) a + b 1 = t,  1^t a = 0,  K = X S^-1 X^t

so a solve costs a factor of the smaller matrix; K is made once for all models with the same s. The
derivative needs one more solve with the same factor: if q is a gradient in w and b, and v solves
the same system for it, then d<q, (w, b)>/ds_j = -v_j w_j.

`minimize` sees the outputs z*(x) of all models on all rows, through `Solved`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from untuned.closed_form import stacked
from untuned.estimators.penalties.objectives.objective import Models
from untuned.estimators.penalties.objectives.solved import Solution

MOST_ENTRIES = 2**23  # of all factors: 64 MB

Fit = tuple[np.ndarray, np.ndarray, Callable]  # w, b, and (q_w, q_b) -> v


def applies(loss: str, X: np.ndarray, models: int) -> bool:
    """Whether errors are squared, rows are dense and the factors of so many models small."""
    return (
        loss == "squared" and not sparse.issparse(X) and models * min(X.shape) ** 2 <= MOST_ENTRIES
    )


class ClosedRidge:
    """f, and the solution of g, of the models of a plan; y are outputs, (models, columns, rows)."""

    def __init__(self, models: Models):
        self.models, shares = models, models.shares
        self.X, self.t = models.table.X.astype(np.float64, copy=False), models.target.T
        self.weight = models.train[:, 0] * shares.total[:, None]  # (models, rows)
        self.rows = [np.flatnonzero(each) for each in self.weight]
        # Columns with the same strengths need one factor.
        same = bool((shares.group == shares.group[:, :1]).all())
        columns = range(self.t.shape[1])
        self.parts = [slice(None)] if same else [slice(c, c + 1) for c in columns]
        self.wide = min(len(rows) for rows in self.rows) < self.X.shape[1]
        if not self.wide:
            self.mean = self.weight @ self.X / shares.total[:, None]
            self.mean_target = self.weight @ self.t / shares.total[:, None]
            self.products = _products(self.X, self.weight)
            for C, mean, total in zip(self.products, self.mean, shares.total, strict=True):
                C -= total * np.outer(mean, mean)
            centred = self.weight.T[:, :, None] * (self.t[:, None] - self.mean_target)
            self.with_target = np.tensordot(self.X, centred, axes=(0, 0))

    def solve(self, x: np.ndarray) -> Solution:
        """z*(x) and its derivative."""
        strengths = self.models.strengths(x)
        w, b, adjoint = self.fit(strengths.s)

        def pull(q: np.ndarray) -> np.ndarray:
            v = adjoint(*stacked.back(self.X, q))
            return strengths.pull([], -v * w)

        return Solution(stacked.outputs(self.X, w, b), pull)

    def model(self, x: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (features, models, columns) and intercepts (models, columns)."""
        return self.fit(self.models.strengths(x).s)[:2]

    def seen(self, _: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The outputs, (models, columns, rows)."""
        return y

    def judged(self, z: np.ndarray) -> np.ndarray:
        """The losses of rows that judge, (models, rows)."""
        return self.models.judged(z)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        m = self.models
        return float(np.vdot(m.valid[:, 0], m.judged(y)) + m.doubts(x))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f and grad_y f."""
        m = self.models
        return self(x, y), m.doubts_slope(x), m.valid * m.loss.slope(y, m.target, 1)

    def fit(self, s: np.ndarray) -> Fit:
        """The models with strengths s (features, models, columns)."""
        return self._fit_wide(s) if self.wide else self._fit_tall(s)

    def _fit_tall(self, s: np.ndarray) -> Fit:
        factors: list[list] = []
        diagonal = np.diag_indices(len(s))
        for k, C in enumerate(self.products):
            factors.append([])
            for part in self.parts:
                matrix = C.copy()
                matrix[diagonal] += s[:, k, part][:, 0]
                factors[k].append(_factor(matrix))
        through = lambda q: self._through(factors, [q[:, k] for k in range(q.shape[1])])
        w = np.stack(through(self.with_target), axis=1)
        b = self.mean_target - np.einsum("kj,jkc->kc", self.mean, w)

        def adjoint(in_w: np.ndarray, in_b: np.ndarray) -> np.ndarray:
            return np.stack(through(in_w - self.mean.T[:, :, None] * in_b), axis=1)

        return w, b, adjoint

    def _fit_wide(self, s: np.ndarray) -> Fit:
        owner = self.models.shares.mix.argmax(axis=1)
        first = {int(v): k for k, v in reversed(list(enumerate(owner)))}  # a model of each vector
        factors: list[list] = [[] for _ in owner]
        for part in self.parts:
            roots = {v: self.X * s[:, k, part][:, 0] ** -0.5 for v, k in first.items()}
            kernels = {v: root @ root.T for v, root in roots.items()}
            for k, rows in enumerate(self.rows):
                matrix = kernels[int(owner[k])][np.ix_(rows, rows)]
                matrix[np.diag_indices(len(rows))] += 1 / self.weight[k, rows]
                factors[k].append(_factor(matrix))
        columns = self.t.shape[1]
        ones = self._through(factors, [np.ones((len(rows), columns)) for rows in self.rows])

        def bordered(sides: list, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """a with M a + b 1 = side and 1^t a = sum, as X^t a; and b."""
            a = np.zeros((len(self.X), len(sides), columns))
            b = np.zeros((len(sides), columns))
            for k, found in enumerate(self._through(factors, sides)):
                b[k] = (found.sum(axis=0) - sums[k]) / ones[k].sum(axis=0)
                a[self.rows[k], k] = found - b[k] * ones[k]
            return np.tensordot(self.X.T, a, axes=1), b

        back, b = bordered([self.t[rows] for rows in self.rows], np.zeros((len(s[0]), columns)))

        def adjoint(in_w: np.ndarray, in_b: np.ndarray) -> np.ndarray:
            along = np.tensordot(self.X, in_w / s, axes=1)
            sides = [along[rows, k] for k, rows in enumerate(self.rows)]
            return (in_w - bordered(sides, in_b)[0]) / s

        return back / s, b, adjoint

    def _through(self, factors: list[list], sides: list[np.ndarray]) -> list[np.ndarray]:
        """Each model's matrix, inverted, times its side (entries, columns)."""
        found = []
        for each, side in zip(factors, sides, strict=True):
            parts = zip(each, self.parts, strict=True)
            solved = [lapack.dpotrs(factor, side[:, part])[0] for factor, part in parts]
            found.append(solved[0] if len(solved) == 1 else np.hstack(solved))
        return found


def _factor(matrix: np.ndarray) -> np.ndarray:
    """Cholesky's, which the transposed matrix shares: LAPACK then needs no copy."""
    factor, failed = lapack.dpotrf(matrix.T, overwrite_a=True, clean=False)
    if failed:
        raise np.linalg.LinAlgError(
            "The features' products plus the strengths are not positive definite; expected finite "
            "rows and weights that differ by less than 1e12, so scale or drop the smallest weights."
        )
    return factor


def _products(X: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """X^t W X of each model, (models, features, features): a sum over sets of rows used alike."""
    used, number = np.unique(weight > 0, axis=1, return_inverse=True)
    found = np.zeros((len(weight), X.shape[1], X.shape[1]))
    for k, users in enumerate(used.T):
        which = np.flatnonzero(number.ravel() == k)
        if users.any():
            part = X[which]
            found[users] += (part * weight[users][0, which][:, None]).T @ part
    return found
