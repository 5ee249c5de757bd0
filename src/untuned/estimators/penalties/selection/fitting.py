"""Models of a plan, and their fits with strengths that are given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from untuned import ops as array_libraries
from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES
from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.objectives import (
    closed_ridge,
    kernel_newton,
    nonlinear_cg,
    scaling,
)
from untuned.estimators.penalties.objectives.closed import Closed
from untuned.estimators.penalties.objectives.objective import Inner, Models
from untuned.estimators.penalties.objectives.scaling import Scaling
from untuned.estimators.penalties.selection.judging import Rows
from untuned.estimators.penalties.strengths import Bend, Shares
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import newton_cg, preconditioner

Scales = Callable[[], Scaling]  # made where it is needed

ROUGH = 0.1  # share of the error that is left in the model that the search starts from
# Of classes with very many features: shares of the penalty's pull, which solves may be off by.
EXACT = 3e-4
SETTLED = 0.03  # where models are compared: coefficients within a hundredth


def make(
    rows: Rows, plan: RowRoles, group: np.ndarray, scales: Scaling, free: float, errors: float
) -> Models:
    """The models of a plan; groups differ if `free` is 1. `errors`: variance of squared errors."""
    loss, table, target, weight = rows
    dtype = table.X.dtype
    train, valid = weight[:, None] * plan.train, weight[:, None] * plan.valid
    total = train.sum(axis=0)
    owner = plan.mix.argmax(axis=1)
    judged = np.bincount(owner, valid.sum(axis=0), plan.mix.shape[1])
    bend = Bend(Bend.of_rows(weight).limits.astype(dtype))
    shares = Shares(plan.mix.astype(dtype), group, total.astype(dtype), bend, free, scales)
    doubt = np.stack([1 / judged, 1 / judged], axis=1)
    if not LOSSES[loss].is_log_loss:
        doubt *= [0, errors]
    train, valid = (train / total).astype(dtype), (valid / judged[owner]).astype(dtype)
    return Models(loss, table, target, train, valid, shares, doubt.astype(dtype))


def closed_models(rows: Rows, models: int) -> type[Closed] | None:
    """What solves so many models of these rows without steps of `minimize`, if anything does."""
    X = rows.table.X
    if closed_ridge.applies(rows.loss, X, models):
        return closed_ridge.ClosedRidge
    if kernel_newton.applies(rows.loss, X, models, rows.target.shape[1]):
        return kernel_newton.KernelNewton
    return None


def alike(models: Models, x: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """y of models that are all alike."""
    count = len(models.shares.total)
    w, b = np.repeat(coef[:, None], count, axis=1), np.repeat(intercept[None], count, axis=0)
    return models.inner_variable(x, w, b)


def fit(
    rows: Rows, scales: Scales, strengths: np.ndarray, group: np.ndarray,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Coefficients (features, columns) and intercepts on all rows, with strengths of groups.

    Roughly where there is no start, which is what a start is made of.
    """
    each = of_coefficients(strengths, group)
    w, b = fit_all(rows, np.ones((len(rows.weight), 1), bool), scales, each, start)
    return w[:, 0], b[0]


def of_coefficients(strengths: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The strengths (features, columns) of groups, each kept once where they repeat themselves:
    there may be very many coefficients."""
    once = tuple(slice(None if step else 1) for step in group.strides)
    each = strengths[group[once]] if np.ptp(strengths) else np.full((1, 1), strengths[0])
    return np.broadcast_to(each, group.shape)


def from_nothing(rows: Rows) -> bool:
    """Whether models of these rows are solved by nonlinear_cg.py, from none."""
    return rows.table.X.shape[1] > scaling.MOST_TURNED and LOSSES[rows.loss].is_log_loss


def nothing(features: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """No model: coefficients, which take no memory, and intercepts."""
    return np.broadcast_to(np.float32(0), (features, columns)), np.zeros(columns)


def fit_all(
    rows: Rows, train: np.ndarray, scales: Scales, strengths: np.ndarray,
    start: tuple[np.ndarray, np.ndarray] | None = None, share: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """As `fit`, for each column of `train` a model on those rows: (features, models, columns).

    `share` of the start's error may be left; by default what rounding leaves. Models of classes
    with very many features start from nothing.
    """
    loss, table, target, weight = rows
    dtype, weights = table.X.dtype, weight[:, None] * train
    total = weights.sum(axis=0)
    train = (weights / total).astype(dtype)
    none = np.zeros((len(total), 1), dtype)
    # Steps would begin with a matrix that is as dear, unless that is of some rows only.
    closed = closed_models(rows, len(total))
    shape = strengths.shape
    if stacked.every(len(weight), shape[0]) > 1:
        closed = None
    scaled = scaling.none(*shape) if closed else scales()
    # Columns with the same strengths, which those of a closed form share a factor of.
    group = np.unique(strengths, axis=1, return_inverse=True)[1].ravel() if closed else 0
    group = np.broadcast_to(group, shape)
    shares = Shares(none, group, total.astype(dtype), Bend(none[0]), 0.0, scaled)
    fixed = shares.fixed(strengths)
    models = Models(loss, table, target, train, train, shares, none, fixed)
    if closed:
        return closed(models).fit(fixed.s[:, :1])[:2]
    x = none[:1]
    left = ROUGH if start is None else share or float(np.finfo(dtype).eps) ** 0.5
    if from_nothing(rows):
        start, left = None, SETTLED if share else EXACT
    first = [alike(models, x, *(start or nothing(*shape)))]
    return models.model(x, solved(models, x, first, left))


def solved(models: Models, x: np.ndarray, start: list[np.ndarray], share: float) -> np.ndarray:
    """The inner solution at x, with at most this share left of the error of y, which `start` holds.

    It is taken from there, so that nobody has to keep it: there may be very many coefficients.
    """
    inner = Inner(models)
    if not len(models.shares.scaling.basis) and models.loss.is_log_loss:
        with array_libraries.get("numpy").precision(start[0]):
            return nonlinear_cg.solve(models, x, start, share)
    o = Oracles(array_libraries.get("numpy"), inner, inner)
    with o.ops.precision(start[0]):
        matrix = None
        if inner.hessian_blocks(start[0])[0] is not None:
            matrix = preconditioner.identity(o, start[0])
        if matrix is not None:
            matrix = preconditioner.make(o, x, start[0], None, matrix)
        most = 2 * start[0][0].size + 10
        found = newton_cg.solve_inner(
            o, x, start.pop(), None, share=share, most=most,
            precondition=preconditioner.apply(o.ops, matrix),
        )  # fmt: skip
    return found.y
