"""The search for strengths, and the fit of a model with those found.

1. One strength for all groups: of squared errors by leaving out each row once (leave_one_out.py),
   else by the first plan's folds, in which every row judges.
2. From there, and from its models, one per group. Its steps are watched on rows that had no part
   in it (folds.py), and end where the loss there has not fallen for PATIENCE steps. The step with
   the least loss is taken if that is better than one strength by more than two standard errors of
   the difference, else one strength is kept: a model with many strengths has to earn them. Where a
   split of the rows was enough to find them, all other rows are asked too.
3. The mean of their logarithms is the result. The model with it is fitted to all rows (`fit`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.penalties.folds import Plans, RowRoles
from untuned.estimators.penalties.objectives import condensed, scaling
from untuned.estimators.penalties.objectives.objective import Inner, Models, Outer
from untuned.estimators.penalties.objectives.scaling import Scaling
from untuned.estimators.penalties.path import Path, Trail
from untuned.estimators.penalties.selection import leave_one_out
from untuned.estimators.penalties.selection.fitting import alike, fit, fit_all, make, solved
from untuned.estimators.penalties.selection.judging import (
    Rows,
    Watch,
    is_more_than_chance,
    judged,
    weights,
)
from untuned.estimators.penalties.strengths import Bend
from untuned.run import minimize

# Of the first hypergradient: about the two digits that strengths get, and no less than rounding.
TOLERANCE = {"float64": 1e-3, "float32": 1e-2}
NEAR = 0.03  # the same, where the start is a fifth of a decade off at most
FIRST_PER_ROW = 0.01  # strength at the start, for each row; at least 1
STRIDE = 0.5 * np.log(10)  # of one strength, where each costs a fit
STRIDE_SHARE = 0.01  # of the error that a stride causes, that is left
AROUND = np.r_[0.5:3.1:0.5]  # decades on either side of the best strength, for the path
CHEAP = 2**24  # rows times variables up to which solutions there take no time
HONEST = 1e-3  # share of the error that is left in models that are compared


class Settings(NamedTuple):
    """What the user may say about a run."""

    method: Any
    max_steps: int
    max_seconds: float | None
    seed: int
    progress: bool


class Found(NamedTuple):
    """Strengths, one per group; coefficients and intercepts near their model; how it was found."""

    strengths: np.ndarray
    near: tuple[np.ndarray, np.ndarray]  # of standardised features
    result: Any
    steps: int
    path: Path


class Stage(NamedTuple):
    """Where a search ended: x of the common strength and groups, and models near its solution."""

    x: np.ndarray
    coef: np.ndarray  # (features, columns)
    intercept: np.ndarray
    result: Any
    passes: int | None = None  # most that a search from here may take, if they cost


def search(
    rows: Rows, plans: Plans, group: np.ndarray, groups: int, scales: Scaling, settings: Settings
) -> Found:
    """The strengths that validate best: one, then many if there is a plan for them."""
    bend = Bend.of_rows(rows.weight)
    run = partial(
        minimize, method=settings.method, seed=settings.seed, progress=settings.progress,
        max_steps=settings.max_steps,
    )  # fmt: skip
    alone, trail = partial(run, max_seconds=settings.max_seconds), Trail()
    if plans.one is None:
        found = leave_one_out.search(*rows[1:], bend, trail, partial(alone, tol=NEAR))
        at = Stage(np.r_[found.x, np.zeros(groups)], found.coef, found.intercept, found.result)
        trail.found.append(_strengths(bend, at.x))
    else:
        at = _one(rows, plans.one, group, groups, scales, trail, alone)
    steps = at.result.steps
    if plans.many is not None:
        seconds = settings.max_seconds
        if seconds is not None:
            seconds = max(seconds - at.result.seconds, 1e-3)
        run = partial(run, max_seconds=seconds)
        at = _many(rows, plans, plans.many, group, scales, at, trail, run)
        steps += at.result.steps
    strengths = _strengths(bend, at.x)
    trail.found.append(strengths)
    return Found(strengths, (at.coef, at.intercept), at.result, steps, trail.path())


def better_units(candidates: list[Rows], plan: RowRoles, seconds: float | None) -> Rows:
    """The same rows in the units in which one strength predicts those held back best."""
    losses = []
    for rows in candidates:
        scales = scaling.make(*rows)
        group = np.zeros((rows.table.X.shape[1], rows.target.shape[1]), np.int32)
        models, x, y = _strong(rows, plan, group, 1, scales)
        trail = Trail()
        _Seen(models, plan, rows.weight, trail).descended(x, y, seconds)
        losses.append(trail.path().loss.min())
    return candidates[int(np.argmin(losses))]


def _strong(
    rows: Rows, plan: RowRoles, group: np.ndarray, groups: int, scales: Scaling
) -> tuple[Models, np.ndarray, np.ndarray]:
    """Models that are hardly more than their intercepts, and where that is."""
    first = 10 * max(1.0, FIRST_PER_ROW * rows.weight.sum())
    x = np.r_[np.log(first), np.zeros(groups)].astype(rows.table.X.dtype)[None]
    models = make(rows, plan, group, scales, 0.0, 0.0)
    return models, x, alike(models, x, np.zeros(group.shape), np.zeros(group.shape[1]))


def _one(
    rows: Rows, plan: RowRoles, group: np.ndarray, groups: int, scales: Scaling, trail: Trail,
    run: Any,
) -> Stage:  # fmt: skip
    """One strength."""
    wide = not len(scales.basis)
    if wide:
        models, x, y = _strong(rows, plan, group, groups, scales)
        seen = _Seen(models, plan, rows.weight, trail)
        x, y = seen.descended(x, y, run.keywords["max_seconds"])
        run = partial(run, max_steps=1)
    else:
        # Where a penalty is felt: solutions are near there, and lead to those with weaker ones.
        first = max(1.0, FIRST_PER_ROW * rows.weight.sum())
        coef, intercept = fit(rows, scales, np.full(group.shape, first))
        x = np.r_[np.log(first), np.zeros(groups)].astype(rows.table.X.dtype)[None]
        models = make(rows, plan, group, scales, 0.0, 0.0)
        y = alike(models, x, coef, intercept)
        seen = _Seen(models, plan, rows.weight, trail)
    result = run(Outer(models), Inner(models), x, y, tol=TOLERANCE[x.dtype.name], callback=seen)
    if y.size * len(rows.weight) <= CHEAP:
        seen.around(result.x, result.y)
    w, b = models.model(result.x, result.y)
    most = models.passes if wide else None
    return Stage(result.x[0], w.mean(axis=1), b.mean(axis=0), result, most)


def _many(
    rows: Rows, plans: Plans, given: RowRoles, group: np.ndarray, scales: Scaling, at: Stage,
    trail: Trail, run: Any,
) -> Stage:  # fmt: skip
    """One strength per group, if they earn it; else what was there."""
    plan, used = given, rows
    if plans.condense:
        packed = condensed.make(*rows[1:], plan)
        used, plan = Rows(rows.loss, *packed[:3]), packed.plan
        scales = scaling.make(*used)
    vectors = plan.mix.shape[1]
    errors = 2 * at.result.history["outer"][-1] / len(at.result.x)
    models = make(used, plan, group, scales, 1.0, errors)
    x = np.repeat(at.x[None].astype(used.table.X.dtype), vectors, axis=0)
    # Solved, as the models that were there had a part in training on rows that judge now.
    y = solved(models, x, alike(models, x, at.coef, at.intercept), HONEST)
    bend = Bend.of_rows(rows.weight)
    judges = _Judges(models, plan, used.weight)
    watch = Watch(judges, x, y, lambda x: trail.found.append(_strengths(bend, x.mean(axis=0))))
    # Of very many features no more work than one strength took.
    most = at.passes
    over = lambda snapshot: watch(snapshot) or (most is not None and models.passes >= most)
    result = run(Outer(models), Inner(models), x, y, tol=TOLERANCE[x.dtype.name], callback=over)
    sides = [models.model(point.x, point.y) for point in (watch.start, watch.best)]
    found = watch.best.x.mean(axis=0)
    (w, b), earned = sides[1], watch.best is not watch.start
    if earned:
        before, after = (judged(rows, given.judge, *side) for side in sides)
        earned = is_more_than_chance(before - after, weights(rows, given.judge))
    if earned and plans.check is not None:
        earned = _holds_elsewhere(rows, plans.check, group, scales, at, found)
    if not earned:
        return at._replace(result=result)
    return Stage(found, w.mean(axis=1), b.mean(axis=0), result)


def _holds_elsewhere(
    rows: Rows, plan: RowRoles, group: np.ndarray, scales: Scaling, at: Stage, x: np.ndarray
) -> bool:
    """Whether the strengths at x beat one strength on rows that had no part in finding them."""
    bend = Bend.of_rows(rows.weight)
    losses = []
    for each in (at.x, x):
        strengths = _strengths(bend, each)[group]
        w, b = fit_all(rows, plan.train, scales, strengths, (at.coef, at.intercept), HONEST)
        losses.append(judged(rows, plan.judge, w, b))
    return is_more_than_chance(losses[0] - losses[1], weights(rows, plan.judge))


class _Seen:
    """The callback of the run for one strength: notes what is seen at each step."""

    def __init__(self, models: Models, plan: RowRoles, weight: np.ndarray, trail: Trail):
        self.models, self.trail, self.rows = models, trail, plan.valid.T
        self.weight = np.broadcast_to(weight, self.rows.shape)[self.rows]

    def __call__(self, snapshot: Any) -> None:
        self.look(snapshot.x, snapshot.y)
        groups = np.full(snapshot.x.shape[1] - 1, self._strength(snapshot.x))
        self.trail.found.append(groups)

    def look(self, x: np.ndarray, y: np.ndarray) -> float:
        """Note the losses of the rows held back, and the mean of the models; their mean loss."""
        at = self.models.at(x, y)
        losses = self.models.judged(at.z)[self.rows].astype(np.float64)
        mean = float(self.weight @ losses / self.weight.sum())
        self.trail.add(self._strength(x), losses, self.weight, at.w.mean(axis=1))
        return mean

    def descended(
        self, x: np.ndarray, y: np.ndarray, seconds: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The bottom of the loss along strengths, and models near it.

        Of very many features a step of `minimize` costs several fits, and one of these one: half a
        decade at a time as long as the loss falls, then to the bottom of the last parabola.
        """
        bend, losses = self.models.shares.bend, {}
        before, began = y, time.monotonic()

        def at(place: int, near: np.ndarray) -> np.ndarray:
            nonlocal before
            there = x.copy()
            there[0, 0] = bend.inverse(bend(x[0, 0])[0] + STRIDE * place)
            solution = solved(self.models, there, near, STRIDE_SHARE)
            losses[place] = self.look(there, solution)
            if losses[place] == min(losses.values()):
                before = near
            return solution

        late = lambda: seconds is not None and time.monotonic() - began > seconds
        start = at(0, y)
        for side in (-1, 1):  # weaker, and stronger only if that was worse at once
            near, place = start, 0
            while bend.limits[0] < bend(x[0, 0])[0] + STRIDE * (place + side) < bend.limits[1]:
                place += side
                near = at(place, near)
                if losses[place] > losses[place - side] or late():
                    break
            if place < -1 or late():
                break
        best = min(losses, key=lambda each: losses[each])
        shift = 0.0
        if best - 1 in losses and best + 1 in losses:
            left, middle, right = (losses[best + d] for d in (-1, 0, 1))
            shift = 0.5 * (left - right) / max(left - 2 * middle + right, 1e-300)
        x = x.copy()
        x[0, 0] = bend.inverse(bend(x[0, 0])[0] + STRIDE * (best + shift))
        # The models one stride away: `minimize` is exact to a share of what is left to solve.
        return x, before

    def around(self, x: np.ndarray, y: np.ndarray) -> None:
        """Look on either side of x."""
        bend = self.models.shares.bend
        for side in (1, -1):
            near = y
            for decades in side * AROUND:
                logarithm = bend(x[0, 0])[0] + decades * np.log(10)
                if bend.limits[0] < logarithm < bend.limits[1]:
                    there = x.copy()
                    there[0, 0] = bend.inverse(logarithm)
                    near = solved(self.models, there, near, HONEST)
                    self.look(there, near)

    def _strength(self, x: np.ndarray) -> float:
        return float(np.exp(self.models.shares.bend(x[0, 0])[0]))


class _Judges:
    """Rows on which a point of a run is judged, and their weights."""

    def __init__(self, models: Models, plan: RowRoles, weight: np.ndarray):
        self.models = models
        self.of = np.flatnonzero(plan.judge.any(axis=0))
        self.rows = plan.judge[:, self.of].T
        self.weight = np.broadcast_to(weight, self.rows.shape)[self.rows]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        """The weighted sum of their losses."""
        z = self.models.at(x, y).z[self.of]
        return float(self.weight @ self.models.judged(z)[self.rows].astype(np.float64))


def _strengths(bend: Bend, x: np.ndarray) -> np.ndarray:
    """Of each group."""
    return two_digits(bend((x[0] + x[1:]).astype(np.float64))[0])


def two_digits(logarithms: np.ndarray) -> np.ndarray:
    """Strengths of two digits: data resolve no more, and no rounding of a run shows in them."""
    return np.array([float(f"{s:.1e}") for s in np.exp(logarithms)])
