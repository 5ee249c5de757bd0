"""How large a number of a table may be."""

from __future__ import annotations

from typing import Any

import numpy as np

# Tables are held in float32, which ends at 3e38, and sums of squares in float64.
LARGEST = 1e37


def check(numbers: Any, name: str) -> None:
    """Refuse an array or sparse matrix that holds a number too large to be computed with."""
    values = numbers if not hasattr(numbers, "indptr") else numbers.data
    # No copy, as abs() makes one. As Python's float: half precision cannot be held against 1e37.
    largest = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
    if largest > LARGEST:
        raise ValueError(
            f"{name} holds a number of size {largest:.3g}; expected numbers below {LARGEST:g}, so "
            "give them in another unit."
        )


def in_dtype(array: np.ndarray, dtype: Any) -> np.ndarray:
    """The array in the dtype of X, or an error of one sentence where that cannot hold it."""
    with np.errstate(over="ignore"):
        held = array.astype(dtype)
    if not np.isfinite(held).all():
        raise ValueError(
            f"A coefficient or intercept of {np.abs(array).max():.3g} is too large for {dtype}, "
            "the dtype of X; give X or y in other units."
        )
    return held
