"""The set x lives in, as a projection onto it: what `constraint=` of `minimize` may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from untuned.ops import Ops, Tree

EXPECTED = '"simplex", "nonnegative", a pair (low, high), or a function that projects x'


def projection(ops: Ops, constraint: Any) -> Callable[[Tree], Tree] | None:
    """The nearest point of the set, as a function of the tree x; None where x is free.

    "simplex": the entries of each leaf are nonnegative and sum to one. "nonnegative": no entry
    is below zero. (low, high): entries within these bounds, numbers or None for no bound.
    A function is taken as it is: x in, projected x out.
    """
    if constraint is None:
        return None
    if callable(constraint):
        return constraint
    if isinstance(constraint, str) and constraint == "simplex":
        return lambda x: ops.tree_map(ops.simplex, x)
    if isinstance(constraint, str) and constraint == "nonnegative":
        constraint = (0.0, None)
    if isinstance(constraint, tuple) and len(constraint) == 2:
        low, high = constraint
        bounds_are_numbers = all(b is None or isinstance(b, int | float) for b in constraint)
        if bounds_are_numbers and constraint != (None, None):
            if low is not None and high is not None and not low <= high:
                raise ValueError(
                    f"constraint={constraint!r} has its low end above its high end; "
                    "give (low, high) with low <= high."
                )
            return lambda x: ops.tree_map(lambda leaf: ops.clip(leaf, low, high), x)
    raise ValueError(f"constraint={constraint!r} is not known; expected {EXPECTED}.")
