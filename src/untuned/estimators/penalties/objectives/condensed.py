"""Rows of squared errors, condensed: a few that say the same as all of a fold.

What all rows with the same roles (folds.py) say about coefficients w and an intercept b is the sum
of weight (x w + b - t)^2, which is |R (w, b, -1)|^2 for R of a QR decomposition: as many rows as
there are coefficients, however many there were. A reflection makes R's column of the intercept
constant, so that what is left looks like rows with equal weights and an intercept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from untuned.estimators.penalties.folds import FOLDS, RowRoles, alike
from untuned.estimators.penalties.standardisation import Standardised

WORTH = 2  # times fewer rows, or it is not worth the work
MOST_FEATURES = 1024


class Condensed(NamedTuple):
    """What a search needs of rows."""

    table: Standardised
    target: np.ndarray
    weight: np.ndarray
    plan: RowRoles


def applies(rows: int, features: int, columns: int) -> bool:
    """Whether there are many more rows than coefficients in each fold."""
    few = features <= MOST_FEATURES
    return few and rows >= WORTH * FOLDS * (features + columns + 1)


def make(table: Standardised, target: np.ndarray, weight: np.ndarray, plan: RowRoles) -> Condensed:
    """The rows of each set of roles condensed."""
    first, number = alike(np.hstack([plan.train, plan.valid, plan.judge]))
    number = np.where(weight > 0, number, -1)
    parts = [_rows(table, target, weight, np.flatnonzero(number == k)) for k in range(len(first))]
    source = np.repeat(first, [len(rows[0]) for rows in parts])
    X, new_target, new_weight = (np.concatenate(each) for each in zip(*parts, strict=True))
    nothing = np.zeros(X.shape[1])
    roles_of = plan._replace(
        train=plan.train[source], valid=plan.valid[source], judge=plan.judge[source]
    )
    return Condensed(
        Standardised(X, nothing, nothing, nothing + 1), new_target, new_weight, roles_of
    )


def _rows(
    table: Standardised, target: np.ndarray, weight: np.ndarray, which: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets and weights that stand for these rows."""
    features, columns = table.X.shape[1], target.shape[1]
    width = features + 1 + columns
    if len(which) <= width:
        return table.dense(which).astype(np.float64), target[which], weight[which]
    R = np.zeros((0, width))
    step = 8 * width
    for start in range(0, len(which), step):
        part = which[start : start + step]
        ones = np.ones((len(part), 1))
        block = np.hstack([table.dense(part), ones, target[part]]) * weight[part, None] ** 0.5
        R = np.asarray(np.linalg.qr(np.vstack([R, block]), mode="r"))
    ones = R[:, features]
    size = np.linalg.norm(ones) / width**0.5
    away = ones + np.copysign(size, ones.sum())  # the farther of the two mirrors: no cancellation
    R -= np.outer(away, 2 / (away @ away) * (away @ R))
    R /= R[:, features].mean()
    total = weight[which].sum()
    return R[:, :features], R[:, features + 1 :], np.full(width, total / width)
