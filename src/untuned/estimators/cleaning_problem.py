"""The bilevel problem of `LabelCleaner`: three numbers are learned, and give each row its weight.

    g(x, y) = sum over models k and rows i outside of fold k of w_i loss_i(y_k) / rows
              + ridge / 2 |coefficients|^2
    f(x, y) = mean of -log sum_j P(label given to i | true label j) p_j(i; y_k), k the fold of i

with softmax regressions y_k, one per fold, all solved for at once. The weights are
w_i = sigmoid(slope * evidence_i + offset), and 1 for trusted rows, whose given label is the true
one. x holds ridge, slope and offset. One free number per row in their place fits the very rows that
f is measured on: it was tried, and mostly ranks labels worse (docs/cleaning.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import optimize

from untuned.compiled import reusable
from untuned.estimators import whitening
from untuned.ops import Tree

# Ridge, slope (as logarithms) and offset start in the middle, and stay within these bounds, beyond
# which they change nothing but the conditioning.
MIDDLE = (np.log(1e-2), 0.0, 0.0)
HALF_RANGE = (np.log(1e4), np.log(10.0), 10.0)
FIRST_MOVE = 5.0  # x is scaled so that `auto`, with its 0.1 per entry, moves them by half at most

MOST_ITERATIONS, FLAT = 200, 1e-6  # of a plain solve for y: where g falls by less it is flat


class Rows(NamedTuple):
    """Training rows: noisy and trusted ones together."""

    features: Any  # whitened
    label: Any  # the given one
    fold: Any
    weight: Any
    trusted: Any  # 1 or 0
    evidence: Any  # for the label being right: log-odds
    likelihood: Any  # P(given label | true label j), for each j


class Numbers(NamedTuple):
    """What is learned about all rows."""

    ridge: Any
    slope: Any
    offset: Any


def start(penalty: np.ndarray, classes: int, models: int) -> tuple[Tree, Tree]:
    """x and y to start from; `penalty` is how much of the ridge falls on each whitened feature."""
    x = {"numbers": jnp.zeros(3), "penalty": jnp.asarray(whitening.FLOOR * penalty)}  # at most 1
    columns = classes * models
    y = {"coef": jnp.zeros((len(penalty), columns)), "intercept": jnp.zeros(columns)}
    return x, y


def numbers(x: Tree) -> Numbers:
    """Ridge, slope and offset at x."""
    half = jnp.asarray(HALF_RANGE, x["numbers"].dtype)
    unit = FIRST_MOVE / (len(x["penalty"]) + 3) ** 0.5
    ridge, slope, offset = jnp.asarray(MIDDLE) + half * jnp.tanh(unit * x["numbers"] / half)
    return Numbers(jnp.exp(ridge), jnp.exp(slope), offset)


def with_ridge_times(x: Tree, factor: float) -> Tree:
    """x with a ridge that many times as large, or as near to it as its bounds allow."""
    half = HALF_RANGE[0]
    unit = FIRST_MOVE / (len(x["penalty"]) + 3) ** 0.5
    now = np.tanh(unit * float(x["numbers"][0]) / half)
    then = np.clip(now + np.log(factor) / half, -0.99, 0.99)
    return x | {"numbers": x["numbers"].at[0].set(half * np.arctanh(then) / unit)}


def row_weights(learned: Numbers, evidence: Any, trusted: Any) -> Any:
    """One weight in [0, 1] per row."""
    noisy = jax.nn.sigmoid(learned.slope * evidence + learned.offset)
    return trusted + (1 - trusted) * noisy


@reusable
def inner(x: Tree, y: Tree, rows: Rows, models: int) -> Any:
    """g: weighted loss of every model on the rows it may see, with the ridge."""
    learned = numbers(x)
    scores = _scores(y, rows, models)
    of_label = jnp.take_along_axis(scores, rows.label[:, None, None], 2)[..., 0]
    loss = jax.nn.logsumexp(scores, 2) - of_label
    seen = rows.fold[:, None] != jnp.arange(models)
    weight = rows.weight * row_weights(learned, rows.evidence, rows.trusted)
    # The share of the ridge is a constant of the problem that has no rows, so x carries it along.
    penalty = jax.lax.stop_gradient(x["penalty"])[:, None] / whitening.FLOOR
    squares = (penalty * y["coef"] ** 2).sum()
    mean = (weight[:, None] * seen * loss).sum() / rows.weight.sum()
    return mean + 0.5 * learned.ridge * squares


@reusable
def outer(x: Tree, y: Tree, rows: Rows, models: int) -> Any:
    """f: how unlikely the given labels are to models that have not seen them."""
    scores = jnp.take_along_axis(_scores(y, rows, models), rows.fold[:, None, None], 1)[:, 0]
    log_probability = jax.nn.log_softmax(scores, 1)
    likelihood = jax.nn.logsumexp(log_probability, 1, b=rows.likelihood)
    return -(rows.weight * likelihood).sum() / rows.weight.sum()


def solve_inner(x: Tree, y: Tree, blocks: list[Rows], models: int) -> Tree:
    """The y that minimizes g at x, by SciPy's L-BFGS; rows come in blocks to save memory."""
    flat, tree = ravel_pytree(y)
    weights = np.array([float(block.weight.sum()) for block in blocks])
    shares = weights / weights.sum()

    def value_and_grad(point: np.ndarray) -> tuple[float, np.ndarray]:
        at = tree(jnp.asarray(point, flat.dtype))
        value, grad = 0.0, np.zeros(len(point))
        for share, block in zip(shares, blocks, strict=True):  # g is a mean over rows
            of_block, slope = _inner_value_and_grad(x, at, block, models)
            value += share * float(of_block)
            grad += share * np.asarray(ravel_pytree(slope)[0], np.float64)
        return value, grad

    options = {"maxiter": MOST_ITERATIONS, "ftol": FLAT}
    solution = optimize.minimize(
        value_and_grad, np.asarray(flat, np.float64), jac=True, method="L-BFGS-B", options=options
    )
    return tree(jnp.asarray(solution.x, flat.dtype))


_inner_value_and_grad = jax.jit(jax.value_and_grad(inner, argnums=1), static_argnums=3)


def _scores(y: Tree, rows: Rows, models: int) -> Any:
    """One score per row, model and class."""
    flat = rows.features @ y["coef"] + y["intercept"]
    return flat.reshape(len(flat), models, -1)
