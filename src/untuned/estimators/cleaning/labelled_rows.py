"""What `LabelCleaner` was given: checked, and as rows that are each there once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack
from sklearn.utils.validation import _check_sample_weight, check_array, column_or_1d

from untuned.util import limits
from untuned.util.wording import brief

BLOCK_ROWS = 4096  # of what is done in blocks, to save memory
LARGE = 2**18  # entries of sparse rows
FEW_AGAIN = 0.9  # share of rows that differ, above which the others are no burden


class Table(NamedTuple):
    """Noisy rows, then trusted ones."""

    X: Any  # float32, an array or a CSR matrix
    label: np.ndarray  # whole numbers
    weight: np.ndarray
    trusted: np.ndarray


def scarce(X: Any) -> bool:
    """Whether memory may be: then most rows are never copied, and probabilities take half of it."""
    return issparse(X) and X.nnz > LARGE


def in_float32(X: Any) -> Any:
    """X in the precision all models work in; a sparse matrix in one form for equal content.

    Where memory may be scarce, columns stay in the order in which they came.
    """
    if not issparse(X):
        return np.asarray(X, np.float32)
    X = csr_matrix(X, dtype=np.float32)
    as_good = X.has_canonical_format or (scarce(X) and not _repeats(X))
    if not as_good or not X.data.all():
        X = X.copy()  # it may be the user's own
        X.sum_duplicates()
        X.eliminate_zeros()
    if X.indices.dtype != np.int32 and max(X.nnz, X.shape[1]) < 2**31:  # trees take no others
        places = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        X = csr_matrix((X.data, *places), shape=X.shape)
    return X


def _repeats(X: csr_matrix) -> bool:
    """Whether a row has a column twice."""
    for start in range(0, X.shape[0], BLOCK_ROWS):
        ends = X.indptr[start : start + BLOCK_ROWS + 1].astype(np.int64)
        row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        places = row * X.shape[1] + X.indices[ends[0] : ends[-1]]
        if len(np.unique(places)) < len(places):
            return True
    return False


def below(X: Any, trusted: Any) -> Any:
    """Trusted rows below the others, both of them sparse if one is."""
    if issparse(X) or issparse(trusted):
        return vstack([X, trusted], format="csr")
    return np.concatenate([X, trusted])


class Merged(NamedTuple):
    """Rows that are there several times, once each, and an order that is theirs alone.

    So it makes no difference whether a row is there twice or with twice the weight, nor in which
    order rows came. Large sparse tables of which few rows are there again are the exception: their
    rows stay where they are, as memory may be scarce, and the first of equal ones has the weight of
    all. There it makes no difference but that of rounding and of what is drawn by lot.
    """

    first: np.ndarray  # where in the table
    weight: np.ndarray  # in all
    group: np.ndarray  # the same for equal features: whoever has seen one has seen the other
    place: np.ndarray  # of each row of the table among the merged ones; -1 where its weight is 0
    order: np.ndarray  # of the merged ones


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
    if scarce(table.X) and len(used) == len(place) and len(first) > FEW_AGAIN * len(place):
        here, spread = np.arange(len(place)), np.zeros(len(place))
        spread[first] = weight
        return Merged(here, spread, group, here, order)
    return Merged(first, weight, group[order[starts]], place, np.arange(len(first)))


def _hashes(table: Table, rows: np.ndarray) -> np.ndarray:
    """One number for the features of each row; equal for equal features, and else hardly ever."""
    X = table.X
    rng = np.random.default_rng(0)
    factors = rng.integers(1, 2**63, X.shape[1], dtype=np.uint64) | np.uint64(1)
    hashes = np.empty(len(rows), np.uint64)
    # Products wrap around, and their high bits, which depend on all low ones, come down.
    if issparse(X):
        products = X.data.view(np.uint32).astype(np.uint64) * factors[X.indices]
        sums = np.r_[np.uint64(0), np.cumsum(products, dtype=np.uint64)]
        hashes = (sums[X.indptr[1:]] - sums[X.indptr[:-1]])[rows]
    else:
        for start in range(0, len(rows), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            block = X[rows[part]] + np.float32(0)  # there is a zero with a sign, too
            hashes[part] = block.view(np.uint32).astype(np.uint64) @ factors
    return hashes ^ (hashes >> np.uint64(32))


def check_settings(folds: Any, max_seconds: Any) -> None:
    """Raise a sentence if a setting of the cleaner's own is none; `minimize` checks the others."""
    named = isinstance(folds, str) and folds == "auto"
    whole = isinstance(folds, (int, np.integer)) and not isinstance(folds, bool)
    if not named and not (whole and folds >= 2):
        raise ValueError(
            f"folds={brief(folds)} is no number of folds; give a whole number from 2, or 'auto'."
        )
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
    """Raise a sentence if there is nothing to tell apart, or a class that is one row."""
    seen = np.unique(given[weight > 0])
    if len(seen) < 2:
        what = brief(classes[seen[0]]) if len(seen) else "none"
        raise ValueError(
            f"y has one class only ({what}) among rows of positive weight; give labels of at "
            "least two classes."
        )
    counts = np.bincount(given, minlength=len(classes))
    lonely = classes[counts == 1].tolist()
    if lonely:
        which = (
            f"class {brief(lonely[0])} has" if len(lonely) == 1 else f"classes {brief(lonely)} have"
        )
        raise ValueError(
            f"The {which} one row, which no other can speak for or against; check how such labels "
            "are written, leave their rows out, or give at least two of each class."
        )


