"""Losses of linear models, row by row, and their derivatives; NumPy and JAX arrays alike.

`z` are a linear model's outputs, with the columns last. `xp` is `numpy` or `jax.numpy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Loss(NamedTuple):
    """A loss of outputs z and targets t."""

    value: Callable[[Any, Any, Any], Any]  # (xp, z, t), without the column axis
    slope: Callable[[np.ndarray, np.ndarray], np.ndarray]  # its derivative in z
    bend: Callable[[np.ndarray, np.ndarray], np.ndarray]  # its second derivative at z, times v
    # Its mean second derivative in each output, at the model that only knows the targets' mean.
    curvature: Callable[[np.ndarray], np.ndarray]


def _logistic(xp: Any, z: Any, t: Any) -> Any:
    """log(1 + exp(-t z)) for t = 1 or -1."""
    return xp.logaddexp(0, -(t * z)[..., 0])


def _logistic_slope(z: np.ndarray, t: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return -t * expit(-t * z)


def _logistic_bend(z: np.ndarray, v: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(z) * expit(-z) * v


def _softmax(xp: Any, z: Any, t: Any) -> Any:
    """log sum exp(z) - z of the class, for t = 1 there and 0 elsewhere."""
    top = z.max(axis=-1, keepdims=True)
    if xp is not np:
        from jax.lax import stop_gradient

        top = stop_gradient(top)  # it only keeps exp from overflowing
    return xp.log(xp.exp(z - top).sum(axis=-1)) + top[..., 0] - (t * z).sum(axis=-1)


def _softmax_slope(z: np.ndarray, t: np.ndarray) -> np.ndarray:
    from scipy.special import softmax

    return softmax(z, axis=-1) - t


def _softmax_bend(z: np.ndarray, v: np.ndarray) -> np.ndarray:
    from scipy.special import softmax

    p = softmax(z, axis=-1)
    return p * (v - (p * v).sum(axis=-1, keepdims=True))


def _squared(xp: Any, z: Any, t: Any) -> Any:
    """Half the squared distance."""
    return 0.5 * xp.square(z - t).sum(axis=-1)


def _squared_slope(z: np.ndarray, t: np.ndarray) -> np.ndarray:
    return z - t


def _squared_bend(z: np.ndarray, v: np.ndarray) -> np.ndarray:
    return v


LOSSES = {
    "logistic": Loss(_logistic, _logistic_slope, _logistic_bend, lambda mean: (1 - mean**2) / 4),
    "softmax": Loss(_softmax, _softmax_slope, _softmax_bend, lambda mean: mean * (1 - mean)),
    "squared": Loss(_squared, _squared_slope, _squared_bend, np.ones_like),
}
