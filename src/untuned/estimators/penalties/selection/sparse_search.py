"""The search for the strengths of absolute penalties.

1. One strength by cross-validation along a path from the least one that leaves no coefficient, and
   from its best point by `minimize`.
2. One per group, as the adaptive lasso would have them: weaker by the coefficients that each fold's
   own models found with one strength, times a strength that a second path chooses. So what judges
   has no part in it. It is taken if the rows held back gain more than chance would give them.
3. From the better of both, one per group by `minimize`, watched and judged as in search.py.

Strengths grow with the rows that they are for: per row they stay what they were.

Coefficients that are zero have no derivative, so a strength moves only where its group is in the
model of some fold.
"""

from __future__ import annotations

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
from untuned.estimators.penalties.selection import outcome
from untuned.estimators.penalties.selection.judging import (
    ERRORS,
    Rows,
    Watch,
    is_more_than_chance,
    judged,
    weights,
)
from untuned.estimators.penalties.selection.outcome import Limit
from untuned.estimators.penalties.selection.search import NEAR, TOLERANCE, Settings
from untuned.estimators.penalties.selection.strength_path import Best, HeldBack, walk
from untuned.estimators.penalties.strengths import Bend, two_digits
from untuned.run import minimize

MOST_SHARE = 0.999  # the same, of what a search may start from
POLISH = 8  # steps from the path's best point: a curve with kinks has no gradient that vanishes
POWERS = (1.0, 2.0)  # by which strengths fall with coefficients
SMALL = 0.1  # of the largest coefficient: what is below is as good as zero
SHARES = (0.2, 0.5, 0.9)  # absolute ones that an elastic net is tried with
FEWER = 1.0  # standard errors of gain asked of a model with fewer features: it is worth something


class Found(NamedTuple):
    """Strengths, one per group, the share of the absolute penalty, and how it was found."""

    strengths: np.ndarray
    share: float
    result: Any
    steps: int
    path: Path


