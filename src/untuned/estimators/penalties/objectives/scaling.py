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

    There may be very many coefficients, so only one array of their number is kept for it, and that
    only where there is no Q: to find it anew took a fifth of the time of a product with X.
    """

    last: Any  # E; where there is no Q, E (k Lambda + t/N)^{-1/2}: (features, models, columns)
    basis: Any
    spread: Any  # Lambda, (features,)
    curvature: Any  # k, (columns,)
    common: Any  # t/N, (models, 1)

    @classmethod
    def make(cls, s: Any, t: Any, total: Any, scaling: Any) -> Turn:
        """For strengths s (features, models, columns), or t (models,) where they do not differ."""
        common, k = (t / total)[:, None], scaling.curvature
        last = ((k + common) / (k + s / total[:, None])) ** 0.5
        turn = cls(last, scaling.basis, scaling.spread, k, common)
        if len(turn.basis):
            return turn
        first = turn.root()
        return turn._replace(last=np.divide(last, first, out=first))

    def some(self, part: slice) -> Turn:
        """That of some features; only where there is no basis."""
        return self._replace(last=self.last[part], spread=self.spread[part])

    def root(self) -> Any:
        """(k Lambda + t/N)^{1/2}, (features, models, columns)."""
        return np.sqrt(self.curvature * self.spread[:, None, None] + self.common)

    def forth(self, u: Any) -> Any:
        """w of u."""
        if not len(self.basis):
            return u * self.last
        w = _times(self.basis, u / self.root())
        w *= self.last
        return w

    def back(self, in_w: Any) -> Any:
        """A gradient in u from that in w: the transposed map."""
        if not len(self.basis):
            return in_w * self.last
        in_u = _times(self.basis.T, self.last * in_w)
        in_u /= self.root()
        return in_u

    def bring_back(self, gradient: Any) -> None:
        """`back`, in place: there may be very many."""
        if len(self.basis):
            gradient[...] = self.back(gradient)
        else:
            gradient *= self.last

    def inverse(self, w: Any) -> Any:
        """u of w."""
        if not len(self.basis):
            return w / self.last
        u = _times(self.basis.T, w / self.last)
        u *= self.root()
        return u

    def matrix(self, model: int, column: int) -> np.ndarray:
        """The map of one model's column, (features, features)."""
        last, first = self.last[:, model, column], 1 / self.root()[:, model, column]
        return last[:, None] * self.basis * first if len(self.basis) else np.diag(last)


def _times(basis: Any, w: Any) -> Any:
    return (basis @ w.reshape(len(w), -1)).reshape(w.shape)


def none(features: int, columns: int) -> Scaling:
    """For models that are not solved in steps."""
    return Scaling(np.zeros((0, 0)), np.ones(features), np.ones(columns))


def make(loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray) -> Scaling:
    """Q, Lambda and k of these rows, in their dtype: a wider one would widen all that follows."""
    share = weight / weight.sum()
    curvature = np.maximum(LOSSES[loss].curvature(share @ target), LEAST)
    features = table.X.shape[1]
    if features > MOST_TURNED:
        squares = share @ (table.X.power(2) if sparse.issparse(table.X) else table.X**2)
        if table.later:
            squares /= table.scale**2
        spread = np.maximum(squares - table.shift**2, LEAST)
        basis = np.zeros((0, 0))
    else:
        used = np.flatnonzero(share)  # those without a weight could be every second one
        step = max(1, len(used) // (ROWS_PER_FEATURE * features))
        some: Any = used[::step] if step > 1 else slice(None)
        X, share = table.X[some], (share[some] / share[some].sum())[:, None]
        products = X.T @ (X * share) if sparse.issparse(X) else (X * share).T @ X
        products = products.toarray() if sparse.issparse(products) else products
        values, basis = np.linalg.eigh(products - np.outer(table.shift, table.shift))
        spread = np.maximum(values, 0)
    return Scaling(*(part.astype(table.shift.dtype) for part in (basis, spread, curvature)))
