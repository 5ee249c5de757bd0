"""How large a number of a table may be."""

from __future__ import annotations

from typing import Any

# Tables are held in float32, which ends at 3e38, and sums of squares in float64.
LARGEST = 1e37


def check(numbers: Any, name: str) -> None:
    """Refuse an array or sparse matrix that holds a number too large to be computed with."""
    values = numbers if not hasattr(numbers, "indptr") else numbers.data
    largest = max(values.max(initial=0.0), -values.min(initial=0.0))  # no copy, as abs() makes one
    if largest > LARGEST:
        raise ValueError(
            f"{name} holds a number of size {largest:.3g}; expected numbers below {LARGEST:g}, so "
            "give them in another unit."
        )