class Stage(NamedTuple):
    """Strengths that were found, for models that train on rows of the weight `trained`."""

    strengths: np.ndarray  # (groups,)
    share: float
    trained: float
    power: float = 0.0  # by which they fell with coefficients
    common: float = 0.0  # times which

    def of_rows(self, total: float) -> tuple[np.ndarray, float]:
        """Strengths and share for models that train on rows of this weight.

        An absolute penalty holds down noise and keeps features out: per row it stays. A squared
        one stands for what is known without rows, and stays in all.
        """
        absolute = self.share * total / self.trained
        grown = absolute + 1 - self.share
        return self.strengths * grown, absolute / grown


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
    judges, limit = HeldBack(rows, plans.one.valid), settings.limit
    x, best, trail = _common(models, judges, groups, limit)
    along = len(trail.points)
    if limit.is_over():
        message = f"Time was up after {along} strengths of the first path. Give more to go further."
        result = outcome.result(x, best.y, [best.value], limit.taken(), message, "max_seconds")
    else:
        result = run(
            models, Solved(models.solve), x, models.solve(x).y, max_seconds=limit.left(),
            tol=NEAR, max_steps=min(POLISH, settings.max_steps),
            callback=lambda at: trail.found.append(_strengths(models.bend, at.x[0], mixed)[0]),
        )  # fmt: skip
    steps, trained, work = result.steps, float(models.total.mean()), models.design.work
    at = Stage(*_strengths(models.bend, result.x[0], mixed), trained)
    if plans.many is not None and not limit.is_over():
        y, one = models.solve(result.x).y, at
        near = list(models.near)
        at = _adapted(models, judges, at, y, limit)
        log_loss = models.design.loss.is_log_loss
        errors = 1.0 if log_loss else 2 * result.history["outer"][-1]
        # About as many models as along the path.
        most = max(1, along * plans.one.mix.shape[0] // plans.many.mix.shape[0])
        if at.power:
            at = _on_all(rows, group, one, at)
        at, result = _many(
            rows, plans, plans.many, group, mixed, one, at, errors, trail, work, near,
            partial(run, max_seconds=limit.left(), max_steps=min(most, settings.max_steps)),
        )  # fmt: skip
        steps += result.steps
    strengths, share = at.of_rows(total)
    strengths = two_digits(np.log(strengths))
    trail.found.append(strengths)
    return Found(strengths, share, result, steps, trail.path())


def fit(rows: Rows, group: np.ndarray, found: Found) -> Fit:
    """The model of all rows."""
    return _fit(rows, group, found.strengths, found.share)


def _fit(rows: Rows, group: np.ndarray, strengths: np.ndarray, share: float) -> Fit:
    design = Design(rows.loss, rows.table, rows.target)
    of_rows = rows.weight / rows.weight.sum()
    start = np.zeros(group.shape), np.zeros(group.shape[1])
    each = penalty(strengths[group], share)
    return lasso_solver.solve(design, of_rows, rows.weight.sum(), each, start)


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


def _common(
    models: SparseModels, judges: HeldBack, groups: int, limit: Limit
) -> tuple[np.ndarray, Best, Trail]:
    """The x, with equal strengths, that validates best along the path; the point; and the path."""
    alike = np.ones((len(models.total), *models.group.shape))
    shares = SHARES if models.mixed else (1.0,)
    walks: dict[float, Any] = {}
    for share in shares:
        if not walks or not limit.is_over():
            walks[share] = walk(models, judges, alike, share, limit)
    share = min(walks, key=lambda each: walks[each][0].value)
    best, trail = walks[share]
    x = np.zeros((1, 1 + groups + models.mixed))
    x[0, 0] = models.bend.inverse(np.log(best.strength))
    if models.mixed:
        x[0, -1] = logit(share)
    return x, best, trail


def _adapted(
    models: SparseModels, judges: HeldBack, one: Stage, y: np.ndarray, limit: Limit
) -> Stage:
    """Strengths that fall with what one strength found, if they earn it; else the one."""
    groups = len(one.strengths)
    sizes = np.stack([_sizes(each[:-1], models.group, groups) for each in y])
    best, power = None, 0.0
    for each in POWERS:
        factors = _factors(sizes, each)[:, models.group]
        point, _ = walk(models, judges, factors, one.share, limit)
        if best is None or point.value < best.value:
            best, power = point, each
    assert best is not None
    gains = judges.losses(y[None])[0] - best.losses
    if not is_more_than_chance(gains, judges.weight, _asked(y, best.y)):
        return one
    return one._replace(power=power, common=best.strength)


def _on_all(rows: Rows, group: np.ndarray, one: Stage, at: Stage) -> Stage:
    """The same with the coefficients that all rows find with one strength."""
    coef, _ = _fit(rows, group, *one.of_rows(rows.weight.sum()))
    factors = _factors(_sizes(coef, group, len(one.strengths))[None], at.power)[0]
    return at._replace(strengths=at.common * factors)


def _sizes(coef: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """The largest coefficient of each group."""
    largest = np.zeros(groups)
    np.maximum.at(largest, group.ravel(), np.abs(coef).ravel())
    return largest


def _factors(sizes: np.ndarray, power: float) -> np.ndarray:
    """Of strengths (models, groups): one for a coefficient of zero, and less for larger ones."""
    unit = SMALL * np.maximum(sizes.max(axis=1, keepdims=True), 1e-12)
    return (1 + sizes / unit) ** -power


def _asked(before: np.ndarray, after: np.ndarray) -> float:
    """Standard errors of gain: of two models that judges cannot tell apart, fewer features."""
    fewer = np.count_nonzero(after[:, :-1]) < np.count_nonzero(before[:, :-1])
    return FEWER if fewer else ERRORS


def _many(
    rows: Rows, plans: Plans, given: RowRoles, group: np.ndarray, mixed: bool, one: Stage,
    at: Stage, errors: float, trail: Trail, work: int, near: list[Fit], run: Any,
) -> tuple[Stage, Any]:  # fmt: skip
    """One strength per group by `minimize`, if they earn it; else those that were there.

    Where models need Hessians, it ends when it has made as much `work` of them as one strength did.
    `near` are models of other rows to start from.
    """
    used, plan = _used(rows, given, plans.condense)
    models = _models(used, plan, group, mixed, 1.0, errors)
    trained = float(models.total.mean())
    models.near = [near[k % len(near)] for k in plan.split]
    x = _start(models, one, at, trained)
    y = models.solve(x).y
    note = lambda x: trail.found.append(_strengths(models.bend, x.mean(axis=0), mixed)[0])
    watch = Watch(lambda x, y: models.judges(x, y, used.weight), x, y, note)
    over = lambda snapshot: watch(snapshot) or 0 < work <= models.design.work
    result = run(models, Solved(models.solve), x, y, tol=TOLERANCE["float64"], callback=over)
    if watch.best is watch.start:
        return at, result
    points = (watch.start.y, watch.best.y)
    sides = [judged(rows, given.judge, y[:, :-1].swapaxes(0, 1), y[:, -1]) for y in points]
    earned = is_more_than_chance(sides[0] - sides[1], weights(rows, given.judge))
    found = Stage(*_strengths(models.bend, watch.best.x.mean(axis=0), mixed), trained)
    if earned and plans.check is not None:
        check = _models(rows, plans.check, group, mixed, 1.0, errors)
        losses = []
        for each in (at, found):
            strengths, share = each.of_rows(float(check.total.mean()))
            y = check.fitted([penalty(strengths[group], share)] * len(check.total))
            w, b = y[:, :-1].swapaxes(0, 1), y[:, -1]
            losses.append(judged(rows, plans.check.judge, w, b))
        gains = losses[0] - losses[1]
        earned = is_more_than_chance(gains, weights(rows, plans.check.judge))
    return (found if earned else at), result


def _start(models: SparseModels, one: Stage, at: Stage, trained: float) -> np.ndarray:
    """x with one strength, or with those of each vector's own models as the adaptive lasso's."""
    strengths, share = one.of_rows(trained)
    groups, vectors = len(strengths), models.plan.mix.shape[1]
    x = np.zeros((vectors, 1 + groups + models.mixed))
    x[:, 0] = models.bend.inverse(np.log(strengths[0]))
    if models.mixed:
        x[:, -1] = logit(min(share, MOST_SHARE))
    if not at.power:
        return x
    sizes = np.stack([_sizes(each[:-1], models.group, groups) for each in models.solve(x).y])
    of_vector = models.plan.mix.T @ sizes / models.plan.mix.sum(axis=0)[:, None]
    grown = at.common * at._replace(strengths=np.ones(1)).of_rows(trained)[0]
    x[:, 0] = models.bend.inverse(np.log(grown))
    own = models.bend.inverse(np.log(grown * _factors(of_vector, at.power)))
    x[:, 1 : 1 + groups] = own - x[:, :1]
    return x


def _strengths(bend: Bend, x: np.ndarray, mixed: bool) -> tuple[np.ndarray, float]:
    differences = x[1:-1] if mixed else x[1:]
    strengths = np.exp(bend(x[0] + differences)[0])
    return strengths, float(max(expit(x[-1]), LEAST_SHARE)) if mixed else 1.0
