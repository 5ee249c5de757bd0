"""The paper's smoothed top-K regularizer, by Monte-Carlo, with its true gradient.

    R(lambda) = -E_z sum of the K largest entries of lambda + delta z,   z standard normal
    dR/dlambda_i = -Pr[entry i is among the K largest of lambda + delta z]

The noise comes before the K largest are taken, so it smooths, and it is the same at every call, so
that an optimizer sees one function: the mean over the draws, whose gradient is exactly the share of
draws in which an entry is among the K largest.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

DRAWS = 64
SMOOTHING = 0.1  # delta, in units of 1 / K: the weight of each row of an even coreset


def normal_draws(count: int, entries: int, dtype: Any) -> Any:
    """The fixed noise z, of shape (count, entries)."""
    return jax.random.normal(jax.random.key(0), (count, entries), dtype)


def smoothed_top_k(weights: Any, size: int, delta: float | None = None, draws: int = DRAWS) -> Any:
    """R at `weights`, for a coreset of `size` rows; differentiable by JAX.

    Example
    -------
    >>> import jax.numpy as jnp
    >>> round(float(smoothed_top_k(jnp.array([0.5, 0.5, 0.0]), 2, delta=1e-6)), 4)
    -1.0
    """
    delta = SMOOTHING / size if delta is None else delta
    z = normal_draws(draws, weights.size, weights.dtype)
    return -jnp.mean(jnp.sum(jax.lax.top_k(weights + delta * z, size)[0], axis=1))
