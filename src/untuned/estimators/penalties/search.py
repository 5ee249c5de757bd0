"""The search for L2 penalties.

1. One penalty for all groups: of squared errors by leaving out each row once (leave_one_out.py),
   else by the first plan's folds, in which every row validates once (walk.py).
2. From there one per group, by `minimize` (objective.py). Its steps are watched on rows that had no
   part in it (folds.py, validation.py). The step with the least loss is taken if that is better
   than one penalty by more than two standard errors of the difference, else one penalty is kept.
   Where a split of the rows was enough to find them, all other rows are asked too.
3. The mean of their logarithms is the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.penalties import descent, leave_one_out, objective, outcome, penalties, walk
from untuned.estimators.penalties.bilevel import Nothing, Outer
from untuned.estimators.penalties.folds import Plans, RowRoles
from untuned.estimators.penalties.objective import Objective
from untuned.estimators.penalties.outcome import Limit
from untuned.estimators.penalties.path import Path, Trail
from untuned.estimators.penalties.penalties import Bend, two_digits
from untuned.estimators.penalties.validation import Rows, Watch, is_more_than_chance, weights
from untuned.run import minimize

TOLERANCE = 1e-3  # of the first gradient: about the two digits that penalties get


class Settings(NamedTuple):
    """What the user may say about a run."""

    method: Any
    max_steps: int
    limit: Limit
    seed: int
    progress: bool

    def minimize(self, outer: Any, x: np.ndarray, **more: Any) -> Any:
        """A function of x alone, as far as time allows."""
        steps = more.pop("max_steps", self.max_steps)
        if isinstance(self.method, str) and self.method == "auto":
            return descent.minimize(
                outer.value_and_gradient, x, max_steps=steps, limit=self.limit,
                progress=self.progress, **more,
            )  # fmt: skip
        f: Any = Outer(outer.value_and_gradient)
        g: Any = Nothing()
        return minimize(
            f, g, x, np.zeros(1, x.dtype),
            method=self.method, max_steps=steps, max_seconds=self.limit.left(), seed=self.seed,
            progress=self.progress, **more,
        )  # fmt: skip


class Found(NamedTuple):
    """Penalties, one per group, and how they were found; `model` if it is known by then."""

    penalties: np.ndarray
    model: tuple[np.ndarray, np.ndarray] | None
    result: Any
    steps: int
    path: Path


def search(
    rows: Rows, plans: Plans, group: np.ndarray, groups: int, settings: Settings,
    near: float | None = None,
) -> Found:  # fmt: skip
    """The penalties that validate best: one, then many if there is a plan for them.

    `near` is the logarithm of one that was best when some of the rows were held back.
    """
    bend, trail, limit = Bend.of_rows(rows.weight), Trail(), settings.limit
    model = None
    if plans.one is None:
        single = leave_one_out.search(*rows.divided()[1:], bend, trail)
        common, result, model = single.x, single.result, (single.coef, single.intercept)
    else:
        bottom = walk.descend(rows, plans.one, limit, trail, near)
        common = float(bend.inverse(bottom.logarithm))
        result = _result(bottom, two_digits(bend(np.array(common))[0]), common, limit)
    x = np.r_[common, np.zeros(groups)]
    trail.found.append(_each(bend, x))
    steps = result.steps
    if plans.many is not None and not limit.is_over():
        many, result = _many(rows.divided(), plans, plans.many, group, x, result, trail, settings)
        steps += result.steps
        if many is not x:
            x, model = many, None
    trail.found.append(_each(bend, x))
    return Found(_each(bend, x), model, result, steps, trail.path())


def better_units(
    candidates: list[Any], plan: RowRoles, limit: Limit
) -> tuple[Rows, float]:  # fmt: skip
    """The same rows in the units in which one penalty predicts those held back best; and its
    logarithm. One after the other is made, as rows may be large."""
    bottoms = []
    for make_rows in candidates:
        rows = make_rows()
        bottoms.append(walk.descend(rows, plan, limit, Trail()))
    best = int(np.argmin([min(each.losses) for each in bottoms]))
    if best < len(candidates) - 1:
        rows = candidates[best]()
    return rows, bottoms[best].logarithm


def _result(bottom: walk.Bottom, penalty: np.ndarray, x: float, limit: Limit) -> Any:
    late, count = limit.is_over(), len(bottom.losses)
    message = f"One strength, {penalty:g}, at the bottom of {count} losses half a decade apart" + (
        ": time was up. Give more to go further." if late else "."
    )
    status: Any = "max_seconds" if late else "converged"
    return outcome.result(
        np.full((1, 1), x), np.zeros(1), bottom.losses, limit.taken(), message, status
    )


def _many(
    rows: Rows, plans: Plans, plan: RowRoles, group: np.ndarray, x: np.ndarray, one: Any,
    trail: Trail, settings: Settings,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """One penalty per group, if they earn it; else `x`, the one; and the result of the search."""
    bend = Bend.of_rows(rows.weight)
    f = Objective(rows, plan, group, 2 * min(one.history["outer"]))
    held = plan.judge
    weight = weights(rows.weight, held)
    start = np.repeat(x[None].astype(f.models.dtype), plan.mix.shape[1], axis=0)
    note = lambda x: trail.found.append(_each(bend, x.mean(axis=0)))
    watch = Watch(lambda x: f.losses(x)[held.T].astype(np.float64), weight, start, note)
    result = settings.minimize(f, start, tol=TOLERANCE, callback=watch)
    if watch.best is watch.start or not is_more_than_chance(watch.gains(), weight):
        return x, result
    found = watch.best.x.astype(np.float64).mean(axis=0)
    if plans.check is not None and not _holds(rows, plans.check, group, x, found):
        return x, result
    return found, result


def _holds(
    rows: Rows, plan: RowRoles, group: np.ndarray, one: np.ndarray, many: np.ndarray
) -> bool:
    """Whether many penalties beat one on rows that had no part in finding them."""
    bend = Bend.of_rows(rows.weight)
    before: list[np.ndarray] = []
    after: list[np.ndarray] = []
    for part in objective.parts(rows, plan.train, plan.judge):
        for x, losses in ((one, before), (many, after)):
            losses.append(part.losses(penalties.each(_each(bend, x), group)))
    gains = np.concatenate(before) - np.concatenate(after)
    return is_more_than_chance(gains, weights(rows.weight, plan.judge))


def _each(bend: Bend, x: np.ndarray) -> np.ndarray:
    """Of each group."""
    return two_digits(bend((x[0] + x[1:]).astype(np.float64))[0])
