"""How g curves, so that coefficients can be turned and scaled until it curves alike everywhere.

Q Lambda Q^T are the features' correlations, and k_c is the curvature of the loss in column c of the
outputs, both at the model that knows nothing but the mean of the targets: there the mean loss has
the Hessian k_c Q Lambda Q^T in the coefficients of column c. Nearer the solution k may be far
smaller, but scales from there would make Newton's steps overshoot. With very many features there
is no Q, and Lambda is a diagonal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from untuned.closed_form.losses import LOSSES
from untuned.estimators.penalties.standardisation import Standardised

MOST_TURNED = 1024  # features; above, eigenvectors cost more than they save
ROWS_PER_FEATURE = 10  # that are looked at: the mean over more hardly differs
BLOCK = 2**12  # features that are worked on at once where a second array of all is to be spared
LEAST = 1e-6  # curvature: keeps the scale of a class finite whose rows all weigh nothing


class Scaling(NamedTuple):
    """Q, Lambda and k."""

    basis: np.ndarray  # (features, features), or (0, 0) for none
    spread: np.ndarray  # (features,)
    curvature: np.ndarray  # (columns,)


class Turn(NamedTuple):
    """The map from u to w: w = E Q (k Lambda + t/N)^{-1/2} u, E^2 = (k + t/N) / (k + s/N).

    There may be very many coefficients, so nothing of their number is kept for it.
    """

    last: Any  # E, (features, models, columns), or (1, models, columns) where strengths are alike
    basis: Any
    spread: Any  # Lambda, (features,)
    curvature: Any  # k, (columns,)
    common: Any  # t/N, (models, 1)

    @classmethod
    def make(cls, s: Any, t: Any, total: Any, scaling: Any) -> Turn:
        """For strengths s (features, models, columns), or t (models,) where they do not differ."""
        common, k = (t / total)[:, None], scaling.curvature
        last = ((k + common) / (k + s / total[:, None])) ** 0.5
        return cls(last, scaling.basis, scaling.spread, k, common)

    def some(self, part: slice) -> Turn:
        """That of some features; only where there is no basis."""
        last = self.last if len(self.last) == 1 else self.last[part]
        return self._replace(last=last, spread=self.spread[part])

    def scale(self, u: Any) -> None:
        """Multiply by (k Lambda + t/N)^{-1/2}, in place."""
        for start in range(0, len(u), BLOCK):
            part = slice(start, start + BLOCK)
            u[part] /= self.root(part)

    def root(self, part: slice = slice(None)) -> Any:
        """(k Lambda + t/N)^{1/2} of some features, (features, models, columns)."""
        return np.sqrt(self.curvature * self.spread[part, None, None] + self.common)

    def forth(self, u: Any) -> Any:
        """w of u."""
        scaled = u.copy()
        self.scale(scaled)
        w = _times(self.basis, scaled)
        w *= self.last  # in place, here and below: there may be very many
        return w

    def back(self, in_w: Any) -> Any:
        """A gradient in u from that in w: the transposed map."""
        in_u = _times(self.basis.T, self.last * in_w)
        self.scale(in_u)
        return in_u

    def bring_back(self, gradient: Any) -> None:
        """`back`, in place."""
        if len(self.basis):
            gradient[...] = self.back(gradient)
        else:
            gradient *= self.last
            self.scale(gradient)

    def inverse(self, w: Any) -> Any:
        """u of w."""
        u = _times(self.basis.T, w / self.last)
        u *= self.root()
        return u

    def matrix(self, model: int, column: int) -> np.ndarray:
        """The map of one model's column, (features, features)."""
        last, first = self.last[:, model, column], 1 / self.root()[:, model, column]
        basis = self.basis if len(self.basis) else np.eye(len(first), dtype=first.dtype)
        return last[:, None] * basis * first


def _times(basis: Any, w: Any) -> Any:
    return (basis @ w.reshape(len(w), -1)).reshape(w.shape) if len(basis) else w


def none(features: int, columns: int) -> Scaling:
    """For models that are not solved in steps."""
    return Scaling(np.zeros((0, 0)), np.ones(features), np.ones(columns))


def make(loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray) -> Scaling:
    """Q, Lambda and k of these rows, in their dtype: a wider one would widen all that follows."""
    share = weight / weight.sum()
    curvature = np.maximum(LOSSES[loss].curvature(share @ target), LEAST)
    rows, features = table.X.shape
    if features > MOST_TURNED:
        squares = share @ (table.X.power(2) if sparse.issparse(table.X) else table.X**2)
        if table.later:
            squares /= table.scale**2
        spread = np.maximum(squares - table.shift**2, LEAST)
        basis = np.zeros((0, 0))
    else:
        some = slice(None, None, max(1, rows // (ROWS_PER_FEATURE * features)))
        X, share = table.X[some], (share[some] / share[some].sum())[:, None]
        products = X.T @ (X * share) if sparse.issparse(X) else (X * share).T @ X
        products = products.toarray() if sparse.issparse(products) else products
        values, basis = np.linalg.eigh(products - np.outer(table.shift, table.shift))
        spread = np.maximum(values, 0)
    return Scaling(*(part.astype(table.shift.dtype) for part in (basis, spread, curvature)))
