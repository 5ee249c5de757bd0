"""The bilevel selector: rows first, then their weights, both by `untuned.minimize`.

1. **Rows.** The paper's problem: lambda on the simplex, the model that minimizes the loss weighted
   by lambda, and the loss of that model on all rows. At lambda = 1/n there is nothing to gain: the
   model is already that of all rows, and the regularizer prefers no row. So it starts from a
   coreset, at a corner of the simplex: the best of those given. `method="auto"` takes the
   regularizer as infinitely strong and walks from corner to corner (exchange.py); any other method
   of `minimize` solves the problem as it is written, and the K largest entries are chosen.
2. **Weights** in [0, 1] of the K rows, from one each: the model on them, its loss on all rows.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from untuned.coreset import logistic
from untuned.coreset.exchange import Exchange
from untuned.coreset.logistic import Rows
from untuned.run import minimize

WEIGHT_STEPS = 50


class Selected(NamedTuple):
    """Row numbers, the most important first; their weights; the run that chose the rows."""

    rows: np.ndarray
    weights: np.ndarray
    result: Any


def select(
    X: np.ndarray, label: np.ndarray, classes: int, starts: list[np.ndarray],
    method: Any = "auto", began: float | None = None, **settings: Any,
) -> Selected:  # fmt: skip
    """A coreset from the best of `starts`, which are row numbers; X are features of unit scale.

    `settings` go to `untuned.minimize`, of which `max_seconds` counts from `began`, a time by
    `time.monotonic`. Every class of that start is kept.
    """
    import jax
    import jax.numpy as jnp

    size, count = len(starts[0]), len(X)
    total = padded(count + 1, least=256)  # with at least one row that stands for none
    features = max(16, -(-X.shape[1] // 8) * 8)
    table = aligned_zeros((total, features))
    table[:count, : X.shape[1]] = X
    real = (np.arange(total) < count).astype(np.float32)
    rows = Rows(
        X=jax.device_put(table),
        label=jnp.asarray(np.pad(label, (0, total - count)).astype(np.int32)),
        share=jnp.asarray(real / count),
        times=jnp.asarray(size * real),
        number=jnp.arange(total, dtype=jnp.int32),
    )
    y0 = {name: jnp.asarray(leaf) for name, leaf in logistic.models(features, classes).items()}

    def exchanged(start: np.ndarray, **settings: Any) -> Any:
        return minimize(
            logistic.on_all_rows, logistic.on_coreset, jnp.asarray(corner(start, total)), y0,
            outer_data=rows, inner_data=rows, method=Exchange(padded(size)), **settings,
        )  # fmt: skip

    start_of_first = time.monotonic()
    began = start_of_first if began is None else began
    # The first step of an exchange only evaluates.
    first = [float(exchanged(start, max_steps=1).state.value) for start in starts]
    start = starts[int(np.argmin(first))]
    compiling = time.monotonic() - start_of_first
    if method == "auto":
        result = exchanged(start, **_within(began, settings))
        x, gains = np.asarray(result.x)[:count], np.asarray(result.state.hypergrad)[:count]
    else:
        result = minimize(
            partial(logistic.regularized, size=size), logistic.on_coreset,
            jnp.asarray(0.5 * corner(start, total) + 0.5 * real / count), y0,
            outer_data=rows, inner_data=rows, method=method, constraint="simplex",
            **_within(began, settings),
        )  # fmt: skip
        x = np.asarray(result.x)[:count]
        gains = -x
    chosen = np.sort(np.argsort(-x, kind="stable")[:size])
    chosen = with_every_class(chosen, label, np.unique(label[start]), gains)

    # Weights are another program, which compiles in about the time of the first one.
    weights = np.ones(size)
    limit = settings.get("max_seconds")
    late = lambda: limit is not None and time.monotonic() - began + compiling > limit
    if not late():
        compiling = 0.0
        left = settings | {"max_seconds": None, "callback": lambda _: late()}
        weights = _weigh(rows, chosen, result.y, left)
    order = np.lexsort((gains[chosen], -weights))
    return Selected(chosen[order], weights[order], result)


def _within(began: float, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the time that is left; `minimize` refuses a limit that is no time."""
    limit = settings.get("max_seconds")
    if isinstance(limit, int | float | np.number) and limit > 0:
        limit = max(limit - (time.monotonic() - began), 1e-9)
    return settings | {"max_seconds": limit}


def corner(start: np.ndarray, entries: int) -> np.ndarray:
    """The corner of the simplex of an even coreset: 1/K at its rows."""
    x = np.zeros(entries, np.float32)
    x[start] = 1 / len(start)
    return x


def _weigh(rows: Rows, chosen: np.ndarray, y0: Any, settings: dict[str, Any]) -> np.ndarray:
    """The weights of the chosen rows with which their model does best on all rows."""
    import jax.numpy as jnp

    size = len(chosen)
    slots = padded(size)
    filled = np.concatenate([chosen, np.full(slots - size, len(rows.share) - 1)])
    part = Rows(*(leaf[filled] for leaf in rows))._replace(
        times=jnp.asarray((np.arange(slots) < size).astype(np.float32)),
        number=jnp.arange(slots, dtype=jnp.int32),
    )
    settings = settings | {"max_steps": min(WEIGHT_STEPS, settings.get("max_steps", WEIGHT_STEPS))}
    result = minimize(
        logistic.on_all_rows, logistic.on_coreset, jnp.ones(slots, jnp.float32), y0,
        outer_data=rows, inner_data=part, constraint=(0.0, 1.0), **settings,
    )  # fmt: skip
    return np.asarray(result.x, float)[:size]


def with_every_class(
    chosen: np.ndarray, label: np.ndarray, wanted: np.ndarray, gains: np.ndarray
) -> np.ndarray:
    """`chosen`, with every wanted class: a missing one replaces the row that helps least.

    The smaller the gain's entry, the more a row helps. No other class loses its last row.
    """
    for missing in np.setdiff1d(wanted, label[chosen]):
        counts = np.bincount(label[chosen], minlength=label.max() + 1)
        spare = np.where(counts[label[chosen]] > 1, gains[chosen], -np.inf)
        members = np.flatnonzero(label == missing)
        chosen = chosen.copy()
        chosen[np.argmax(spare)] = members[np.argmin(gains[members])]
    return chosen


def padded(count: int, least: int = 16) -> int:
    """`count` rounded up coarsely, so that similar fits share what is compiled."""
    if count > 1024:
        return -(-count // 1024) * 1024
    return max(least, 1 << (count - 1).bit_length())


def aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros in float32 on the host, which `jax.device_put` uses where they are.

    It copies what does not start at a multiple of 64 bytes.
    """
    size = 4 * math.prod(shape)
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(np.float32).reshape(shape)
