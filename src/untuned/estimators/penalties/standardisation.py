"""Features in units of their own spread: what the penalized models are fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

LARGE_SHIFT = 10.0  # spreads between a sparse column's mean and zero
BLOCK = 2**18  # entries that are worked on at once, so that no second copy of X is made
SMALL = 2**20  # entries up to which X is worked on in float64, and a sparse X is made dense


class Moments(NamedTuple):
    """The weighted mean and spread of each column, and whether it is constant (spread 1)."""

    mean: np.ndarray
    spread: np.ndarray
    constant: np.ndarray


class Standardised(NamedTuple):
    """X / scale, with `shift` still to be taken off: a sparse X would not be sparse without it."""

    X: Any
    shift: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    later: bool = False  # whether X is as it came, and `rows` are divided as they are taken

    def rows(self, part: Any) -> Standardised:
        """Some rows, by their numbers; all for a slice."""
        X = self.X if isinstance(part, slice) else self.X[part]
        if self.later:
            X = _divided(X, self.scale, self.shift.dtype)
        return self._replace(X=X, later=False)

    def dense(self, part: Any) -> np.ndarray:
        """Some rows of the standardised features."""
        X = self.X[part]
        return X.toarray() - self.shift if sparse.issparse(X) else X

    def outputs(self, coef: np.ndarray) -> np.ndarray:
        """The standardised features times `coef`."""
        return self.X @ coef - self.shift @ coef

    def gradient(self, slopes: np.ndarray) -> np.ndarray:
        """The transposed product."""
        return self.X.T @ slopes - np.outer(self.shift, slopes.sum(axis=0))


def in_order(X: Any) -> Any:
    """X, whose places are shared below; SciPy would sort those, and not X's numbers with them."""
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def make(X: Any, moments: Moments, together: bool = False, later: bool = False) -> Standardised:
    """`X` standardised by the mean and spread of its columns; a constant one becomes 0.

    So does one whose spread is below what its dtype can hold to more than a few digits. `together`
    divides all others by the same number, so that columns keep the units they came in. A sparse X
    is to be `in_order`; `later` spares a second array of its numbers where some rows are used at a
    time.
    """
    rows, features = X.shape
    dtype = np.float64 if rows * features <= SMALL else np.float32
    if sparse.issparse(X) and not stays_sparse(X):
        X = X.toarray()
    mean, spread, constant = moments
    if together and not constant.all():
        spread = np.full(features, np.mean(spread[~constant] ** 2) ** 0.5)
    scale = np.where(constant, 1.0, spread)
    if (np.abs(mean) > LARGE_SHIFT * scale).any() and sparse.issparse(X):
        dtype = np.float64  # products with such a column are small differences of large numbers
    shift = np.zeros(features)
    scaled: Any
    if sparse.issparse(X):
        scaled = X if later else _divided(X, scale, np.dtype(dtype))
        shift = mean / scale
    else:
        scaled = np.empty((rows, features), dtype)
        for part, block in _blocks(X):
            scaled[part] = np.where(constant, 0.0, (block - mean) / scale)
    return Standardised(scaled, shift.astype(dtype), mean, scale, later)


def moments(X: Any, weight: np.ndarray) -> Moments:
    """Those of the columns, for rows of these weights."""
    share = weight / weight.sum()
    mean, squares = np.zeros((2, X.shape[1]))
    for part, block in _blocks(X):
        mean += share[part] @ block
    for part, block in _blocks(X):
        if sparse.issparse(block):
            # Of entries, and of the zeros beside them: no difference of large numbers.
            some = share[part]
            away = block.copy()
            away.data = (away.data - mean[away.indices]) ** 2
            here = block.copy()
            here.data = np.ones_like(here.data)
            squares += some @ away + (some.sum() - some @ here) * mean**2
        else:
            squares += share[part] @ (block - mean) ** 2
    spread = np.sqrt(np.maximum(squares, 0))
    kind = np.finfo(X.dtype)
    constant = spread <= np.maximum(10 * kind.eps * np.abs(mean), kind.tiny)
    return Moments(mean, np.where(constant, 1.0, spread), constant)


def _divided(X: Any, scale: np.ndarray, dtype: np.dtype) -> Any:
    """X / scale, with the same places for other numbers: no second copy of them."""
    data = X.data / scale[X.indices].astype(dtype)
    return sparse.csr_array((data.astype(dtype, copy=False), X.indices, X.indptr), X.shape)


def stays_sparse(X: Any) -> bool:
    """Whether X is sparse, and neither small nor would take less memory if it were dense."""
    rows, features = X.shape
    return bool(sparse.issparse(X) and rows * features > max(SMALL, 3 * X.nnz))


def parts(X: Any) -> Iterator[slice]:
    """Rows that are worked on at once."""
    step = max(1, BLOCK // X.shape[1])
    for start in range(0, X.shape[0], step):
        yield slice(start, start + step)


def _blocks(X: Any) -> Iterator[tuple[slice, Any]]:
    """Parts of the rows in float64."""
    for part in parts(X):
        yield part, X[part].astype(np.float64)
