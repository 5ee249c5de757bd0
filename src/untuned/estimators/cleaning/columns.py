"""The columns that linear models learn from.

Sparse columns stay as they are: divided by one number for all of them, and never centred. A model
of some rows has only those that occur there. Dense features are standardised and turned into their
principal axes and divided by sqrt(variance + floor). A loss with a second derivative of a tenth per
unit of variance, and a ridge of a tenth of the floor, are then alike along all of these, so that
conjugate gradients need few steps. Axes along which no row differs are left out. A ridge on
coefficients of the standardised features stays exactly that: in the new coordinates each has its
own share of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from untuned.estimators.cleaning import labelled_rows
from untuned.estimators.cleaning.cross_fit import Task

ALIKE = 1e-3  # a size that differs from one by less is one
WORTH = 0.9  # of the columns: with more of them, those that do not occur are no burden

PER_RIDGE = 10.0  # of floor
MOST_AXES = 2048  # above, they cost more than they save; features are only standardised
ROUNDING = 1e-6  # of its mean: a feature that varies less is constant


@dataclass(frozen=True)
class Whitening:
    """The map x -> (x - mean) @ matrix; a vector stands for a diagonal matrix."""

    mean: np.ndarray
    matrix: np.ndarray
    penalty: np.ndarray  # of each new feature, per unit of ridge

    def apply(self, features: np.ndarray) -> np.ndarray:
        """The new features."""
        centred = features - self.mean
        return centred * self.matrix if self.matrix.ndim == 1 else centred @ self.matrix

    def coefficients(
        self, coef: np.ndarray, intercept: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Those of the features as they came."""
        original = self.matrix[:, None] * coef if self.matrix.ndim == 1 else self.matrix @ coef
        return original, intercept - self.mean @ original


def usual_ridge(rows: int, columns: int) -> float:
    """The ridge to expect: that of coefficients which together make scores of about a unit."""
    return columns / (2 * rows)


def fit(block: Callable[[int], np.ndarray], weight: np.ndarray, ridge: float) -> Whitening:
    """The whitening of weighted rows; `block(start)` gives some of them, from row `start` on.

    `ridge` is the one to expect.
    """

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        start = 0
        while start < len(weight):
            rows = block(start).astype(np.float64)
            yield rows, weight[start : start + len(rows)] / weight.sum()
            start += len(rows)

    mean = sum(share @ rows for rows, share in blocks())
    variance = sum(share @ (rows - mean) ** 2 for rows, share in blocks())
    varies = variance > (ROUNDING * mean) ** 2
    scale = np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)
    if min(len(mean), len(weight)) > MOST_AXES:
        return Whitening(mean, scale, np.ones(len(mean)))
    shared = (np.sqrt(share)[:, None] * (rows - mean) * scale for rows, share in blocks())
    along, axes = _axes(shared, len(weight), len(mean))
    penalty = 1 / (along + PER_RIDGE * ridge)
    return Whitening(mean, scale[:, None] * axes * np.sqrt(penalty), penalty)


def _axes(
    standard: Iterator[np.ndarray], rows: int, columns: int
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Variances along principal axes, and the axes as columns, from blocks of rows."""
    if columns <= rows:
        along, axes = np.linalg.eigh(sum(block.T @ block for block in standard))
        differ = along > ROUNDING
        return along[differ], axes[:, differ]
    every = np.concatenate(list(standard))
    along, turned = np.linalg.eigh(every @ every.T)
    differ = along > ROUNDING
    along = along[differ]
    return along, every.T @ turned[:, differ] / np.sqrt(along)


def prepared(task: Task, ridge: float) -> tuple[Whitening, Any]:
    """How features are changed, and the changed ones; `ridge` is the one to expect."""
    X = task.X
    if issparse(X):
        squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
        # Rows that are there again have no weight.
        size = np.sqrt(max(squares[task.weight > 0].mean(), np.finfo(np.float32).tiny))
        columns = X.shape[1]
        if abs(size - 1) < ALIKE:  # as of rows of length one, like those of TF-IDF: no copy
            size = 1.0
        white = Whitening(np.zeros(columns), np.full(columns, 1 / size), np.ones(columns))
        if size == 1:
            return white, X
        # The same places for other numbers: X * factor would copy both.
        return white, csr_matrix((X.data / np.float32(size), X.indices, X.indptr), shape=X.shape)
    rows = labelled_rows.BLOCK_ROWS
    white = fit(lambda start: X[start : start + rows], task.weight, ridge)
    starts = range(0, len(X), rows)
    parts = [white.apply(X[start : start + rows]).astype(np.float32) for start in starts]
    return white, np.concatenate(parts)


def occurring(features: csr_matrix) -> tuple[np.ndarray, csr_matrix]:
    """Columns that are not zero in all of these rows, and the rows without the others; if rows are
    many and the others few, all columns and no copy. Frequent ones first: the cache holds these."""
    counts = np.bincount(features.indices, minlength=features.shape[1])
    order = np.argsort(-counts, kind="stable")
    columns = order[: np.count_nonzero(counts)]
    if labelled_rows.scarce(features) and len(columns) > WORTH * len(counts):
        return np.arange(len(counts)), features
    place = np.argsort(order).astype(features.indices.dtype)
    parts = features.data, place[features.indices], features.indptr
    return columns, csr_matrix(parts, shape=(features.shape[0], len(columns)))
