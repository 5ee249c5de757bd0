"""The search for strengths, and the fit of a model with those found.

1. One strength for all groups, by cross-validation alone.
2. From there, and from its models, one per group. Its steps are watched on rows that had no part
   in it (folds.py), and end where the loss there has not fallen for PATIENCE steps. The step with
   the least loss is taken if that is better than one strength by more than two standard errors of
   the difference, else one strength is kept: a model with many strengths has to earn them.
3. The mean of their logarithms is the result. The model with it is fitted to all rows (`fit`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from untuned import ops as array_libraries
from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.objective import Inner, Models, Outer
from untuned.estimators.penalties.scaling import Scaling
from untuned.estimators.penalties.standardisation import Standardised
from untuned.estimators.penalties.strengths import LOWEST, MOST_PER_ROW, Shares
from untuned.problem.derivatives import Oracles
from untuned.run import minimize
from untuned.solvers.numerics import newton_cg, preconditioner

PATIENCE = 5
ERRORS = 2  # standard ones, of a gain that is more than chance
# Of the first hypergradient: about the two digits that strengths get, and no less than rounding.
TOLERANCE = {"float64": 1e-3, "float32": 1e-2}
FIRST_PER_ROW = 0.01  # strength at the start, for each row; at least 1
ROUGH = 0.1  # share of the error that is left in the model that the search starts from


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


class Point(NamedTuple):
    """A point of a run, and the losses on rows that had no part in it."""

    x: np.ndarray
    y: np.ndarray
    losses: np.ndarray
    step: int


def search(
    loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, plans: list[RowRoles],
    group: np.ndarray, groups: int, scales: Scaling, settings: Settings,
) -> Found:  # fmt: skip
    """The strengths that validate best: one by the first plan, then many if there is a second."""

    # Start where a penalty is felt: solutions are near there, and lead to those with weaker ones.
    first = max(1.0, FIRST_PER_ROW * weight.sum())
    coef, intercept = fit(loss, table, target, weight, scales, np.full(group.shape, first))
    x = np.r_[np.log(first), np.zeros(groups)].astype(table.X.dtype)
    # Of each split the coefficients and intercepts that the next run starts from.
    splits = len(plans[0].split)
    w, b = np.repeat(coef[:, None], splits, axis=1), np.repeat(intercept[None], splits, axis=0)
    steps, seconds, errors = 0, settings.max_seconds, 0.0
    run = partial(
        minimize, method=settings.method, tol=TOLERANCE[x.dtype.name], seed=settings.seed,
        progress=settings.progress, max_steps=settings.max_steps,
    )  # fmt: skip
    for number, plan in enumerate(plans):
        vectors = plan.mix.shape[1]
        models = make(loss, table, target, weight, plan, group, scales, float(number), errors)
        start = np.repeat(x[None], vectors, axis=0)
        y = models.inner_variable(start, w[:, plan.split], b[plan.split])
        watch = _Watch(_Judges(models, plan, weight), start, y) if number else None
        result = run(Outer(models), Inner(models), start, y, max_seconds=seconds, callback=watch)
        steps += result.steps
        if seconds is not None:
            seconds = max(seconds - result.seconds, 1e-3)
        errors = 2 * result.history["outer"][-1] / vectors
        found = watch.chosen() if watch else result
        x = found.x.mean(axis=0)
        w, b = models.model(found.x, found.y)
    middle = models.shares._replace(mix=np.ones((1, 1), x.dtype))
    strengths = _two_digits(middle.logarithms(x[None])[0][0])
    return Found(strengths, (w.mean(axis=1), b.mean(axis=0)), result, steps)


def make(
    loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, plan: RowRoles,
    group: np.ndarray, scales: Scaling, free: float, errors: float,
) -> Models:  # fmt: skip
    """The models of a plan; groups differ if `free` is 1. `errors`: variance of squared errors."""
    dtype = table.X.dtype
    train, valid = weight[:, None] * plan.train, weight[:, None] * plan.valid
    total = train.sum(axis=0)
    owner = plan.mix.argmax(axis=1)
    judged = np.bincount(owner, valid.sum(axis=0), plan.mix.shape[1])
    limits = np.log([LOWEST, MOST_PER_ROW * weight.sum()])
    shares = Shares(
        plan.mix.astype(dtype), group, total.astype(dtype), limits.astype(dtype), free, scales
    )
    doubt = np.stack([1 / judged, 1 / judged], axis=1)
    if loss == "squared":
        doubt *= [0, errors]
    train, valid = (train / total).astype(dtype), (valid / judged[owner]).astype(dtype)
    return Models(loss, table, target, train, valid, shares, doubt.astype(dtype))


class _Watch:
    """The callback of a run: keeps the best point by the judges' loss."""

    def __init__(self, judges: _Judges, x: np.ndarray, y: np.ndarray):
        self.judges = judges
        self.start = self.best = Point(x, y, judges(x, y), 0)

    def __call__(self, snapshot: Any) -> bool:
        losses = self.judges(snapshot.x, snapshot.y)
        weight = self.judges.weight
        if weight @ losses < weight @ self.best.losses:
            self.best = Point(snapshot.x, snapshot.y, losses, snapshot.step)
        return snapshot.step - self.best.step >= PATIENCE

    def chosen(self) -> Point:
        """The best point, or the start if that is as good but for chance."""
        weight = self.judges.weight
        gains = self.start.losses - self.best.losses
        gain = weight @ gains
        error = (weight @ (gains - gain / weight.sum()) ** 2) ** 0.5
        return self.best if gain > ERRORS * error else self.start


