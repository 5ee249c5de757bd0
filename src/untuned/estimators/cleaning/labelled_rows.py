"""What `LabelCleaner` was given: checked, and as rows that are each there once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import _check_sample_weight, check_array, column_or_1d

from untuned.util import limits
from untuned.util.wording import brief

BLOCK_ROWS = 4096  # of what is done in blocks, to save memory


class Table(NamedTuple):
    """Noisy rows, then trusted ones."""

    sources: tuple[Any, ...]  # arrays or CSR matrices, one below the other
    label: np.ndarray  # whole numbers
    weight: np.ndarray
    trusted: np.ndarray

    def features(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, dense."""
        taken = np.empty((len(rows), self.sources[0].shape[1]), np.float32)
        above = 0
        for source in self.sources:
            here = (rows >= above) & (rows < above + source.shape[0])
            block = source[rows[here] - above]
            taken[here] = block.toarray() if issparse(block) else block
            above += source.shape[0]
        return taken


class Merged(NamedTuple):
    """Rows that are there several times, once each, in an order that is theirs alone.

    So it makes no difference whether a row is there twice or with twice the weight, nor in which
    order rows came.
    """

    first: np.ndarray  # where in the table
    weight: np.ndarray  # in all
    group: np.ndarray  # the same for equal features: whoever has seen one has seen the other
    place: np.ndarray  # of each row of the table among the merged ones; -1 where its weight is 0


def merge(table: Table) -> Merged:
    """The rows of positive weight, each once."""
    used = np.flatnonzero(table.weight > 0)
    content = _hashes(table, used)
    _, group = np.unique(content, return_inverse=True)
    order = np.lexsort([table.trusted[used], table.label[used], group])
    keys = np.stack([group, table.label[used], table.trusted[used]])[:, order]
    starts = np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(0)]
    number = np.empty(len(used), int)
    number[order] = np.cumsum(starts) - 1
    place = np.full(len(table.label), -1)
    place[used] = number
    first = used[order[starts]]
    weight = np.bincount(number, table.weight[used])
    return Merged(first, weight, group[order[starts]], place)


def _hashes(table: Table, rows: np.ndarray) -> np.ndarray:
    """One number for the features of each row; equal for equal features, and else hardly ever."""
    rng = np.random.default_rng(0)
    factors = rng.integers(1, 2**63, table.sources[0].shape[1], dtype=np.uint64) | np.uint64(1)
    hashes = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        block = table.features(rows[part]) + np.float32(0)  # there is a zero with a sign, too
        # Products wrap around, and their high bits, which depend on all low ones, come down.
        hashes[part] = block.view(np.uint32).astype(np.uint64) @ factors
    return hashes ^ (hashes >> np.uint64(32))


def check_settings(folds: Any, max_seconds: Any) -> None:
    """Raise a sentence if a setting of the cleaner's own is none; `minimize` checks the others."""
    if not isinstance(folds, (int, np.integer)) or isinstance(folds, bool) or folds < 2:
        raise ValueError(f"folds={brief(folds)} is no number of folds; give a whole number from 2.")
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(
            f"max_seconds={brief(max_seconds)} is no time; give a positive number, or None."
        )


def check_labels_present(labels: Any, name: str) -> None:
    """Raise a sentence if a label is None or NaN."""
    if labels is None:
        return  # scikit-learn has its own words for that
    values = np.asarray(labels)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in values.ravel()], bool)
    else:
        return
    if missing.any():
        raise ValueError(
            f"Input {name} contains NaN or None in {missing.sum()} of {missing.size} labels; leave "
            "those rows out, or label them."
        )


def checked_weights(sample_weight: Any, X: Any) -> np.ndarray:
    """One weight per row, none of them negative or NaN."""
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weight < 0).any():
        raise ValueError(
            f"sample_weight has a negative entry, {weight.min():.3g}; give weights of at least 0."
        )
    return weight


def check_classes(classes: np.ndarray, given: np.ndarray, weight: np.ndarray) -> None:
    """Raise a sentence if there is nothing to tell apart."""
    seen = np.unique(given[weight > 0])
    if len(seen) < 2:
        what = brief(classes[seen[0]].item()) if len(seen) else "none"
        raise ValueError(
            f"y has one class only ({what}) among rows of positive weight; give labels of at "
            "least two classes."
        )


def check_rows_differ(merged: Merged) -> None:
    """Raise a sentence if no feature tells one row from another."""
    if len(np.unique(merged.group)) < 2:
        raise ValueError(
            "X has the same features in every row; give features that differ between rows."
        )


def trusted_rows(
    X: Any, y: Any, names: Any, columns: int, classes: np.ndarray
) -> tuple[Any, np.ndarray]:
    """Trusted features, their columns in the order of `names`, and the numbers of their classes."""
    if X is None or y is None:
        came, missing = ("y_trusted", "X_trusted") if X is None else ("X_trusted", "y_trusted")
        raise ValueError(f"{came} came without {missing}; give both, or neither.")
    check_labels_present(y, "y_trusted")
    if names is not None and hasattr(X, "columns"):
        absent = [name for name in names if name not in X.columns]
        if absent or len(X.columns) != len(names):
            what = f"no column {absent[0]!r}" if absent else f"{len(X.columns)} columns"
            raise ValueError(
                f"X_trusted has {what}; expected the {len(names)} columns of X, in any order."
            )
        X = X[list(names)]
    X = check_array(X, accept_sparse="csr", input_name="X_trusted")
    limits.check(X, "X_trusted")
    y = column_or_1d(y)
    if X.shape[1] != columns:
        raise ValueError(
            f"X_trusted has {X.shape[1]} columns; expected {columns}, as many as X has."
        )
    if len(y) != X.shape[0]:
        raise ValueError(
            f"y_trusted has {len(y)} labels; expected {X.shape[0]}, one per row of X_trusted."
        )
    strange = np.setdiff1d(y, classes)
    if len(strange):
        raise ValueError(
            f"y_trusted has the class {brief(strange[0].item())}, which is not in y; expected "
            f"only classes of y, which are {brief(classes.tolist())}."
        )
    if len(y) < len(classes):
        raise ValueError(
            f"There are {len(y)} trusted rows for {len(classes)} classes; give at least one for "
            "each class, or none at all."
        )
    return X, np.searchsorted(classes, y)
