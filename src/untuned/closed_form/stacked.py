"""Many linear models on the same rows: outputs, gradients, Hessians.

Outputs and what is of their shape have rows last, (models, columns, rows): sums over a few columns
are then sums of long vectors, which are quick. y is (models, features + 1, columns), the intercept
last, so that each model's entries follow each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from untuned.closed_form.losses import Map

ROWS_PER_VARIABLE = 10  # that a Hessian is made of: the mean over more hardly differs
CHEAP = (
    2**24
)  # multiplications for a Hessian that are worth no sample: with heavy tails rows differ


def coefficients(y: np.ndarray) -> np.ndarray:
    """Those of y, (features, models, columns)."""
    return y[:, :-1].swapaxes(0, 1)


def joined(coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """y, or a gradient in it, of its two parts."""
    return np.concatenate([coef.swapaxes(0, 1), intercept[:, None]], axis=1)


def outputs(X: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Of coefficients (features, models, columns) and intercepts (models, columns)."""
    flat = coef.reshape(len(coef), -1)
    z = np.ascontiguousarray((X @ flat).T) if sparse.issparse(X) else flat.T @ X.T
    z = z.reshape(*coef.shape[1:], -1)
    z += intercept[:, :, None]
    return z


def back(X: Any, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The transposed map: from a gradient in outputs to those in coefficients and intercepts."""
    models, columns, rows = slopes.shape
    flat = slopes.reshape(-1, rows)
    in_coef = X.T @ flat.T if sparse.issparse(X) else (flat @ X).T
    return in_coef.reshape(-1, models, columns), flat.sum(axis=1).reshape(models, columns)


def every(rows: int, variables: int) -> int:
    """Which rows make a Hessian: every one, every second, ..."""
    enough = max(ROWS_PER_VARIABLE * variables, CHEAP // variables**2)
    return max(1, rows // enough)


def with_ones(X: Any) -> Any:
    """X with a column for the intercepts."""
    ones = np.ones((X.shape[0], 1), X.dtype)
    return sparse.hstack([X, ones], format="csr") if sparse.issparse(X) else np.hstack([X, ones])


def hessian(along: list[Any], bend: Map, weight: np.ndarray) -> np.ndarray:
    """Of a model's weighted loss in its y: (entries, columns, entries, columns).

    `along[c]` is the derivative of its outputs of column c in the entries of y's column c.
    """
    columns, (rows, entries) = len(along), along[0].shape
    units = np.eye(columns, dtype=weight.dtype)
    block = np.empty((entries, columns, entries, columns), weight.dtype)
    for c in range(columns):
        curves = bend(np.repeat(units[c][:, None], rows, axis=1)) * weight
        for d in range(c + 1):
            if sparse.issparse(along[c]):
                part = (along[c].multiply(curves[d][:, None]).T @ along[d]).toarray()
            else:
                part = (along[c] * curves[d][:, None]).T @ along[d]
            block[:, c, :, d], block[:, d, :, c] = part, part.T
    return block
