"""The models of squared errors in closed form: no iterations, whatever the strengths.

Of a model with training rows of weights W, strengths S = diag(s) and an intercept b,

    p <= n:  (C + S) w = c            C, c: products of the centred features, and with the target
    p > n:   w = S^-1 X^t a,  (K + W^-1) a + b 1 = t,  1^t a = 0,  K = X S^-1 X^t

so a solve costs a factor of the smaller matrix; K is made once for all models with the same s. The
derivative needs one more solve with the same factor.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from untuned.closed_form import stacked
from untuned.estimators.penalties.folds import alike
from untuned.estimators.penalties.objectives.closed import MOST_ENTRIES, Closed, Fit
from untuned.estimators.penalties.objectives.objective import Models


def applies(loss: str, X: np.ndarray, models: int) -> bool:
    """Whether errors are squared, rows are dense and the factors of so many models small."""
    return (
        loss == "squared" and not sparse.issparse(X) and models * min(X.shape) ** 2 <= MOST_ENTRIES
    )


class ClosedRidge(Closed):
    """Models of squared errors."""

    def __init__(self, models: Models):
        super().__init__(models)
        shares = models.shares
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
        # Where matrices are made. Fresh memory for each point takes longer than their factors.
        if self.wide:
            self._root, self._kernel = np.empty(self.X.shape), np.empty(len(self.X) ** 2)
            owners = [np.flatnonzero(self.owner == v) for v in range(shares.mix.shape[1])]
            # Of each vector: its models, the rows that they train on, and where each has its own.
            self._own = []
            for models_of in owners:
                rows = np.flatnonzero(self.weight[models_of].any(axis=0))
                places = [np.searchsorted(rows, self.rows[k]) for k in models_of]
                self._own.append((rows, list(zip(models_of, places, strict=True))))
        sizes = [len(rows) if self.wide else self.X.shape[1] for rows in self.rows]
        self._room = [[np.empty((size, size)) for size in sizes] for _ in self.parts]

    def fit(self, s: np.ndarray) -> Fit:
        """The models with strengths s (features, vectors, columns)."""
        return self._fit_wide(s) if self.wide else self._fit_tall(s)

    def _fit_tall(self, s: np.ndarray) -> Fit:
        factors = []
        diagonal = np.arange(len(s))
        for part, matrices in zip(self.parts, self._room, strict=True):
            of_part = s[:, :, part][:, :, 0].T
            for k, matrix in enumerate(matrices):
                matrix[...] = self.products[k]
                matrix[diagonal, diagonal] += of_part[self.owner[k]]
            factors.append([_factor(matrix) for matrix in matrices])
        every = np.arange(len(self.owner))
        w = self._through(factors, self.with_target, every)
        b = self.mean_target - np.einsum("kj,jkc->kc", self.mean, w)

        def adjoint(slopes: np.ndarray) -> np.ndarray:
            in_w, in_b = stacked.back(self.X, slopes)
            return self._through(factors, in_w - self.mean.T[:, :, None] * in_b, self.choosing)

        return w, b, adjoint

    def _through(self, factors: list, sides: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Some models' matrices, inverted, times their sides (features, models, columns)."""
        of_model = np.ascontiguousarray(sides.swapaxes(0, 1))
        found = np.zeros_like(of_model)
        for of_part, part in zip(factors, self.parts, strict=True):
            for k in which:
                found[k, :, part] = lapack.dpotrs(of_part[k], of_model[k, :, part])[0]
        return found.swapaxes(0, 1)

    def _fit_wide(self, s: np.ndarray) -> Fit:
        every, columns = np.arange(len(self.owner)), s.shape[2]
        factors: list[list] = []
        ones: list[list] = []
        for part, matrices in zip(self.parts, self._room, strict=True):
            for v, (own, models_of) in enumerate(self._own):
                root, size = self._root[: len(own)], len(own)
                np.multiply(self.X[own], s[:, v, part][:, 0] ** -0.5, out=root)
                kernel = np.matmul(root, root.T, out=self._kernel[: size**2].reshape(size, size))
                for k, rows in models_of:
                    kernel.take(rows, axis=0).take(rows, axis=1, out=matrices[k], mode="clip")
                    matrices[k].flat[:: len(rows) + 1] += 1 / self.weight[k, self.rows[k]]
            factors.append([_factor(matrix) for matrix in matrices])
            ones.append([lapack.dpotrs(f, np.ones(len(f)))[0] for f in factors[-1]])

        def bordered(
            sides: np.ndarray, sums: np.ndarray, which: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray]:
            """a with M a + b 1 = side and 1^t a = sum, of some models; and b."""
            a, b = np.zeros(sides.shape), np.zeros(sums.shape)
            for of_part, one, part in zip(factors, ones, self.parts, strict=True):
                for k in which:
                    rows = self.rows[k]
                    found = lapack.dpotrs(of_part[k], sides[rows, k, part])[0]
                    b[k, part] = (found.sum(axis=0) - sums[k, part]) / one[k].sum()
                    found -= one[k][:, None] * b[k, part]
                    a[rows, k, part] = found
            return a, b

        targets = np.broadcast_to(self.t[:, None], (len(self.t), len(every), columns))
        a, b = bordered(targets, np.zeros((len(every), columns)), every)
        of_model = s[:, self.owner]

        def adjoint(slopes: np.ndarray) -> np.ndarray:
            in_w, in_b = stacked.back(self.X, slopes)
            in_w /= of_model
            sides = np.tensordot(self.X, in_w, axes=1)
            taken = bordered(sides, in_b, self.choosing)[0]
            return in_w - np.tensordot(self.X.T, taken, axes=1) / of_model

        return np.tensordot(self.X.T, a, axes=1) / of_model, b, adjoint


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
    used = (weight > 0).T
    first, number = alike(used)
    found = np.zeros((len(weight), X.shape[1], X.shape[1]))
    for k, users in enumerate(used[first]):
        which = np.flatnonzero(number == k)
        if users.any():
            part = X[which]
            products = (part * weight[users][0, which][:, None]).T @ part
            for user in np.flatnonzero(users):
                found[user] += products
    return found
