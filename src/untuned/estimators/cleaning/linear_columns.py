"""The columns that linear judges learn from.

Dense columns are standardised and turned (whitening.py). Sparse ones stay as they are: divided by
one number for all of them, and never centred. A model of some rows has only those that occur there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from untuned.estimators.cleaning import labelled_rows, whitening
from untuned.estimators.cleaning.folds import Task

ALIKE = 1e-3  # a size that differs from one by less is one
WORTH = 0.9  # of the columns: with more of them, those that do not occur are no burden


def prepared(task: Task, ridge: float) -> tuple[whitening.Whitening, Any]:
    """How features are changed, and the changed ones; `ridge` is the one to expect."""
    X = task.X
    if issparse(X):
        squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
        # Rows that are there again have no weight.
        size = np.sqrt(max(squares[task.weight > 0].mean(), np.finfo(np.float32).tiny))
        columns = X.shape[1]
        if abs(size - 1) < ALIKE:  # as of rows of length one, like those of TF-IDF: no copy
            size = 1.0
        white = whitening.Whitening(np.zeros(columns), np.full(columns, 1 / size), np.ones(columns))
        if size == 1:
            return white, X
        # The same places for other numbers: X * factor would copy both.
        return white, csr_matrix((X.data / np.float32(size), X.indices, X.indptr), shape=X.shape)
    rows = labelled_rows.BLOCK_ROWS
    white = whitening.fit(lambda start: X[start : start + rows], task.weight, ridge)
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
