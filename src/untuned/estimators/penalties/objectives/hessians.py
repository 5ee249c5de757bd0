"""The Hessians of g by which its systems are solved or conditioned: one per model, or one for all.

To make and invert that of a model costs about as many of its products as it has variables. Where
those are few, each model has its own. Where they are more, one Hessian may serve all models of a
plan: most of their rows are the same, and in coordinates that are turned and scaled by their own
strengths (scaling.py) they curve about alike. It costs no more than its part of that, and
conjugate gradients then take some ten steps where without it they take fifty or, with columns that
say nearly the same, hundreds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from untuned.closed_form import stacked
from untuned.closed_form.losses import Map
from untuned.solvers.numerics.preconditioner import MOST_VARIABLES

if TYPE_CHECKING:
    from untuned.estimators.penalties.objectives.objective import Models, Point

# Products that a Hessian may cost: conjugate gradients take some tens, or a few hundred.
MOST_INVERTED = 128


def blocks(models: Models, y: np.ndarray) -> tuple[int | None, int, float]:
    """How many are made (None: none), of how many variables, and the price of each variable.

    That is the share of the rows they are made of, and of the models, in products with all.
    """
    count, variables = len(y), y[0].size
    share = 1 / stacked.every(models.target.shape[-1], variables)
    if variables <= MOST_INVERTED:
        return count, variables, share
    if variables <= min(MOST_INVERTED * count, MOST_VARIABLES):
        return 1, variables, share / count
    return None, y.size, 1.0


def make(models: Models, at: Point) -> np.ndarray:
    """Of each model from some of its rows, or of one with the mean of all weights and outputs."""
    used = np.flatnonzero(models.train.any(axis=(0, 1)))  # others could be every second one
    some = used[:: stacked.every(len(used), at.y[0].size)]
    X = models.table.X[some]
    X = (X.toarray() if sparse.issparse(X) else X) - models.table.shift
    train, z = models.train[:, 0, some], at.z[:, :, some]
    count = blocks(models, at.y)[0]
    if count == 1:
        train, z = (part.mean(axis=0, keepdims=True) for part in (train, z))
    found = []
    for k in range(len(z)):
        bend = models.loss.bend(z[k], 0, models.target[:, some])
        found.append(_of(models, at, k, X, bend, train[k] / train[k].sum()))
    return np.stack(found)


def _of(
    models: Models, at: Point, k: int, X: np.ndarray, bend: Map, weight: np.ndarray
) -> np.ndarray:
    """With the scales and strengths of model k."""
    turn, strengths, columns = at.strengths.turn, at.strengths.s, range(at.y.shape[2])
    turns = [turn.matrix(k, c) for c in columns]
    ones = [np.full(len(X), models.down[c], X.dtype) for c in columns]
    along = [np.column_stack([X @ turns[c], ones[c]]) for c in columns]
    block = stacked.hessian(along, bend, weight)
    for c in columns:
        held = strengths[:, k, c] / models.shares.total[k]
        block[:-1, c, :-1, c] += turns[c].T @ (held[:, None] * turns[c])
    pull = models.intercept_penalty * np.eye(len(columns)) + np.outer(models.alike, models.alike)
    block[-1, :, -1] += pull
    return block.reshape(at.y[0].size, -1)
