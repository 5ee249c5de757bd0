"""The search for L1 penalties.

1. One penalty by cross-validation along a path from the least one that leaves no coefficient, and
   from its best point by `minimize`.
2. One per group, as the adaptive lasso would have them: weaker by the coefficients that each fold's
   own models found with one penalty, times a penalty that a second path chooses. So the rows that
   validate have no part in it. It is taken if they gain more than chance would give them.
3. From the better of both, one per group by `minimize`, watched and judged as in search.py.

Penalties grow with the rows that they are for: per row they stay what they were. Coefficients that
are zero have no derivative, so a penalty moves only where its group is in the model of some fold.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from untuned.estimators.penalties import l1, outcome
from untuned.estimators.penalties.folds import Plans, RowRoles
from untuned.estimators.penalties.l1 import Design, Fit
from untuned.estimators.penalties.l1_objective import LEAST_SHARE, L1Objective, penalty
from untuned.estimators.penalties.l1_path import Best, HeldBack, walk
from untuned.estimators.penalties.outcome import Limit
from untuned.estimators.penalties.path import Path, Trail
from untuned.estimators.penalties.penalties import Bend, two_digits
from untuned.estimators.penalties.search import TOLERANCE, Settings
from untuned.estimators.penalties.validation import (
    ERRORS,
    Rows,
    Watch,
    is_more_than_chance,
    weights,
)

NEAR = 0.03  # of the first hypergradient, where the start is a fifth of a decade off at most
MOST_SHARE = 0.999  # of the L1 penalty, of what a search may start from
POLISH = 8  # steps from the path's best point: a curve with kinks has no gradient that vanishes
POWERS = (1.0, 2.0)  # by which penalties fall with coefficients
SMALL = 0.1  # of the largest coefficient: what is below is as good as zero
SHARES = (0.2, 0.5, 0.9)  # of L1 that an elastic net is tried with
FEWER = 1.0  # standard errors of gain asked of a model with fewer features: it is worth something


class Found(NamedTuple):
    """Penalties, one per group, the share of L1, and how it was found."""

    penalties: np.ndarray
    share: float
    result: Any
    steps: int
    path: Path


class Stage(NamedTuple):
    """Penalties that were found, for models that train on rows of the weight `trained`."""

    penalties: np.ndarray  # (groups,)
    share: float
    trained: float
    power: float = 0.0  # by which they fell with coefficients
    common: float = 0.0  # times which

    def of_rows(self, total: float) -> tuple[np.ndarray, float]:
        """Penalties and share for models that train on rows of this weight.

        An L1 penalty holds down noise and keeps features out: per row it stays. An L2 penalty
        stands for what is known without rows, and stays in all.
        """
        absolute = self.share * total / self.trained
        grown = absolute + 1 - self.share
        return self.penalties * grown, absolute / grown


def search(
    rows: Rows, plans: Plans, group: np.ndarray, groups: int, mixed: bool, total: float,
    settings: Settings,
) -> Found:  # fmt: skip
    """The penalties that validate best: one, then many if there is a plan for them.

    `total` is the weight of all rows, to which the model will be fitted.
    """
    assert plans.one is not None
    one_group = np.broadcast_to(np.int32(0), group.shape)
    models = _models(rows, plans.one, one_group, mixed, 0.0)
    held, limit = HeldBack(rows, plans.one.valid), settings.limit
    x, best, trail = _common(models, held, limit)
    bend, along = models.penalties.bend, len(trail.points)
    all_groups = lambda x: np.full(groups, _penalties(bend, x[0], mixed)[0][0])
    if limit.is_over():
        message = f"Time was up after {along} strengths of the first path. Give more to go further."
        result = outcome.result(x, best.y, [best.value], limit.taken(), message, "max_seconds")
    else:
        result = settings.minimize(
            models, x, tol=NEAR, max_steps=min(POLISH, settings.max_steps),
            callback=lambda at: trail.found.append(all_groups(at.x)),
        )  # fmt: skip
    steps, trained, work = result.steps, float(models.total.mean()), models.design.work
    at = Stage(all_groups(result.x), _penalties(bend, result.x[0], mixed)[1], trained)
    if plans.many is not None and not limit.is_over():
        y, one = models.solve(result.x), at
        near = list(models.near)
        at = _adapted(models, held, group, at, y, limit)
        log_loss = models.design.loss.is_log_loss
        variance = 1.0 if log_loss else 2 * result.history["outer"][-1]
        # About as many models as along the path.
        most = max(1, along * plans.one.mix.shape[0] // plans.many.mix.shape[0])
        if at.power:
            at = _on_all(rows, group, one, at)
        if not limit.is_over():
            at, result = _many(
                rows, plans, plans.many, group, mixed, one, at, variance, trail, work, near,
                settings._replace(max_steps=min(most, settings.max_steps)),
            )  # fmt: skip
            steps += result.steps
    found, share = at.of_rows(total)
    found = two_digits(np.log(found))
    trail.found.append(found)
    return Found(found, share, result, steps, trail.path())


def fit(rows: Rows, group: np.ndarray, found: Found) -> Fit:
    """The model of all rows."""
    return _fit(rows, group, found.penalties, found.share)


def _fit(rows: Rows, group: np.ndarray, penalties: np.ndarray, share: float) -> Fit:
    design = Design(rows.loss, rows.table, rows.target)
    of_rows = rows.weight / rows.weight.sum()
    start = np.zeros(group.shape), np.zeros(group.shape[1])
    each = penalty(penalties[group], share)
    return l1.solve(design, of_rows, rows.weight.sum(), each, start)


def _models(
    rows: Rows, plan: RowRoles, group: np.ndarray, mixed: bool, variance: float
) -> L1Objective:
    design = Design(rows.loss, rows.table, rows.target)
    return L1Objective(design, rows.weight, plan, group, mixed, variance)


def _common(models: L1Objective, held: HeldBack, limit: Limit) -> tuple[np.ndarray, Best, Trail]:
    """The x of one penalty that validates best along the path; the point; and the path."""
    alike = np.ones((len(models.total), *models.penalties.group.shape))
    shares = SHARES if models.mixed else (1.0,)
    walks: dict[float, Any] = {}
    for share in shares:
        if not walks or not limit.is_over():
            walks[share] = walk(models, held, alike, share, limit)
    share = min(walks, key=lambda each: walks[each][0].value)
    best, trail = walks[share]
    x = [models.penalties.bend.inverse(np.log(best.strength))]
    return np.array([x + [logit(share)] if models.mixed else x]), best, trail


def _adapted(
    models: L1Objective, held: HeldBack, group: np.ndarray, one: Stage, y: np.ndarray, limit: Limit
) -> Stage:
    """Penalties that fall with what one penalty found, if they earn it; else the one."""
    sizes = np.stack([_sizes(each[:-1], group, len(one.penalties)) for each in y])
    best, power = None, 0.0
    for each in POWERS:
        factors = _factors(sizes, each)[:, group]
        point, _ = walk(models, held, factors, one.share, limit)
        if best is None or point.value < best.value:
            best, power = point, each
    assert best is not None
    gains = held.losses(y[None])[0] - best.losses
    if not is_more_than_chance(gains, held.weight, _asked(y, best.y)):
        return one
    return one._replace(power=power, common=best.strength)


def _on_all(rows: Rows, group: np.ndarray, one: Stage, at: Stage) -> Stage:
    """The same with the coefficients that all rows find with one penalty."""
    coef, _ = _fit(rows, group, *one.of_rows(rows.weight.sum()))
    factors = _factors(_sizes(coef, group, len(one.penalties))[None], at.power)[0]
    return at._replace(penalties=at.common * factors)


def _sizes(coef: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """The largest coefficient of each group."""
    largest = np.zeros(groups)
    np.maximum.at(largest, group.ravel(), np.abs(coef).ravel())
    return largest


def _factors(sizes: np.ndarray, power: float) -> np.ndarray:
    """Of penalties (models, groups): one for a coefficient of zero, and less for larger ones."""
    unit = SMALL * np.maximum(sizes.max(axis=1, keepdims=True), 1e-12)
    return (1 + sizes / unit) ** -power


def _asked(before: np.ndarray, after: np.ndarray) -> float:
    """Standard errors of gain: of two models that rows cannot tell apart, fewer features."""
    fewer = np.count_nonzero(after[:, :-1]) < np.count_nonzero(before[:, :-1])
    return FEWER if fewer else ERRORS


def _many(
    rows: Rows, plans: Plans, plan: RowRoles, group: np.ndarray, mixed: bool, one: Stage,
    at: Stage, variance: float, trail: Trail, work: int, near: list[Fit], settings: Settings,
) -> tuple[Stage, Any]:  # fmt: skip
    """One penalty per group by `minimize`, if they earn it; else those that were there.

    Where models need Hessians, it ends when it has made as much `work` of them as one penalty did.
    `near` are models of other rows to start from.
    """
    models = _models(rows, plan, group, mixed, variance)
    trained, bend, held = float(models.total.mean()), models.penalties.bend, plan.judge
    models.near = [near[k % len(near)] for k in plan.split]
    x = _start(models, one, at, trained)
    weight = weights(rows.weight, held)
    note = lambda x: trail.found.append(_penalties(bend, x.mean(axis=0), mixed)[0])
    watch = Watch(lambda x: models.losses(x)[held.T], weight, x, note)
    over = lambda snapshot: watch(snapshot) or 0 < work <= models.design.work
    result = settings.minimize(models, x, tol=TOLERANCE, callback=over)
    if watch.best is watch.start or not is_more_than_chance(watch.gains(), weight):
        return at, result
    found = Stage(*_penalties(bend, watch.best.x.mean(axis=0), mixed), trained)
    if plans.check is not None:
        check, held = _models(rows, plans.check, group, mixed, variance), plans.check.judge
        losses = []
        for each in (at, found):
            s, share = each.of_rows(float(check.total.mean()))
            y = check.fitted([penalty(s[group], share)] * len(check.total))
            losses.append(rows.losses(y[:, :-1].swapaxes(0, 1), y[:, -1])[held.T])
        if not is_more_than_chance(losses[0] - losses[1], weights(rows.weight, held)):
            return at, result
    return found, result


def _start(models: L1Objective, one: Stage, at: Stage, trained: float) -> np.ndarray:
    """x with one penalty, or with those of each vector's own models as the adaptive lasso's."""
    found, share = one.of_rows(trained)
    groups, owner, bend = len(found), models.penalties.owner, models.penalties.bend
    vectors, group = models.penalties.vectors, models.penalties.group
    x = np.zeros((vectors, 1 + groups + models.mixed))
    x[:, 0] = bend.inverse(np.log(found[0]))
    if models.mixed:
        x[:, -1] = logit(min(share, MOST_SHARE))
    if not at.power:
        return x
    sizes = np.stack([_sizes(each[:-1], group, groups) for each in models.solve(x)])
    of_vector = np.stack([sizes[owner == vector].mean(axis=0) for vector in range(vectors)])
    grown = at.common * at._replace(penalties=np.ones(1)).of_rows(trained)[0]
    x[:, 0] = bend.inverse(np.log(grown))
    own = bend.inverse(np.log(grown * _factors(of_vector, at.power)))
    x[:, 1 : 1 + groups] = own - x[:, :1]
    return x


def _penalties(bend: Bend, x: np.ndarray, mixed: bool) -> tuple[np.ndarray, float]:
    share = float(max(expit(x[-1]), LEAST_SHARE)) if mixed else 1.0
    x = x[:-1] if mixed else x
    return np.exp(bend(x[0] + x[1:] if len(x) > 1 else x)[0]), share