def check_probabilities(pred_probs: Any, rows: int, classes: np.ndarray) -> np.ndarray:
    """Probabilities of one's own model, one row per sample and one column per class."""
    P = np.asarray(pred_probs)
    if P.dtype.kind not in "fiu" or P.shape != (rows, len(classes)):
        raise ValueError(
            f"pred_probs is of shape {P.shape} and dtype {P.dtype}; expected numbers of shape "
            f"({rows}, {len(classes)}), one row per label and one column per class of y, which are "
            f"{brief(classes.tolist())}."
        )
    P = P.astype(np.float64)
    sums = P.sum(axis=1)
    if not ((P >= 0).all() and (np.abs(sums - 1) <= 1e-2).all()):
        worst = int(
            np.argmax(
                np.where(np.isfinite(sums), np.abs(sums - 1) - np.minimum(P.min(axis=1), 0), np.inf)
            )
        )
        raise ValueError(
            f"pred_probs has rows that are no probabilities: row {worst} has the smallest entry "
            f"{P[worst].min():.3g} and the sum {sums[worst]:.4g}; expected entries from 0 to 1 "
            "that sum to 1, as softmax or predict_proba gives them."
        )
    return P / sums[:, None]


def check_unseen(P: np.ndarray, given: np.ndarray, name: str = "pred_probs") -> None:
    """Raise a sentence if probabilities look like those of a model that has seen these labels;
    `name` is what the user calls them."""
    if (P[np.arange(len(given)), given] > 0.99).all():
        raise ValueError(
            f"{name} is certain of every given label, as a model is of rows it was trained on; "
            "give those of unseen rows, e.g. from sklearn.model_selection.cross_val_predict."
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
            f"y_trusted has the class {brief(strange[0])}, which is not in y; expected "
            f"only classes of y, which are {brief(classes.tolist())}."
        )
    if len(y) < len(classes):
        raise ValueError(
            f"There are {len(y)} trusted rows for {len(classes)} classes; give at least one for "
            "each class, or none at all."
        )
    return X, np.searchsorted(classes, y)


def means(P: np.ndarray, place: np.ndarray, count: int) -> np.ndarray:
    """The mean probabilities of rows that were merged; all classes alike for trusted ones."""
    used = place >= 0
    total = np.zeros((count, P.shape[1]))
    np.add.at(total, place[used], P[used])
    rows = total.sum(axis=1, keepdims=True)
    return np.where(rows > 0, total / np.where(rows > 0, rows, 1.0), 1 / P.shape[1])
