"""The set x lives in, as a projection onto it: what `constraint=` of `minimize` may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from untuned.ops import Ops, Tree
from untuned.util.wording import brief

EXPECTED = '"simplex", "nonnegative", a pair of numbers (low, high), or a function that projects x'


def projection(ops: Ops, constraint: Any) -> Callable[[Tree], Tree]:
    """The nearest point of the set, as a function of the tree x.

    "simplex": the entries of each leaf are nonnegative and sum to one. "nonnegative": no entry
    is below zero. (low, high): entries within these bounds, numbers or None for no bound.
    A function is taken as it is: x in, projected x out.
    """
    if callable(constraint):
        return constraint
    if isinstance(constraint, str) and constraint == "simplex":
        return ops.simplex
    if isinstance(constraint, str) and constraint == "nonnegative":
        constraint = (0.0, None)
    is_pair = isinstance(constraint, tuple) and len(constraint) == 2
    if is_pair and any(bound is not None for bound in constraint):
        ends = bounds(constraint, EXPECTED)
        if ends[0] > ends[1]:
            raise ValueError(
                f"constraint={brief(constraint)} has its low end above its high end; give "
                "(low, high) with low <= high."
            )
        if not (ends[0] < math.inf and ends[1] > -math.inf):
            raise ValueError(
                f"constraint={brief(constraint)} leaves no finite x; give numbers for its ends, "
                "or None for no bound."
            )
        return lambda x: ops.tree_map(lambda leaf: ops.clip(leaf, *ends), x)
    raise unknown(constraint, EXPECTED)


def bounds(constraint: tuple, expected: str) -> tuple[float, float]:
    """The ends of a pair (low, high), infinite for None; `expected` is what a pair may be."""
    for bound in constraint:
        is_number = isinstance(bound, int | float | np.integer | np.floating)
        if bound is not None and (not is_number or isinstance(bound, bool)):
            raise unknown(constraint, expected)
    low, high = constraint
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def unknown(constraint: Any, expected: str) -> ValueError:
    """What is said of a constraint that is none of those expected."""
    return ValueError(f"constraint={brief(constraint)} is not known; expected {expected}.")
