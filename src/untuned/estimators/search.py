"""The search for strengths, and the fit of a model with those found.

1. One strength for all groups, by cross-validation alone.
2. From there one per group. Its steps are watched on rows that had no part in it (folds.py), and
   end where the loss there has not fallen for PATIENCE steps. The step with the least loss is
   taken if that is better than one strength by more than the standard error of the difference,
   else one strength is kept: a model with many strengths has to earn them.
3. The mean of their logarithms is the result. The model with it is fitted to all rows (`fit`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from untuned.estimators import penalized, scaling
from untuned.estimators.folds import Plan
from untuned.estimators.losses import LOSSES
from untuned.estimators.penalized import Batch, Triplets
from untuned.estimators.scaling import Scaling, Turn
from untuned.estimators.standardised import SMALL, Standardised

PATIENCE = 5
TOLERANCE = 1e-3  # of the first hypergradient: finer than the two digits that strengths get
FIRST_PER_ROW = 0.01  # strength at the start, for each row; at least 1
ROUGH, ROUGH_STEPS = 1e-4, 100  # gradient and steps for the model that the search starts from


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
    y: Any
    losses: np.ndarray
    step: int


def search(
    loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, plan: Plan,
    group: np.ndarray, groups: int, many: bool, settings: Settings,
) -> Found:  # fmt: skip
    """The strengths that validate best."""
    import untuned

    vectors = plan.mix.shape[1]
    features = len(group)
    dtype = table.X.dtype
    small = table.X.size <= SMALL and not sparse.issparse(table.X)
    shape = (_rounded(len(target)), _rounded(features)) if small else table.X.shape
    f, g = penalized.problem(loss)
    scales = scaling.make(loss, table, target, weight)
    # Start where a penalty is felt: solutions are near there, and lead to those with weaker ones.
    first = max(1.0, FIRST_PER_ROW * weight.sum())
    start = fit(loss, table, target, weight, np.full(group.shape, first))
    batch = _padded(_batch(table, target, weight, plan, group, scales), shape)
    doubt = batch.doubt
    if loss == "squared":  # the variance of the errors is still to be seen
        batch = batch._replace(doubt=0 * doubt)
    judges = _Judges(loss, table, target, weight, plan)
    x = np.zeros((vectors, 1 + (_rounded(groups) if small else groups)), dtype)
    x[:, 0] = np.log(first)
    point = Point(
        x=x,
        y=_inner_variable(start, penalized.turned(x, batch)[0], batch, shape[1]),
        losses=np.zeros(0),
        step=0,
    )
    steps, seconds = 0, settings.max_seconds
    data = _on_device(batch)
    run = partial(
        untuned.minimize, f, g, method=settings.method, tol=TOLERANCE, seed=settings.seed,
        progress=settings.progress,
    )  # fmt: skip
    for free in (0.0, 1.0) if many else (0.0,):
        batch = batch._replace(free=np.asarray(free, dtype))
        data = data._replace(free=batch.free[None], doubt=batch.doubt[None])
        watch = _Watch(judges, batch, point) if free else None
        result = run(
            point.x, point.y, outer_data=data, inner_data=data, max_steps=settings.max_steps,
            max_seconds=seconds, callback=watch,
        )  # fmt: skip
        steps += result.steps
        if seconds is not None:
            seconds = max(seconds - result.seconds, 1e-3)
        if watch is not None:
            point = watch.chosen()
            continue
        point = Point(result.x, result.y, judges(result.x, result.y, batch), 0)
        if loss == "squared":
            variance = 2 * result.history["outer"][-1] / vectors
            batch = batch._replace(doubt=(variance * doubt * [0, 1]).astype(dtype))
    strengths = _two_digits(penalized.log_strengths(point.x, batch)[0][-1, :groups])
    w, _ = penalized.coefficients(point.x, point.y, batch)
    near = w[:features, -1], point.y["intercept"][-1] * scales.curvature**-0.5
    return Found(strengths, near, result, steps)


class _Watch:
    """The callback of a run: keeps the best point by the judges' loss."""

    def __init__(self, judges: _Judges, batch: Batch, start: Point):
        self.judges, self.batch, self.start, self.best = judges, batch, start, start

    def __call__(self, snapshot: Any) -> bool:
        losses = self.judges(snapshot.x, snapshot.y, self.batch)
        weight = self.judges.weight
        if weight @ losses < weight @ self.best.losses:
            self.best = Point(snapshot.x, snapshot.y, losses, snapshot.step)
        return snapshot.step - self.best.step >= PATIENCE

    def chosen(self) -> Point:
        """The best point, or the start if that is as good but for the standard error."""
        weight = self.judges.weight
        gains = self.start.losses - self.best.losses
        gain = weight @ gains
        error = (weight @ (gains - gain / weight.sum()) ** 2) ** 0.5
        return self.best if gain > error else self.start


