"""Is a loss a mean over its rows? Samples of them, and processes that share them, need that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from untuned.ops import Ops, Scalar, Tree
from untuned.ops.cache import compiled

SAME = 1e-3  # relative: more than rounding makes of the mean of two halves


def gap(ops: Ops, function: Callable, x: Tree, y: Tree, data: Tree, rows: np.ndarray) -> float:
    """The relative difference of the loss on some rows from the mean of it on their two halves."""

    def value(x: Tree, y: Tree, data: Tree, rows: Any) -> Scalar:
        return function(x, y, ops.take(data, rows))

    # In one piece, as JAX would compile every operation on its own.
    first, second = np.split(rows, 2)
    of_half, of_all = (
        compiled(ops, None, value, x, y, data, part, effort="least") for part in (first, rows)
    )
    parts = [
        float(of(x, y, data, part))
        for of, part in ((of_half, first), (of_half, second), (of_all, rows))
    ]
    off, scale = abs(parts[2] - (parts[0] + parts[1]) / 2), max(map(abs, parts))
    return off / scale if scale > 0 else off
