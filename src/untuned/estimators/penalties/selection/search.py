"""The search for strengths, and the fit of a model with those found.

1. One strength for all groups: of squared errors by leaving out each row once (leave_one_out.py),
   else by the first plan's folds, in which every row judges: by `minimize`, or in strides where
   the Hessians of models are too large to be inverted (strides.py).
2. From there, and from its models, one per group. Its steps are watched on rows that had no part
   in it (folds.py), and end where the loss there has not fallen for PATIENCE steps, has grown by
   more than f has fallen (judging.py), or is far worse than the least. Models of squared errors are
   solved in closed form, and those of one output and few rows on their kernel. The step with the
   least loss is taken if that is better than one strength by more than two standard errors of the
   difference, else one strength is kept: a model with many strengths has to earn them. Where a
   split of the rows was enough to find them, all other rows are asked too.
3. The mean of their logarithms is the result. The model with it is fitted to all rows (`fit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.penalties.folds import Plans, RowRoles
from untuned.estimators.penalties.objectives import condensed, scaling
from untuned.estimators.penalties.objectives.closed import Nothing
from untuned.estimators.penalties.objectives.hessians import MOST_INVERTED
from untuned.estimators.penalties.objectives.objective import Inner, Outer
from untuned.estimators.penalties.objectives.stepwise import Stepwise
from untuned.estimators.penalties.path import Path, Trail
from untuned.estimators.penalties.selection import leave_one_out, outcome, strides
from untuned.estimators.penalties.selection.fitting import (
    SETTLED,
    Scales,
    alike,
    closed_models,
    fit,
    fit_all,
    from_nothing,
    make,
    nothing,
    of_coefficients,
    solved,
)
from untuned.estimators.penalties.selection.judging import (
    Judges,
    Rows,
    Watch,
    is_more_than_chance,
    judged,
    weights,
)
from untuned.estimators.penalties.selection.one_strength import HONEST, Seen
from untuned.estimators.penalties.selection.outcome import Limit
from untuned.estimators.penalties.strengths import Bend, two_digits
from untuned.run import minimize
from untuned.util.watch import over as stopped_by

# Of the first hypergradient: about the two digits that strengths get, and no less than rounding.
TOLERANCE = {"float64": 1e-3, "float32": 1e-2}
NEAR = 0.03  # the same, where the start is a fifth of a decade off at most
FIRST_PER_ROW = 0.01  # strength at the start, for each row; at least 1
CHEAP = 2**24  # rows times variables up to which solutions there take no time


class Settings(NamedTuple):
    """What the user may say about a run."""

    method: Any
    max_steps: int
    limit: Limit
    seed: int
    progress: bool


class Found(NamedTuple):
    """Strengths, one per group; coefficients and intercepts near their model; how it was found."""

    strengths: np.ndarray
    near: tuple[np.ndarray, np.ndarray]  # of standardised features
    exact: bool  # whether they are their model, of the rows that were searched with
    result: Any
    steps: int
    path: Path


class Stage(NamedTuple):
    """Where a search ended: x of the common strength and groups, and models near its solution."""

    x: np.ndarray
    coef: Any  # (features, columns)
    intercept: Any
    result: Any
    passes: int | None = None  # most that a search from here may take, if they cost


def search(
    rows: Rows, plans: Plans, group: np.ndarray, groups: int, scales: Scales, settings: Settings,
    near: float | None = None,
) -> Found:  # fmt: skip
    """The strengths that validate best: one, then many if there is a plan for them.

    `near` is the logarithm of one that was best when some of the rows were held back.
    """
    bend = Bend.of_rows(rows.weight)
    run = partial(
        minimize, method=settings.method, seed=settings.seed, progress=settings.progress,
        max_steps=settings.max_steps,
    )  # fmt: skip
    trail, limit = Trail(), settings.limit
    if plans.one is None:
        found = leave_one_out.search(*rows.divided()[1:], bend, trail)
        at = Stage(np.r_[found.x, np.zeros(groups)], found.coef, found.intercept, found.result)
        trail.found.append(_strengths(bend, at.x))
    elif group.size > MOST_INVERTED:
        at = _by_strides(rows, plans.one, groups, scales, trail, limit, near)
    else:
        alone = partial(run, max_seconds=limit.left())
        at = _one(rows.divided(), plans.one, group, groups, scales, trail, alone)
    steps, one = at.result.steps, at.x
    if plans.many is not None and not limit.is_over():
        run = partial(run, max_seconds=limit.left())
        start = [at]
        del at  # whose coefficients may be very many, and are left behind
        at = _many(rows.divided(), plans, plans.many, group, scales, start, trail, run)
        steps += at.result.steps
    strengths = _strengths(bend, at.x)
    trail.found.append(strengths)
    exact = plans.one is None and at.x is one
    return Found(strengths, (at.coef, at.intercept), exact, at.result, steps, trail.path())


def better_units(
    candidates: Sequence[Callable[[], Rows]], plan: RowRoles, limit: Limit
) -> tuple[Rows, float]:
    """The same rows in the units in which one strength predicts those held back best; and its
    logarithm. One after the other is made, as rows may be large."""
    bottoms = []
    for make_rows in candidates:
        rows = make_rows()
        scales = partial(scaling.make, *rows)
        bottoms.append(strides.descend(rows, plan, scales, limit, Trail()).bottom())
    best = int(np.argmin([min(each.losses) for each in bottoms]))
    if best < len(candidates) - 1:
        rows = candidates[best]()
    return rows, bottoms[best].logarithm


def _by_strides(
    rows: Rows, plan: RowRoles, groups: int, scales: Scales, trail: Trail, limit: Limit,
    near: float | None,
) -> Stage:  # fmt: skip
    """One strength of many coefficients."""
    walk = strides.descend(rows, plan, scales, limit, trail, near)
    bottom, (coef, intercept) = walk.bottom(), walk.models()
    bend = Bend.of_rows(rows.weight)
    x = np.r_[bend.inverse(bottom.logarithm), np.zeros(groups)]
    trail.found.append(_strengths(bend, x))
    late, count = limit.is_over(), len(bottom.losses)
    message = (
        f"One strength, {trail.found[-1][0]:g}, at the bottom of {count} losses half a decade apart"
        + (": time was up. Give more to go further." if late else ".")
    )
    status: Any = "max_seconds" if late else "converged"
    result = outcome.result(x[None, :1], coef, bottom.losses, limit.taken(), message, status)
    return Stage(x, coef, intercept, result, None if walk.is_cheap else bottom.passes)


def _one(
    rows: Rows, plan: RowRoles, group: np.ndarray, groups: int, scales: Scales, trail: Trail,
    run: Any,
) -> Stage:  # fmt: skip
    """One strength."""
    # Where a penalty is felt: solutions are near there, and lead to those with weaker ones.
    first = max(1.0, FIRST_PER_ROW * rows.weight.sum())
    coef, intercept = fit(rows, scales, np.full(1, first), group)
    x = np.r_[np.log(first), np.zeros(groups)].astype(rows.table.X.dtype)[None]
    models = make(rows, plan, group, scales(), 0.0, 0.0)
    y = alike(models, x, coef, intercept)
    seen = Seen(models, plan, rows.weight, trail)
    result = run(Outer(models), Inner(models), x, y, tol=TOLERANCE[x.dtype.name], callback=seen)
    if y.size * len(rows.weight) <= CHEAP:
        seen.around(result.x, result.y)
    w, b = models.model(result.x, result.y)
    return Stage(result.x[0], w.mean(axis=1), b.mean(axis=0), result)


def _many(
    rows: Rows, plans: Plans, given: RowRoles, group: np.ndarray, scales: Scales,
    start: list[Stage], trail: Trail, run: Any,
) -> Stage:  # fmt: skip
    """One strength per group, if they earn it; else what was there, which `start` holds."""
    plan, used, at = given, rows, start.pop()
    # Of very many features: as much work as one strength took, or twice where features have theirs.
    most = at.passes
    if most is not None and len(at.x) - 1 > rows.target.shape[1]:
        most *= 2
    if plans.condense:
        packed = condensed.make(*rows[1:], plan)
        used, plan = Rows(rows.loss, *packed[:3]), packed.plan
        scales = cache(partial(scaling.make, *used))
    vectors = plan.mix.shape[1]
    errors = 2 * at.result.history["outer"][-1] / len(at.result.x)
    closed = closed_models(used, plan.train.shape[1])
    scaled = scaling.none(*group.shape) if closed else scales()
    models = make(used, plan, group, scaled, 1.0, errors)
    x = np.repeat(at.x[None].astype(used.table.X.dtype), vectors, axis=0)
    seer: Any
    outer: Any
    inner: Any
    # Solved, as the models that were there had a part in training on rows that judge now.
    alone = None  # the one model, where it is large
    if closed:
        seer = outer = closed(models)
        inner, x, y = Nothing(), x.astype(np.float64), np.zeros(1)
    else:
        seer, outer, inner = models, Outer(models), Inner(models)
        near, honest = [(at.coef, at.intercept)], HONEST
        if from_nothing(used):
            near, honest = [nothing(*group.shape)], SETTLED
        at = at._replace(coef=None, result=None)  # the same array; others are found in the end
        first = [alike(models, x, *near.pop())]
        y = solved(models, x, first, honest)
        if len(models.train) == 1:
            seer = outer = alone = Stepwise(models, x, y, solved)
            inner, y = Nothing(), np.zeros(1, x.dtype)
    bend = Bend.of_rows(rows.weight)
    judges = Judges(seer, plan, used.weight)
    watch = Watch(judges, x, y, lambda x: trail.found.append(_strengths(bend, x.mean(axis=0))))

    def is_long() -> bool:
        return most is not None and models.passes >= most

    def over(snapshot: Any) -> bool:
        # Condensed rows have the sum of the losses, but not their spread.
        return watch(snapshot) or (judges.is_worse and used is rows) or is_long()

    with stopped_by(is_long):  # a step may try many points
        result = run(outer, inner, x, y, tol=TOLERANCE[x.dtype.name], callback=over)
    at = at._replace(result=result)
    if alone:
        at = _of_mean(at, *alone.model())
    elif not closed:
        at = _of_mean(at, *models.model(watch.start.x, watch.start.y))
    if watch.best is watch.start:
        return at
    found, gains = watch.best.x.mean(axis=0), judges.first - judges.best
    if used is not rows:  # the rows themselves were not asked yet
        sides = [seer.model(point.x, point.y) for point in (watch.start, watch.best)]
        before, after = (judged(rows, given.judge, *side) for side in sides)
        gains = before - after
    earned = is_more_than_chance(gains, weights(rows, given.judge))
    if earned and plans.check is not None:
        earned = _holds_elsewhere(rows, plans.check, group, scales, at, found)
    if not earned:
        return at
    at = at._replace(x=found)
    if closed or alone:  # the model of all rows needs no better start, mostly none
        return at
    return _of_mean(at, *models.model(watch.best.x, watch.best.y))


def _of_mean(stage: Stage, w: np.ndarray, b: np.ndarray) -> Stage:
    """The stage with the mean of these models."""
    return stage._replace(coef=w.mean(axis=1), intercept=b.mean(axis=0))


def _holds_elsewhere(
    rows: Rows, plan: RowRoles, group: np.ndarray, scales: Scales, at: Stage, x: np.ndarray
) -> bool:
    """Whether the strengths at x beat one strength on rows that had no part in finding them."""
    bend, near = Bend.of_rows(rows.weight), (at.coef, at.intercept)
    losses = []
    for each in (at.x, x):
        strengths = of_coefficients(_strengths(bend, each), group)
        for k in range(plan.train.shape[1]):  # one after another: they may be large
            train, judge = plan.train[:, k : k + 1], plan.judge[:, k : k + 1]
            w, b = fit_all(rows, train, scales, strengths, near, HONEST)
            losses.append(judged(rows, judge, w, b))
    before, after = np.split(np.concatenate(losses), 2)
    return is_more_than_chance(before - after, weights(rows, plan.judge))


def _strengths(bend: Bend, x: np.ndarray) -> np.ndarray:
    """Of each group."""
    return two_digits(bend((x[0] + x[1:]).astype(np.float64))[0])
