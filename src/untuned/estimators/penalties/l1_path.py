"""The models of all folds along one strength, from the one that leaves no coefficient.

Strengths may differ between groups by factors that are given, for each model its own: then the one
strength multiplies them all. Squared errors go through scikit-learn's coordinate descent, a stretch
of the path in one call, with columns divided by their factors; other losses through our solver.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from untuned.closed_form.losses import LOSSES, bounded
from untuned.estimators.penalties import l1, l1_quadratic
from untuned.estimators.penalties.l1 import Fit
from untuned.estimators.penalties.l1_objective import L1Objective, penalty
from untuned.estimators.penalties.outcome import Limit
from untuned.estimators.penalties.path import Trail
from untuned.estimators.penalties.validation import Rows
from untuned.util import watch

STRENGTHS, REACH = 48, 1e-3  # of the path, and its end as a share of its beginning
STRETCH = 8  # strengths that are solved for in one call
WORSE = 10  # strengths in a row without a gain, that end the path
ROUGH = 0.01  # of the strength: by how much slopes may be off along a path
NEARLY = 1e-4  # of the target's spread, the gap that is left along a path


class Best(NamedTuple):
    """The best point of a path."""

    strength: float
    value: float  # the mean loss of the rows held back
    losses: np.ndarray  # of each of them
    y: np.ndarray  # models there, (models, features + 1, columns)


class HeldBack:
    """The rows that validate, model by model, and their losses."""

    def __init__(self, rows: Rows, valid: np.ndarray):
        self.rows, self.loss = rows, LOSSES[rows.loss]
        self.which = [np.flatnonzero(each) for each in valid.T]
        self.weight = np.concatenate([rows.weight[each] for each in self.which])

    def losses(self, y: np.ndarray) -> np.ndarray:
        """(points, rows), of models (points, models, features + 1, columns)."""
        found = [self._of_model(y[:, k], which) for k, which in enumerate(self.which)]
        return np.concatenate(found, axis=1)

    def mean(self, losses: np.ndarray) -> np.ndarray:
        """Of each point."""
        return losses @ self.weight / self.weight.sum()

    def _of_model(self, y: np.ndarray, which: np.ndarray) -> np.ndarray:
        table, (points, _, columns) = self.rows.table, y.shape
        coef = y[:, :-1].swapaxes(0, 1).reshape(-1, points * columns)
        if sparse.issparse(table.X):
            z = table.rows(which).outputs(coef)
        else:
            used = np.flatnonzero(coef.any(axis=1))
            z = table.X[np.ix_(which, used)] @ coef[used]
        z = z.reshape(len(which), points, columns) + y[:, -1]
        losses = self.loss.value(z, self.rows.target[which][:, None], 2).T
        return bounded(losses) if self.loss.is_log_loss else losses


def walk(
    models: L1Objective, held: HeldBack, factors: np.ndarray, share: float, limit: Limit
) -> tuple[Best, Trail]:
    """The best point along strengths times `factors` (models, features, columns), and the path.

    Where time is up it ends with the strengths that it has come to.
    """
    models.near = [Fit(0 * fit.coef, fit.intercept) for fit in models.near]
    top = max(
        total * l1.strongest(models.design, rows, factor)
        for rows, total, factor in zip(models.share, models.total, factors, strict=True)
    )
    top = max(top / share, float(np.exp(models.penalties.bend.limits[0])))
    best, trail, lost = None, Trail(), 0
    # Where each strength costs a fit of its own, every other will do.
    count = STRENGTHS if models.design.quadratic else STRENGTHS // 2
    patience = WORSE * count // STRENGTHS
    grid = np.geomspace(top, REACH * top, count)
    stretch_of = STRETCH if models.design.quadratic else 1
    for part in np.split(grid, range(stretch_of, count, stretch_of)):
        stretch = _solved(models, part, factors, share, limit)
        losses = held.losses(stretch)
        for s, y, each, value in zip(part, stretch, losses, held.mean(losses), strict=True):
            trail.add(s, each.astype(np.float64), held.weight, y[:, :-1].mean(axis=0))
            lost += 1
            if best is None or value < best.value:
                best, lost = Best(float(s), float(value), each, y.copy()), 0
        if lost >= patience or limit.is_over():
            break
    assert best is not None
    return best, trail


def _solved(
    models: L1Objective, strengths: np.ndarray, factors: np.ndarray, share: float, limit: Limit
) -> np.ndarray:
    """(strengths, models, features + 1, columns)."""
    # A L2 part does not scale with columns as an L1 one does.
    alike = share == 1 or bool((factors == 1).all())
    design = models.design
    if not (design.quadratic and alike) or (sparse.issparse(design.X) and not models.grams):
        each = lambda s: [penalty(s * factor, share) for factor in factors]
        with watch.over(limit.is_over):
            return np.stack([models.fitted(each(s), ROUGH) for s in strengths])
    shape = (len(strengths), len(factors), factors.shape[1] + 1, factors.shape[2])
    found = np.zeros(shape)
    for k, factor in enumerate(factors):
        coef = _stretch(models, k, strengths / models.total[k], factor, share)
        found[:, k, :-1] = coef
        if models.grams:
            found[:, k, -1] = np.stack([models.grams[k].fit(w).intercept for w in coef])
        else:
            mean, target = models.share[k] @ design.table.X, models.share[k] @ design.target
            found[:, k, -1] = target - np.einsum("j,sjc->sc", mean, coef)
        models.near[k] = Fit(found[-1, k, :-1], found[-1, k, -1])
    return found


def _stretch(
    models: L1Objective, k: int, strengths: np.ndarray, factor: np.ndarray, share: float
) -> np.ndarray:
    """Coefficients (strengths, features, columns) of one model."""
    coef = np.zeros((len(strengths), *factor.shape))
    start = models.near[k].coef
    for c in range(factor.shape[1]):
        by = factor[:, c]
        if models.grams:
            G, q, _, _, spread = models.grams[k]
            path = l1_quadratic.descend(
                G / by[:, None] / by, q[:, c] / by, spread[c], strengths, start[:, c] * by, share,
                NEARLY,
            )  # fmt: skip
        else:
            path = l1.descend_rows(
                models.design, models.share[k], c, by, strengths, start[:, c] * by, share, NEARLY
            )
        coef[:, :, c] = (path / by[:, None]).T
    return coef
