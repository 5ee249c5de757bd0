"""Which rows train which model, which rows judge the strengths, and which judge the judges.

Strengths are chosen by the loss on rows that the models have not seen. Where they are many, they
can fit those rows too, so the choice itself needs a judge: rows that neither the models nor the
strengths have seen. Every row is such a judge once:

* three or more folds: for each fold k strengths x_k, chosen by models that train on all folds but
  k and j and are validated on j, for every j; a model with the same x_k, trained on all folds but
  k, is judged on k.
* one or two splits: the validation rows of each are cut in two halves; strengths are chosen on one
  half and judged on the other, and the other way round (of very wide rows the first alone).

The mean of all logarithms of strengths is the result.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from untuned.estimators.penalties import standardisation
from untuned.util.wording import brief

FEW_ROWS = 5000  # above, a split will do to find many strengths: all rows are asked afterwards
FOLDS, SHARE = 5, 0.2
WIDE, FOLDS_OF_WIDE = 1024, 3  # features, above which models are costly
FEWEST_ROWS = 100  # below, the judges' standard error hides any gain from more than one strength
MANY_ROWS, ROWS_PER_FEATURE = 2**14, 10  # say enough about strengths, which do not grow with rows

Splits = list[tuple[np.ndarray, np.ndarray]]
DIGITS = 2.0**20  # steps per spread of a column, by which rows are told apart


class Draw(NamedTuple):
    """A random order of rows that depends on what is in them, and not on where they are."""

    key: np.ndarray  # (rows,), the same for equal rows
    random: np.random.Generator

    def places(self, strata: np.ndarray, shuffle: bool = True) -> np.ndarray:
        """0, 1, 2, ... along the rows sorted by stratum, in random order within each."""
        order = np.argsort(self.key, kind="stable")
        if shuffle:
            order = order[self.random.permutation(len(order))]
        order = order[np.argsort(strata[order], kind="stable")]
        place = np.empty(len(strata), np.int64)
        place[order] = np.arange(len(strata))
        return place

    def some(self, part: Any) -> Draw:
        """Of some rows."""
        return self._replace(key=self.key[part])


def draw(X: Any, scale: np.ndarray, target: np.ndarray, seed: int) -> Draw:
    """Sums of whole numbers, which have no rounding: the order of sums cannot show in them.

    Columns are in units of their spread, so the draw does not depend on units. Targets are in the
    units of the caller.
    """
    factors = np.random.default_rng(0).integers(2**63, size=len(scale) + target.shape[1]) | 1
    key = _whole(target) @ factors[len(scale) :]
    for part in standardisation.parts(X):  # one after another, which spares a copy of X
        block: Any = X[part]
        if sparse.issparse(X):
            whole = _whole(block.data / scale[block.indices])
            block = sparse.csr_array((whole, block.indices, block.indptr), block.shape)
        else:
            block = _whole(block / scale)
        key[part] += block @ factors[: len(scale)]
    return Draw(key, np.random.default_rng(seed))


def _whole(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values * DIGITS), -(2.0**62), 2.0**62).astype(np.int64)


class RowRoles(NamedTuple):
    """Masks of shape (rows, models), and (models, vectors) shares of the vectors of strengths."""

    train: np.ndarray
    valid: np.ndarray
    judge: np.ndarray
    mix: np.ndarray
    split: np.ndarray  # (models,), that of cv which a model's training rows are of


class Plans(NamedTuple):
    """The plans of a search; `one` is None where each row is left out once, in closed form."""

    one: RowRoles | None
    many: RowRoles | None = None  # for more than one strength
    check: RowRoles | None = None  # judges that had no part in `many`


def splits(cv: Any, X: Any, strata: np.ndarray, drawn: Draw) -> Splits:
    """`cv` as pairs of row numbers (train, validation); see BilevelLogisticRegression."""
    rows, given = len(strata), cv
    if cv is None:
        wide = X is not None and X.shape[1] > WIDE
        cv = min(FOLDS_OF_WIDE if wide else FOLDS, rows)
    if isinstance(cv, bool) or (isinstance(cv, numbers.Real) and not _is_usable(cv, rows)):
        raise ValueError(
            f"cv={cv!r} is not usable on {rows} rows; expected a number of folds from 2 to {rows}, "
            "a share of the rows between 0 and 1, a splitter, pairs (train, test) or None."
        )
    if isinstance(cv, numbers.Integral):
        _warn_of_rare(strata, given)
        return _by_fold(drawn.places(strata) % int(cv))
    if isinstance(cv, numbers.Real):
        # The i-th row of a class is held out where i times the share passes a whole number.
        place = drawn.places(strata)
        held = np.floor((place + 1) * float(cv) + 0.5) > np.floor(place * float(cv) + 0.5)
        return [(np.flatnonzero(~held), np.flatnonzero(held))]
    if hasattr(cv, "split") and not isinstance(cv, str):
        return [(np.asarray(a), np.asarray(b)) for a, b in cv.split(X, strata)]
    if not isinstance(cv, Iterable) or isinstance(cv, str):
        raise ValueError(
            f"cv={brief(cv)} is not usable; expected a number of folds, a share of the rows, a "
            "splitter, pairs (train, test) or None."
        )
    return [(np.asarray(a), np.asarray(b)) for a, b in cv]


def among(cv: Any, X: Any, strata: np.ndarray, used: np.ndarray) -> Any:
    """`cv` for some of the rows: where it names rows by their places, the others are left out."""
    if (
        cv is None
        or isinstance(cv, numbers.Real | str)
        or not (hasattr(cv, "split") or isinstance(cv, Iterable))
    ):
        return cv
    pairs = cv.split(X, strata) if hasattr(cv, "split") else cv
    place = np.full(len(strata), -1)
    place[used] = np.arange(len(used))
    masks = ((_mask(train, len(place)), _mask(test, len(place))) for train, test in pairs)
    return [tuple(place[mask & (place >= 0)] for mask in pair) for pair in masks]


def sample(strata: np.ndarray, features: int, drawn: Draw) -> np.ndarray:
    """The rows to search penalties with: all, or of many some, in the shares of their strata."""
    most, rows = max(MANY_ROWS, ROWS_PER_FEATURE * features), len(strata)
    if rows <= most:
        return np.arange(rows)
    place = drawn.places(strata)
    chosen = np.floor(place * most / rows) > np.floor((place - 1) * most / rows)
    # The first row of each stratum is among them, so that no class is missing.
    ordered = np.sort(strata)
    chosen |= np.isin(place, np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]))
    return np.flatnonzero(chosen)


def can_tell_apart(weight: np.ndarray) -> bool:
    """Whether rows are enough to judge more than one strength."""
    return bool(weight.sum() >= FEWEST_ROWS)


def plan(
    pairs: Splits, strata: np.ndarray, weight: np.ndarray, many: bool, drawn: Draw
) -> RowRoles:
    """The models to train for these splits; `many` for more than one strength."""
    count = len(strata)
    sides = [(_mask(train, count), _mask(test, count)) for train, test in pairs]
    for number, (train, test) in enumerate(sides):
        for name, mask in (("train", train), ("validate", test)):
            if not weight[mask].sum() > 0:
                raise ValueError(
                    f"Split {number} of cv has no rows of positive weight to {name} on; expected "
                    "some on either side, so give fewer folds or more rows."
                )
    none = np.zeros(count, bool)
    if not many:
        models = [(train, test & ~train, none, 0, k) for k, (train, test) in enumerate(sides)]
    else:
        nested = _nested(sides)
        sound = len(sides) > 2 and all(
            weight[train].sum() > 0 and weight[valid | judge].sum() > 0
            for train, valid, judge, *_ in nested
        )
        models = nested if sound else _halved(sides, strata, drawn)
    trains, valids, judges, owners, split = zip(*models, strict=True)
    known = [_knowable(b, a, strata, weight) for a, b in zip(trains, valids, strict=True)]
    mix = np.zeros((len(models), 1 + owners[-1]))
    mix[np.arange(len(models)), list(owners)] = 1
    train, valid, judge = (np.stack(part, axis=1) for part in (trains, known, judges))
    return RowRoles(train, valid, judge, mix, np.array(split))


def alike(roles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of rows by their roles, (rows, roles): the first of each kind, and the kind of each."""
    packed = np.ascontiguousarray(np.packbits(roles, axis=1))
    # As one item a row: NumPy's own way to compare rows takes many times as long.
    items = packed.view(f"S{packed.shape[1]}").ravel()
    _, first, number = np.unique(items, return_index=True, return_inverse=True)
    return first, number