class _Judges:
    """Rows on which a point of a run is judged, and their weights."""

    def __init__(
        self, loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, plan: Plan
    ):
        self.loss, self.table, self.target = loss, table, target
        self.models = np.flatnonzero(plan.judge.any(axis=0))
        self.rows = plan.judge[:, self.models]
        self.weight = np.broadcast_to(weight[:, None], self.rows.shape)[self.rows]

    def __call__(self, x: np.ndarray, y: Any, batch: Batch) -> np.ndarray:
        """The loss of each row that judges."""
        if len(self.models) == 0:  # one strength needs no judge
            return np.zeros(0)
        w, _ = penalized.coefficients(x, y, batch)
        w = np.ascontiguousarray(w[: self.table.X.shape[1], self.models])
        z = self.table.outputs(w.reshape(len(w), -1)).reshape(-1, *w.shape[1:])
        z += y["intercept"][self.models] * batch.scaling.curvature**-0.5
        return LOSSES[self.loss].value(np, z, self.target[:, None])[self.rows].astype(np.float64)


def fit(
    loss: str, table: Standardised, target: np.ndarray, weight: np.ndarray, strengths: np.ndarray,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Coefficients (features, columns) and intercepts on all rows, with these strengths.

    Roughly where there is no start, which is what a start is made of.
    """
    from scipy.optimize import minimize as minimize_plain
    from scipy.sparse.linalg import LinearOperator, cg

    dtype, columns, total = table.X.dtype, target.shape[1], weight.sum()
    share = (weight / total)[:, None]
    scales = scaling.make(loss, table, target, weight)
    middle = np.exp([np.log(strengths).mean()])
    turn = Turn.make(strengths[:, None], middle, np.array([total]), scales)

    down = scales.curvature**-0.5  # of intercepts
    ones = down / np.linalg.norm(down) if loss == "softmax" else 0 * down  # as in g

    def outputs(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = turn.forth(u[:-1, None])[:, 0]
        return w, table.outputs(w.astype(dtype)) + u[-1] * down

    def back(slopes: np.ndarray, w: np.ndarray, u: np.ndarray) -> np.ndarray:
        in_w = table.gradient((share * slopes).astype(dtype)) + strengths * w / total
        in_intercept = share[:, 0] @ slopes * down + (u[-1] @ ones) * ones
        return np.vstack([turn.back(in_w[:, None])[:, 0], in_intercept]).ravel()

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        u = flat.reshape(-1, columns)
        w, z = outputs(u)
        value = share[:, 0] @ LOSSES[loss].value(np, z, target)
        penalty = (strengths * w**2).sum() / total + (u[-1] @ ones) ** 2
        return float(value + 0.5 * penalty), back(LOSSES[loss].slope(z, target), w, u)

    small = float(np.finfo(dtype).eps)
    u = np.zeros((len(strengths) + 1, columns))
    options = {"maxcor": 20, "maxiter": ROUGH_STEPS, "ftol": 0.0, "gtol": ROUGH}
    if start:
        u = np.vstack([turn.inverse(start[0][:, None])[:, 0], start[1] / down])
        options |= {"maxiter": 1000, "ftol": small**1.25, "gtol": 10 * small}
    flat = minimize_plain(objective, u.ravel(), jac=True, method="L-BFGS-B", options=options).x
    # Its line search ends where values no longer differ, at half the digits; two Newton steps
    # give the other half.
    for _ in range(2 if dtype == np.float64 and start else 0):
        z = outputs(flat.reshape(-1, columns))[1]

        def product(v: np.ndarray, z: np.ndarray = z) -> np.ndarray:
            v = v.reshape(-1, columns)
            in_w, in_z = outputs(v)
            return back(LOSSES[loss].bend(z, in_z), in_w, v)

        hessian = LinearOperator((flat.size, flat.size), product, dtype=np.float64)
        flat = flat - cg(hessian, objective(flat)[1], rtol=1e-8)[0]
    return outputs(flat.reshape(-1, columns))[0], flat[-columns:] * down


def _inner_variable(
    model: tuple[np.ndarray, np.ndarray], turn: Turn, batch: Batch, features: int
) -> dict[str, np.ndarray]:
    """The inner variable at which every model has the coefficients and intercepts of `model`."""
    w = np.pad(model[0], ((0, features - len(model[0])), (0, 0)))
    w = np.repeat(w[:, None], len(batch.total), axis=1)
    b = np.repeat((model[1] * batch.scaling.curvature**0.5)[None], len(batch.total), axis=0)
    dtype = batch.total.dtype
    return {"coef": turn.inverse(w).astype(dtype), "intercept": b.astype(dtype)}


def _two_digits(logarithms: np.ndarray) -> np.ndarray:
    """Strengths of two digits: data resolve no more, and no rounding of a run shows in them."""
    return np.array([float(f"{s:.1e}") for s in np.exp(logarithms.astype(np.float64))])


def _batch(
    table: Standardised, target: np.ndarray, weight: np.ndarray, plan: Plan, group: np.ndarray,
    scales: Scaling,
) -> Batch:  # fmt: skip
    train, valid = weight[:, None] * plan.train, weight[:, None] * plan.valid
    total = train.sum(axis=0)
    owner = plan.mix.argmax(axis=1)
    judged = np.bincount(owner, valid.sum(axis=0), plan.mix.shape[1])
    limits = np.log([penalized.LOWEST, penalized.MOST_PER_ROW * weight.sum()])
    batch = Batch(
        X=table.X, shift=table.shift, target=target, train=train / total,
        valid=valid / judged[owner], mix=plan.mix, group=group, total=total, limits=limits,
        free=np.zeros(()), scaling=scales,
        doubt=np.stack([1 / judged, 1 / judged], axis=1),
    )  # fmt: skip
    dtype = table.X.dtype
    return _mapped(lambda a: a.astype(dtype, copy=False) if a.dtype.kind == "f" else a, batch)


def _mapped(function: Callable, batch: Batch) -> Batch:
    scales = Scaling(*(function(array) for array in batch.scaling))
    rest = (function(array) for array in batch._replace(scaling=batch.total))
    return Batch(*rest)._replace(scaling=scales)


def _rounded(count: int) -> int:
    """`count` rounded up to a power of two, or above 512 by an eighth at most."""
    step = 2 ** max(count - 1, 7).bit_length()
    return step if step <= 512 else -(-count // (step // 16)) * (step // 16)


def _padded(batch: Batch, shape: tuple[int, int]) -> Batch:
    """`batch` with rows that count for nobody and features that are always zero.

    So sizes that differ a little, as in cross-validation of this very model, find the code that was
    compiled for each other.
    """
    (rows, features), n, d = shape, len(batch.target), len(batch.group)
    if (rows, features) == (n, d):
        return batch
    more_rows, more_features = ((0, rows - n), (0, 0)), (0, features - d)
    basis = batch.scaling.basis
    return batch._replace(
        X=np.pad(batch.X, (more_rows[0], more_features)),
        shift=np.pad(batch.shift, more_features),
        target=np.pad(batch.target, more_rows),
        train=np.pad(batch.train, more_rows),
        valid=np.pad(batch.valid, more_rows),
        group=np.pad(batch.group, (more_features, (0, 0))),
        scaling=batch.scaling._replace(
            basis=np.pad(basis, (more_features, more_features)) if len(basis) else basis,
            spread=np.pad(batch.scaling.spread, more_features, constant_values=1),
        ),
    )


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
