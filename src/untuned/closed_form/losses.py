"""Losses of linear models, row by row, and their derivatives.

`z` are a linear model's outputs and `t` its targets; `axis` is that of the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, xlogy

Map = Callable[[np.ndarray], np.ndarray]

# Probabilities that judges tell from zero: the least that scikit-learn's log_loss lets count.
LOG_LEAST = float(np.log(np.finfo(np.float64).eps))


class Loss(NamedTuple):
    """A loss of outputs z and targets t."""

    value: Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # without the axis of columns
    slope: Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # its derivative in z
    # Its second derivative at z, to be applied to many v: bend(z, axis, t), where gamma needs t.
    bend: Callable[..., Map]
    # Its mean second derivative in each output, at the model that only knows the targets' mean.
    curvature: Map
    is_log_loss: bool = True  # of probabilities, so that rounding says how bad it may be


def bounded(losses: np.ndarray) -> np.ndarray:
    """-log(p + eps) for losses -log p: one row far from all others cannot outweigh thousands."""
    return -np.logaddexp(-losses, LOG_LEAST)


def bounded_slope(losses: np.ndarray) -> np.ndarray:
    """The derivative of `bounded`."""
    return expit(-losses - LOG_LEAST)


def _logistic(z: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    """log(1 + exp(-t z)) for t = 1 or -1."""
    margin = (t * z).squeeze(axis)
    return np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0)  # exp cannot overflow


def _logistic_slope(z: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    return -t * expit(-t * z)


def _logistic_bend(z: np.ndarray, axis: int, t: Any = None) -> Map:
    p = expit(z)
    curve = p * (1 - p)
    return lambda v: curve * v


def _softmax(z: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    """log sum exp(z) - z of the class, for t = 1 there and 0 elsewhere."""
    top, _, rest = _beside_top(z, axis)
    own = (t * (z - np.take_along_axis(z, top, axis))).sum(axis=axis)
    return np.log1p(rest).squeeze(axis) - own


def _beside_top(z: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Where z is largest, exp of all less that, with a zero there, and the sum of it.

    A model that is sure of a row has a loss and slopes far below what rounding leaves of 1, and
    in single precision there would be nothing but rounding to go by.
    """
    top = z.argmax(axis=axis, keepdims=True)
    others = z - np.take_along_axis(z, top, axis)  # it keeps exp from overflowing
    np.exp(others, out=others)
    np.put_along_axis(others, top, 0, axis)
    return top, others, others.sum(axis=axis, keepdims=True)


def softmax(z: np.ndarray, axis: int) -> np.ndarray:
    """Probabilities; SciPy's takes longer to look at small arrays than to compute."""
    p = np.exp(z - z.max(axis=axis, keepdims=True))
    p /= p.sum(axis=axis, keepdims=True)
    return p


def _softmax_slope(z: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    """Probabilities less t: at the top 1 - t, less the share of all others."""
    top, slope, rest = _beside_top(z, axis)
    slope /= 1 + rest
    slope -= t
    own = 1 - np.take_along_axis(np.broadcast_to(t, z.shape), top, axis)
    np.put_along_axis(slope, top, own - rest / (1 + rest), axis)
    return slope


def _softmax_bend(z: np.ndarray, axis: int, t: Any = None) -> Map:
    top, p, rest = _beside_top(z, axis)
    p /= 1 + rest
    np.put_along_axis(p, top, 1 / (1 + rest), axis)
    along = np.moveaxis(p, axis, 0)

    def times(v: np.ndarray) -> np.ndarray:
        # Less v at the top, or a row that is sure would have but the rounding of v - p v there.
        # One array of this size and no more: memory that comes and goes costs more than the sums.
        product = v - np.take_along_axis(v, top, axis)
        sums = np.einsum("c...,c...->...", along, np.moveaxis(product, axis, 0))
        product -= np.expand_dims(sums, axis)
        product *= p
        return product

    return times


def _squared(z: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    """Half the squared distance."""
    return 0.5 * np.square(z - t).sum(axis=axis)


def _exp(z: np.ndarray) -> np.ndarray:
    """exp(z), bounded so that products with it stay finite: a first step may lead far away."""
    return np.exp(np.minimum(z, 0.5 * np.log(np.finfo(z.dtype).max)))


def _poisson(z: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    """Half the deviance of counts t with means exp(z)."""
    return (_exp(z) - t * z - t + xlogy(t, t)).sum(axis=axis)


def _poisson_bend(z: np.ndarray, axis: int, t: Any = None) -> Map:
    mean = _exp(z)
    return lambda v: mean * v


def _gamma(z: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    """Half the deviance of positive t with means exp(z)."""
    return (t * _exp(-z) + z - 1 - np.log(t)).sum(axis=axis)


def _gamma_bend(z: np.ndarray, axis: int, t: np.ndarray) -> Map:
    ratio = t * _exp(-z)
    return lambda v: ratio * v


LOSSES = {
    "logistic": Loss(_logistic, _logistic_slope, _logistic_bend, lambda mean: (1 - mean**2) / 4),
    "softmax": Loss(_softmax, _softmax_slope, _softmax_bend, lambda mean: mean * (1 - mean)),
    "squared": Loss(
        _squared, lambda z, t, axis: z - t, lambda z, axis, t=None: lambda v: v, np.ones_like, False
    ),
    # Of targets in units of their mean, so that exp(z) is 1 where nothing is known.
    "poisson": Loss(_poisson, lambda z, t, axis: _exp(z) - t, _poisson_bend, np.ones_like, False),
    "gamma": Loss(_gamma, lambda z, t, axis: 1 - t * _exp(-z), _gamma_bend, np.ones_like, False),
}