def of_half(plan: RowRoles) -> RowRoles:
    """The first model of a plan: one half of the rows held back chooses, the other judges.

    Enough where models are large and other rows are asked afterwards.
    """
    train, valid, judge, mix, split = plan
    return RowRoles(train[:, :1], valid[:, :1], judge[:, :1], mix[:1, :1], split[:1])


def elsewhere(
    pairs: Splits, strata: np.ndarray, weight: np.ndarray, many: RowRoles, drawn: Draw
) -> RowRoles:
    """Models of these splits, judged by the rows that had no part in finding many strengths."""
    plan_of = plan(pairs, strata, weight, many=False, drawn=drawn)
    return plan_of._replace(judge=plan_of.valid & ~(many.valid | many.judge).any(axis=1)[:, None])


def _nested(sides: list) -> list:
    none = np.zeros_like(sides[0][0])
    models = []
    for k, (train_k, test_k) in enumerate(sides):
        for j, (train, test) in enumerate(sides):
            if j != k:
                models.append((train & ~test_k, test & ~train & ~test_k, none, k, k))
        models.append((train_k & ~test_k, none, test_k, k, k))
    return models


def _halved(sides: list, strata: np.ndarray, drawn: Draw) -> list:
    models: list = []
    for k, (train, test) in enumerate(sides):
        test = test & ~train
        half = np.zeros_like(test)
        rows = np.flatnonzero(test)
        half[rows[drawn.some(rows).places(strata[rows], shuffle=False) % 2 == 0]] = True
        models.append((train, test & half, test & ~half, 2 * k, k))
        models.append((train, test & ~half, test & half, 2 * k + 1, k))
    return models


def _knowable(
    test: np.ndarray, train: np.ndarray, strata: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """The validation rows of classes that the training rows have: no strength helps with others."""
    seen = np.bincount(strata, weight * train, strata.max() + 1)[strata] > 0
    return test & seen if weight[test & seen].sum() > 0 else test


def _warn_of_rare(strata: np.ndarray, folds: int | None) -> None:
    """Say it where some folds asked for have no row of a class."""
    rarest = np.unique(strata, return_counts=True)[1].min()
    if folds is not None and rarest < folds:
        warnings.warn(
            f"cv={folds} asks for more folds than the rarest class has rows, {rarest}; in some "
            "folds it is not judged, so give fewer folds or more of its rows.",
            UserWarning,
            stacklevel=2,
        )


def _is_usable(cv: Any, rows: int) -> bool:
    return 2 <= int(cv) <= rows if isinstance(cv, numbers.Integral) else 0 < cv < 1


def _mask(rows: np.ndarray, count: int) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[rows] = True
    return mask


def _by_fold(fold: np.ndarray) -> Splits:
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]
