"""The bilevel problem of the linear estimators: many models at once, on one copy of the rows.

x holds logarithms of strengths, a row (c, d_1, ..., d_G) per vector: group k has c + d_k. The inner
variable holds every model's coefficients. With N the weight of a model's training rows and s the
strengths that its share of the vectors gives,

    g = sum over models of (1/N) (sum over its training rows of weight * loss + 1/2 sum s w^2)
    f = sum over vectors of (1/n) (sum over their n validation rows of weight * loss + doubt)
    doubt = log(1 + exp(-c)) + sum over groups of log cosh(d_k / 2)

Squared errors are in the units of their own variance, so for them it multiplies the second part of
doubt; the first is left out, as squared errors keep coefficients finite by themselves.

Strengths are in scikit-learn's units (s = 1/C, s = alpha): they weigh against a sum over rows, not
a mean, so what is found on a part of the rows holds for all of them.

**Doubt** is that coefficients of standardised features are large, and that groups differ: minus
the logarithm of half-Cauchy densities of the common scale exp(-c/2), and of exp(-d_k / 2) in
logarithms, as in the horseshoe prior (Carvalho, Polson and Scott). Those are flat enough to let a
few groups go far, and the more rows the less they count.
**Coefficients are turned and scaled** (scaling.py), so that g curves about alike in every u,
whatever the correlations, the strengths and the sizes of classes, which spares conjugate gradients
most of their steps; and where s grows w falls at once, before u is solved for.
**Softmax is the same for intercepts that all grow alike**, so a term that asks for a sum of
zero changes no prediction, and makes g curve in that direction too.
**Strengths have limits**, towards which x bends smoothly: below LOWEST a standardised feature is
as good as free, and above MOST_PER_ROW for each row it is as good as gone.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from untuned.compiled import reusable
from untuned.estimators.losses import LOSSES
from untuned.estimators.scaling import Turn

LOWEST, MOST_PER_ROW = 1e-4, 100.0
# Keeps the intercept of a class finite in a model none of whose rows are of it.
INTERCEPT_PENALTY = 1e-6


class Batch(NamedTuple):
    """All rows and who uses them; to `minimize` each array has one more axis, of length 1."""

    X: Any  # (rows, features), or a Triplets
    shift: Any  # (features,), to be taken off the rows of X
    target: Any  # (rows, columns)
    train: Any  # (rows, models), weights that sum to 1 for each model
    valid: Any  # (rows, models), weights that sum to 1 for each vector
    mix: Any  # (models, vectors), shares
    group: Any  # (features, columns)
    total: Any  # (models,), N
    limits: Any  # (2,), logarithms of the least and the largest strength
    free: Any  # 1 where groups may differ, else 0
    doubt: Any  # (vectors, 2), 1/n, for both parts of doubt
    scaling: Any  # a Scaling


class Triplets(NamedTuple):
    """A sparse matrix: entry k is value[k], at (row[k], column[k])."""

    value: Any
    row: Any
    column: Any


def log_strengths(x: Any, batch: Batch, xp: Any = np) -> tuple[Any, Any]:
    """Logarithms of each model's strengths: (models, groups), and (models,) without differences."""
    middle, half = batch.limits.mean(), (batch.limits[1] - batch.limits[0]) / 2
    common = batch.mix @ x[:, :1]
    own = common + batch.free * (batch.mix @ x[:, 1:])
    own, common = (middle + half * xp.tanh((z - middle) / half) for z in (own, common))
    return own, common[:, 0]


def coefficients(x: Any, y: Any, batch: Batch, xp: Any = np) -> tuple[Any, Any]:
    """w and s of each model: (features, models, columns)."""
    turn, s = turned(x, batch, xp)
    return turn.forth(y["coef"]), s


def turned(x: Any, batch: Batch, xp: Any = np) -> tuple[Turn, Any]:
    """The map from y's coefficients to w, and s."""
    own, common = log_strengths(x, batch, xp)
    s = xp.moveaxis(xp.exp(own)[:, batch.group], 0, 1)
    return Turn.make(s, xp.exp(common), batch.total, batch.scaling), s


def losses(loss: str, y: Any, w: Any, batch: Batch) -> Any:
    """The loss of each model on each row: (rows, models)."""
    import jax
    import jax.numpy as jnp

    flat = w.reshape(w.shape[0], -1)
    if isinstance(batch.X, Triplets):
        entries = batch.X.value[:, None] * flat[batch.X.column]
        z = jax.ops.segment_sum(
            entries, batch.X.row, num_segments=len(batch.target), indices_are_sorted=True
        )
    else:
        z = batch.X @ flat
    z = (z - batch.shift @ flat).reshape(-1, *w.shape[1:])
    z += y["intercept"] * batch.scaling.curvature**-0.5
    return LOSSES[loss].value(jnp, z, batch.target[:, None])


@reusable
def inner(loss: str, x: Any, y: Any, data: Batch) -> Any:
    """g."""
    import jax
    import jax.numpy as jnp

    batch = jax.tree.map(lambda leaf: leaf[0], data)
    w, s = coefficients(x, y, batch, jnp)
    penalty = (s * w**2).sum(axis=(0, 2)) / batch.total
    penalty = penalty.sum() + INTERCEPT_PENALTY * (y["intercept"] ** 2).sum()
    if loss == "softmax":
        down = batch.scaling.curvature**-0.5
        penalty += ((y["intercept"] @ down) ** 2).sum() / (down @ down)
    return (batch.train * losses(loss, y, w, batch)).sum() + 0.5 * penalty


@reusable
def outer(loss: str, x: Any, y: Any, data: Batch) -> Any:
    """f."""
    import jax
    import jax.numpy as jnp

    batch = jax.tree.map(lambda leaf: leaf[0], data)
    w, _ = coefficients(x, y, batch, jnp)
    half = 0.5 * x[:, 1:]
    differ = (jnp.logaddexp(half, -half) - np.log(2.0)).sum(axis=1)
    doubt = batch.doubt[:, 0] @ jnp.logaddexp(0, -x[:, 0]) + batch.doubt[:, 1] @ differ
    return (batch.valid * losses(loss, y, w, batch)).sum() + doubt


def problem(loss: str) -> tuple[Any, Any]:
    """(f, g) of a loss."""
    return partial(outer, loss), partial(inner, loss)
