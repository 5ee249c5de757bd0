"""The search for strengths, and the fit on all rows with those found.

1. One strength for all groups, by cross-validation alone.
2. From there one per group. Its steps are watched on rows that had no part in it (folds.py), and
   end where the loss there has not fallen for PATIENCE steps. The step with the least loss is
   taken if that is better than one strength by more than the standard error of the difference,
   else one strength is kept: a model with many strengths has to earn them.
3. The model with the mean of the strengths' logarithms is fitted to all rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from untuned.estimators import penalized
from untuned.estimators.folds import Plan
from untuned.estimators.losses import LOSSES
from untuned.estimators.penalized import Batch, Triplets
from untuned.estimators.standardised import Standardised

PATIENCE = 5


class Settings(NamedTuple):
    """What the user may say about a run."""

    method: Any
    max_steps: int
    max_seconds: float | None
    seed: int
    progress: bool


class Found(NamedTuple):
    """Strengths, one per group, and the model on standardised features; how it was found."""

    strengths: np.ndarray
    coef: np.ndarray  # (features, columns)
    intercept: np.ndarray
    result: Any
    steps: int


class Point(NamedTuple):
    """A point of a run, and the losses on rows that had no part in it."""

    x: np.ndarray
    y: Any
    losses: np.ndarray
    step: int


def search(
    loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, plan: Plan,
    group: np.ndarray, groups: int, settings: Settings,
) -> Found:  # fmt: skip
    """The strengths that validate best, and the model they give."""
    import untuned

    models, vectors = plan.mix.shape
    features, columns = group.shape
    dtype = table.X.dtype
    f, g = penalized.problem(loss)
    batch = _batch(table, target, weight, plan, group)
    judges = _Judges(loss, table, target, weight, plan)
    point = Point(
        x=np.zeros((vectors, 1 + groups), dtype),
        y={
            "coef": np.zeros((features, models, columns), dtype),
            "intercept": np.zeros((models, columns), dtype),
        },
        losses=np.zeros(0),
        step=0,
    )
    steps, seconds = 0, settings.max_seconds
    data = _on_device(batch)
    for free in (0.0, 1.0) if groups > 1 else (0.0,):
        batch = batch._replace(free=np.asarray(free, dtype))
        data = data._replace(free=np.full(1, free, dtype))
        watch = _Watch(judges, batch, point) if free else None
        result = untuned.minimize(
            f, g, point.x, point.y, outer_data=data, inner_data=data, method=settings.method,
            max_steps=settings.max_steps, max_seconds=seconds, seed=settings.seed,
            progress=settings.progress, callback=watch,
        )  # fmt: skip
        steps += result.steps
        if seconds is not None:
            seconds = max(seconds - result.seconds, 1e-3)
        if watch is None:
            point = Point(result.x, result.y, judges(result.x, result.y, batch), 0)
        else:
            point = watch.chosen()
    if not point.x[:, 1:].any():
        batch = batch._replace(free=np.asarray(0.0, dtype))
    strengths = np.exp(penalized.log_strengths(point.x, batch)[-1].astype(np.float64))
    start = (point.y["coef"][:, -1], point.y["intercept"][-1])
    coef, intercept = fit(loss, table, target, weight, strengths[group], start)
    return Found(strengths, coef, intercept, result, steps)


class _Watch:
    """The callback of a run: keeps the best point by the judges' loss."""

    def __init__(self, judges: _Judges, batch: Batch, start: Point):
        self.judges, self.batch, self.start, self.best = judges, batch, start, start

    def __call__(self, snapshot: Any) -> bool:
        losses = self.judges(snapshot.x, snapshot.y, self.batch)
        if losses.sum() < self.best.losses.sum():
            self.best = Point(snapshot.x, snapshot.y, losses, snapshot.step)
        return snapshot.step - self.best.step >= PATIENCE

    def chosen(self) -> Point:
        """The best point, or the start if that is as good but for the standard error."""
        gains = self.start.losses - self.best.losses
        error = gains.std() * len(gains) ** 0.5
        return self.best if gains.sum() > error else self.start


class _Judges:
    """Rows on which a point of a run is judged."""

    def __init__(
        self, loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, plan: Plan
    ):
        self.loss, self.table, self.target, self.weight = loss, table, target, weight
        self.models = np.flatnonzero(plan.judge.any(axis=0))
        self.rows = plan.judge[:, self.models]

    def __call__(self, x: np.ndarray, y: Any, batch: Batch) -> np.ndarray:
        """The weighted loss of each row that judges."""
        w, _ = penalized.coefficients(self.loss, x, y, batch)
        w = np.ascontiguousarray(w[:, self.models])
        z = self.table.outputs(w.reshape(len(w), -1)).reshape(-1, *w.shape[1:])
        z += y["intercept"][self.models]
        losses = LOSSES[self.loss].value(np, z, self.target[:, None])
        return (losses * self.weight[:, None])[self.rows].astype(np.float64)


def fit(
    loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, strengths: np.ndarray,
    start: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Coefficients and intercept on all rows, with these strengths; `start` is scaled as in g."""
    from scipy.optimize import minimize as minimize_plain

    total = weight.sum()
    share = (weight / total)[:, None]
    own = strengths / total
    scale = (LOSSES[loss].curvature + own) ** -0.5
    dtype, shape = table.X.dtype, (len(scale) + 1, scale.shape[1])

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        u = flat.reshape(shape)
        w = scale * u[:-1]
        z = table.outputs(w.astype(dtype)) + u[-1]
        slopes = share * LOSSES[loss].slope(z, target)
        value = share[:, 0] @ LOSSES[loss].value(np, z, target) + 0.5 * (own * w**2).sum()
        in_w = table.gradient(slopes.astype(dtype)) + own * w
        return float(value), np.vstack([scale * in_w, slopes.sum(axis=0)]).ravel()

    first = np.vstack([start[0], start[1]]).astype(np.float64).ravel()
    options = {"maxiter": 10_000, "maxfun": 20_000, "maxcor": 20, "ftol": 0.0}
    options["gtol"] = float(np.finfo(dtype).eps) ** (2 / 3)
    u = minimize_plain(objective, first, jac=True, method="L-BFGS-B", options=options).x
    u = u.reshape(shape)
    return scale * u[:-1], u[-1]


def _batch(
    table: Standardised, target: np.ndarray, weight: np.ndarray, plan: Plan, group: np.ndarray
) -> Batch:
    train, valid = weight[:, None] * plan.train, weight[:, None] * plan.valid
    total = train.sum(axis=0)
    owner = plan.mix.argmax(axis=1)
    judged = np.bincount(owner, valid.sum(axis=0), plan.mix.shape[1])
    limits = np.log([penalized.LOWEST, penalized.MOST_PER_ROW * weight.sum()])
    batch = Batch(
        X=table.X, shift=table.shift, target=target, train=train / total,
        valid=valid / judged[owner], mix=plan.mix, group=group, total=total, limits=limits,
        free=np.zeros(()), doubt=1 / judged,
    )  # fmt: skip
    dtype = table.X.dtype
    return Batch(*(a.astype(dtype, copy=False) if a.dtype.kind == "f" else a for a in batch))


def _on_device(batch: Batch) -> Batch:
    """One block of data, put where `minimize` computes; once, as both f and g read it."""
    import jax
    import jax.numpy as jnp

    if sparse.issparse(batch.X):
        entries = batch.X.tocoo()
        batch = batch._replace(
            X=Triplets(entries.data, entries.row.astype(np.int32), entries.col.astype(np.int32))
        )
    with jax.enable_x64(batch.total.dtype == np.float64):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[None]), batch)
