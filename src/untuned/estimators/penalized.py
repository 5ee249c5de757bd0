"""The bilevel problem of the linear estimators: many models at once, on one copy of the rows.

x holds logarithms of strengths, a row (c, d_1, ..., d_G) per vector: group k has c + d_k. The inner
variable holds every model's coefficients. With N the weight of a model's training rows and s the
strengths that its share of the vectors gives,

    g = sum over models of (1/N) (sum over its training rows of weight * loss + 1/2 sum s w^2)
    f = sum over vectors of l + doubt / n,      l the mean loss over their n validation rows
    doubt = log(1 + exp(-c)) + sum over groups of log cosh(d_k / 2)

For squared errors l is 1/2 log of their mean, which is free of the targets' units like a log-loss.

Strengths are in scikit-learn's units (s = 1/C, s = alpha): they weigh against a sum over rows, not
a mean, so what is found on a part of the rows holds for all of them.

**Doubt** is that coefficients of standardised features are large, and that groups differ: minus
the logarithm of half-Cauchy densities of the common scale exp(-c/2), and of exp(-d_k / 2) in
logarithms, as in the horseshoe prior (Carvalho, Polson and Scott). Those are flat enough to let a
few groups go far, and the more rows the less they count.
**Coefficients are scaled**, w = u / sqrt(curvature + s/N): then g curves about alike in every u,
whatever the strengths, which spares conjugate gradients most of their steps; and where s grows w
falls at once, before u is solved for.
**Strengths have limits**, towards which x bends smoothly: below LOWEST a standardised feature is
as good as free, and above MOST_PER_ROW for each row it is as good as gone.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.losses import LOSSES

LOWEST, MOST_PER_ROW = 1e-4, 100.0
# Keeps the intercept of a class finite in a model none of whose rows are of it.
INTERCEPT_PENALTY = 1e-6
LEAST_ERROR = 1e-12  # of standardised targets: keeps the logarithm of a perfect fit finite


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
    doubt: Any  # (vectors,), 1/n


class Triplets(NamedTuple):
    """A sparse matrix: entry k is value[k], at (row[k], column[k])."""

    value: Any
    row: Any
    column: Any


def log_strengths(x: Any, batch: Batch, xp: Any = np) -> Any:
    """Logarithms of the strengths of each model: (models, groups)."""
    middle, half = batch.limits.mean(), (batch.limits[1] - batch.limits[0]) / 2
    bare = batch.mix @ (x[:, :1] + batch.free * x[:, 1:])
    return middle + half * xp.tanh((bare - middle) / half)


def coefficients(loss: str, x: Any, y: Any, batch: Batch, xp: Any = np) -> tuple[Any, Any]:
    """w and s of each model: (features, models, columns)."""
    s = xp.moveaxis(xp.exp(log_strengths(x, batch, xp))[:, batch.group], 0, 1)
    return y["coef"] / xp.sqrt(LOSSES[loss].curvature + s / batch.total[:, None]), s


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
    z = (z - batch.shift @ flat).reshape(-1, *w.shape[1:]) + y["intercept"]
    return LOSSES[loss].value(jnp, z, batch.target[:, None])


def inner(loss: str, x: Any, y: Any, data: Batch) -> Any:
    """g."""
    import jax
    import jax.numpy as jnp

    batch = jax.tree.map(lambda leaf: leaf[0], data)
    w, s = coefficients(loss, x, y, batch, jnp)
    penalty = (s * w**2).sum(axis=(0, 2)) / batch.total
    intercepts = INTERCEPT_PENALTY * (y["intercept"] ** 2).sum()
    return (batch.train * losses(loss, y, w, batch)).sum() + 0.5 * (penalty.sum() + intercepts)


def outer(loss: str, x: Any, y: Any, data: Batch) -> Any:
    """f."""
    import jax
    import jax.numpy as jnp

    batch = jax.tree.map(lambda leaf: leaf[0], data)
    w, _ = coefficients(loss, x, y, batch, jnp)
    by_model = (batch.valid * losses(loss, y, w, batch)).sum(axis=0)
    means = by_model @ jnp.sign(batch.mix)  # the model of all vectors has no validation rows
    if loss == "squared":
        means = 0.5 * jnp.log(means + LEAST_ERROR)
    half = 0.5 * x[:, 1:]
    differ = (jnp.logaddexp(half, -half) - np.log(2.0)).sum(axis=1)
    return (means + batch.doubt * (jnp.logaddexp(0, -x[:, 0]) + differ)).sum()


@cache
def problem(loss: str) -> tuple[Any, Any]:
    """(f, g); the same two objects for every fit, so that compiled code is found again."""
    return partial(outer, loss), partial(inner, loss)