class _Judges:
    """Rows on which a point of a run is judged, and their weights."""

    def __init__(self, models: Models, plan: RowRoles, weight: np.ndarray):
        self.models = models
        self.of = np.flatnonzero(plan.judge.any(axis=0))
        self.rows = plan.judge[:, self.of].T
        self.weight = np.broadcast_to(weight, self.rows.shape)[self.rows]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The loss of each row that judges."""
        z = self.models.at(x, y).z[self.of]
        losses = self.models.loss.value(z, self.models.target, 1)
        return losses[self.rows].astype(np.float64)


def fit(
    loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, scales: Scaling,
    strengths: np.ndarray, start: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Coefficients (features, columns) and intercepts on all rows, with these strengths.

    Roughly where there is no start, which is what a start is made of.
    """
    dtype, total = table.X.dtype, np.array([weight.sum()], table.X.dtype)
    share = (weight / weight.sum()).astype(dtype)[:, None]
    none = np.zeros((1, 1), dtype)
    shares = Shares(none, np.zeros(strengths.shape, int), total, none[0], 0.0, scales)
    fixed = shares.fixed(strengths.astype(dtype))
    inner = Inner(Models(loss, table, target, share, share, shares, none, fixed))
    o = Oracles(array_libraries.get("numpy"), inner, inner)
    coef, intercept = start or (np.zeros(strengths.shape), np.zeros(target.shape[1]))
    x, y = none, inner.models.inner_variable(none, coef[:, None], intercept[None])
    with o.ops.precision(y):
        matrix = preconditioner.identity(o, y)
        if matrix is not None:
            matrix = preconditioner.make(o, x, y, None, matrix)
        solved = newton_cg.solve_inner(
            o, x, y, None, share=float(np.finfo(dtype).eps) ** 0.5 if start else ROUGH,
            most=2 * y.size + 10,
            precondition=preconditioner.apply(o.ops, matrix),
        )  # fmt: skip
    w, b = inner.models.model(x, solved.y)
    return w[:, 0], b[0]


def _two_digits(logarithms: np.ndarray) -> np.ndarray:
    """Strengths of two digits: data resolve no more, and no rounding of a run shows in them."""
    return np.array([float(f"{s:.1e}") for s in np.exp(logarithms.astype(np.float64))])
