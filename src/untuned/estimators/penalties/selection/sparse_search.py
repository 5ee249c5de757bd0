"""The search for the strengths of absolute penalties.

1. One strength by cross-validation along a path from the least one that leaves no coefficient, and
   from its best point by `minimize`.
2. One per group by `minimize`, from strengths as the adaptive lasso would have them, watched and
   judged as in search.py.

Coefficients that are zero have no derivative, so a strength moves only where its group is in the
model of some fold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from untuned.estimators.penalties.folds import Plans, RowRoles
from untuned.estimators.penalties.objectives import condensed, lasso_solver
from untuned.estimators.penalties.objectives.lasso_solver import Design, Fit
from untuned.estimators.penalties.objectives.solved import Solved
from untuned.estimators.penalties.objectives.sparse_objective import (
    LEAST_SHARE,
    SparseModels,
    penalty,
)
from untuned.estimators.penalties.path import Path, Trail
from untuned.estimators.penalties.selection.judging import (
    ERRORS,
    Rows,
    Watch,
    is_more_than_chance,
    judged,
    weights,
)
from untuned.estimators.penalties.selection.search import NEAR, TOLERANCE, Settings, two_digits
from untuned.estimators.penalties.strengths import Bend
from untuned.run import minimize

STRENGTHS, REACH = 30, 1e-3  # of the path, and its end as a share of its beginning
WORSE = 6  # strengths in a row without a gain, that end the path
POLISH = 8  # steps from the path's best point: a curve with kinks has no gradient that vanishes
ADAPTED = 10.0 ** np.linspace(0, 1.25, 6)  # times the common strength, for zero coefficients
SMALL = 0.1  # of the largest coefficient: what is below is as good as zero
SHARES = (0.2, 0.5, 0.9)  # absolute ones that an elastic net is tried with


class Found(NamedTuple):
    """Strengths, one per group, the share of the absolute penalty, and how it was found."""

    strengths: np.ndarray
    share: float
    result: Any
    steps: int
    path: Path


def search(
    rows: Rows, plans: Plans, group: np.ndarray, groups: int, mixed: bool, total: float,
    settings: Settings,
) -> Found:  # fmt: skip
    """The strengths that validate best: one, then many if there is a plan for them.

    `total` is the weight of all rows, to which the model will be fitted.
    """
    assert plans.one is not None
    run = partial(
        minimize, method=settings.method, seed=settings.seed, progress=settings.progress,
        max_steps=settings.max_steps,
    )  # fmt: skip
    used, plan = _used(rows, plans.one, plans.condense)
    models = _models(used, plan, group, mixed, 0.0, 0.0)
    x, trail = _path(models, used, groups, None if used is rows else (rows, plans.one.valid))
    near, note = models.solve(x), _noted(rows, mixed, trail)
    result = run(
        models, Solved(models.solve), x, near.y, max_seconds=settings.max_seconds, tol=NEAR,
        max_steps=min(POLISH, settings.max_steps), callback=lambda at: note(at.x),
    )  # fmt: skip
    x, steps, used_by = result.x, result.steps, plans.one
    if plans.many is not None:
        seconds = settings.max_seconds
        if seconds is not None:
            seconds = max(seconds - result.seconds, 1e-3)
        errors = 2 * result.history["outer"][-1]
        log_loss = models.design.loss.is_log_loss
        at = x
        x, result = _many(
            rows, plans, plans.many, group, mixed, at, 1.0 if log_loss else errors, trail,
            partial(run, max_seconds=seconds),
        )  # fmt: skip
        steps += result.steps
        used_by = plans.one if x is at else plans.many
    trained = (rows.weight[:, None] * used_by.train).sum(axis=0).mean()
    strengths, share = _for_all(*_strengths(rows, x[0], mixed), total / trained)
    trail.found.append(strengths)
    return Found(strengths, share, result, steps, trail.path())


def fit(rows: Rows, group: np.ndarray, found: Found) -> Fit:
    """The model of all rows."""
    design = Design(rows.loss, rows.table, rows.target)
    share = rows.weight / rows.weight.sum()
    each = penalty(found.strengths[group], found.share)
    start = np.zeros(group.shape), np.zeros(group.shape[1])
    return lasso_solver.solve(design, share, rows.weight.sum(), each, start)


def _used(rows: Rows, plan: RowRoles, pack: bool) -> tuple[Rows, RowRoles]:
    if not pack:
        return rows, plan
    packed = condensed.make(*rows[1:], plan)
    return Rows(rows.loss, *packed[:3]), packed.plan


def _models(
    rows: Rows, plan: RowRoles, group: np.ndarray, mixed: bool, free: float, errors: float
) -> SparseModels:
    design = Design(rows.loss, rows.table, rows.target)
    return SparseModels(design, rows.weight, plan, group, mixed, free, errors)


def _noted(rows: Rows, mixed: bool, trail: Trail) -> Callable[[np.ndarray], None]:
    """Notes the strengths at each x."""
    return lambda x: trail.found.append(_strengths(rows, x.mean(axis=0), mixed)[0])


def _path(
    models: SparseModels, rows: Rows, groups: int, whole: tuple[Rows, np.ndarray] | None
) -> tuple[np.ndarray, Trail]:
    """The x, with equal strengths, that validates best along the path, and that path.

    `whole` are the rows and who judges which, if `rows` are condensed: those have the sum of the
    losses, but not how they differ.
    """
    top = lasso_solver.strongest(models.design, rows.weight / rows.weight.sum())
    top = max(top * rows.weight.sum(), np.exp(models.bend.limits[0]))
    best, least, trail = np.zeros((1, 1)), np.inf, Trail()
    for share in SHARES if models.mixed else (1.0,):
        lost, lowest, seen = 0, np.inf, Trail()
        for s in np.geomspace(top / share, REACH * top / share, STRENGTHS):
            x = np.zeros((1, 1 + groups + models.mixed))
            x[0, 0] = models.bend.inverse(np.log(s))
            if models.mixed:
                x[0, -1] = logit(share)
            y = models.solve(x).y
            losses, weight = models.held_back(y)
            value = weight @ losses
            weight = weight * len(losses)
            if whole is not None:
                losses = judged(*whole, np.moveaxis(y[:, :-1], 0, 1), y[:, -1])
                weight = weights(*whole)
            seen.add(s, losses, weight, y[:, :-1].mean(axis=0))
            if value < least:
                best, least, trail = x, value, seen
            lost = 0 if value < lowest else lost + 1
            lowest = min(lowest, value)
            if lost == WORSE:
                break
        models.near = [Fit(0 * fit.coef, fit.intercept) for fit in models.near]
    return best, trail


def _many(
    rows: Rows, plans: Plans, given: RowRoles, group: np.ndarray, mixed: bool, at: np.ndarray,
    errors: float, trail: Trail, run: Any,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """One strength per group, if they earn it; else the one that was there."""
    used, plan = _used(rows, given, plans.condense)
    models = _models(used, plan, group, mixed, 1.0, errors)
    x = np.repeat(at, plan.mix.shape[1], axis=0)
    y = models.solve(x).y
    judges = lambda x, y: models.judges(x, y, used.weight)
    watch = Watch(judges, x, y, _noted(rows, mixed, trail))
    x = _adapted(models, x, y)
    y = models.solve(x).y
    watch.look(x, y, 0)
    result = run(models, Solved(models.solve), x, y, tol=TOLERANCE["float64"], callback=watch)
    found = watch.best.x.mean(axis=0, keepdims=True)
    earned = watch.best is not watch.start
    # Of two models that judges cannot tell apart the one with fewer features is preferred.
    counts = [np.count_nonzero(point.y[:, :-1]) for point in (watch.start, watch.best)]
    errors_asked = 1.0 if counts[1] < counts[0] else ERRORS
    if earned:
        sides = [
            judged(rows, given.judge, np.moveaxis(point.y[:, :-1], 0, 1), point.y[:, -1])
            for point in (watch.start, watch.best)
        ]
        earned = is_more_than_chance(sides[0] - sides[1], weights(rows, given.judge), errors_asked)
    if earned and plans.check is not None:
        losses = []
        for each in (at, found):
            check = _models(rows, plans.check, group, mixed, 1.0, errors)
            y = check.solve(each).y
            w, b = np.moveaxis(y[:, :-1], 0, 1), y[:, -1]
            losses.append(judged(rows, plans.check.judge, w, b))
        earned = is_more_than_chance(
            losses[0] - losses[1], weights(rows, plans.check.judge), errors_asked
        )
    return (found if earned else at), result


def _adapted(models: SparseModels, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A start for many strengths: weaker by what each vector's models with one strength found.

    Strengths fall with the coefficients of their groups, as in the adaptive lasso, and the common
    one grows; by how much says f.
    """
    size = np.abs(y[:, :-1])
    groups = models.group.max() + 1
    largest = np.zeros((len(size), groups))
    for k, each in enumerate(size):
        np.maximum.at(largest[k], models.group.ravel(), each.ravel())
    of_vector = models.plan.mix.T @ largest / models.plan.mix.sum(axis=0)[:, None]
    unit = SMALL * np.maximum(of_vector.max(axis=1, keepdims=True), 1e-12)
    best, least = x, models(x, y)
    for times in ADAPTED:
        trial = x.copy()
        trial[:, 0] += np.log(times)
        trial[:, 1 : 1 + groups] = -np.log1p(of_vector / unit)
        value = models(trial, models.solve(trial).y)
        if value < least:
            best, least = trial, value
    return best


def _for_all(strengths: np.ndarray, share: float, times: float) -> tuple[np.ndarray, float]:
    """What was found on fewer rows, for so many times as many.

    The noise that an absolute penalty must hold down is a sum over rows, which grows with the root
    of their number; a squared one stands for what is known without them, and stays.
    """
    absolute = share * times**0.5
    grown = absolute + 1 - share
    return two_digits(np.log(strengths * grown)), absolute / grown


def _strengths(rows: Rows, x: np.ndarray, mixed: bool) -> tuple[np.ndarray, float]:
    differences = x[1:-1] if mixed else x[1:]
    strengths = two_digits(Bend.of_rows(rows.weight)(x[0] + differences)[0])
    return strengths, float(max(expit(x[-1]), LEAST_SHARE)) if mixed else 1.0
