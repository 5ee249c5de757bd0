"""The set y lives in, as Newton's method and derivatives see it.

At a point some entries are held by a bound and the others are free. The solution moves with x
among the free entries only (its active set stays as it is, but for x where an entry just touches
its bound), so both Newton's step and the derivative are those of the free entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from untuned.problem.constraints import bounds, unknown
from untuned.util.wording import brief

EXPECTED = '"simplex", "nonnegative" or a pair of numbers (low, high)'


class Region(NamedTuple):
    """All y, where nothing is bounded and nothing sums to one."""

    low: float = -math.inf
    high: float = math.inf
    leaves: tuple[int, ...] = ()  # sizes of y's leaves if the entries of each sum to one

    @property
    def everywhere(self) -> bool:
        return self == Region()

    def project(self, lib: Any, z: Any, free: Any) -> Any:
        """The nearest point of the set with the entries that are not free where they are."""
        if self.everywhere:
            return z
        if not self.leaves:
            return z.clip(self.low, self.high)
        # An entry two below the largest is projected to zero.
        lowered = lib.where(free, z, lib.largest(z) - 2)
        return _over(lib, self.leaves, lambda part: simplex(lib, part), lowered)

    def free(self, lib: Any, y: Any, grad: Any) -> Any:
        """Entries that are not on a bound, or that g pushes away from it."""
        if self.everywhere:
            return y == y
        slope = self.reduced(lib, y, grad)
        can_rise, can_fall = y < self.high, y > self.low
        return (can_rise & can_fall) | (can_rise & (slope < 0)) | (can_fall & (slope > 0))

    def reduced(self, lib: Any, y: Any, grad: Any) -> Any:
        """The gradient within the plane of entries that sum to one."""
        if not self.leaves:
            return grad
        weight = (y > 0) * (grad * 0 + 1)  # in the dtype of the gradient
        return grad - self._sums(lib, weight * grad) / self._sums(lib, weight)

    def _sums(self, lib: Any, y: Any) -> Any:
        """For each entry the sum of its leaf."""
        return _over(lib, self.leaves, lambda part: part.sum(-1)[..., None] + 0 * part, y)

    def optimality(self, lib: Any, y: Any, grad: Callable) -> Any:
        """Zero at the solution, with a derivative in y that is symmetric, and positive definite if
        g's curvature is positive among the free entries; `grad` is g's gradient."""
        if self.everywhere:
            return grad(y)
        inside = (y > self.low) & (y < self.high)
        # Held entries are numbers, so that no rounding comes from them into the derivative.
        bound = lib.where(y <= self.low, self.low + 0 * y, self.high + 0 * y)
        free = lib.where(inside, y, bound)
        if not self.leaves:
            return lib.where(inside, grad(free), y - bound)
        # g in the plane, and the distance from it: P H P + 1 1^T for P the projection onto it.
        sums, count = self._sums(lib, free), self._sums(lib, inside * (0 * y + 1))
        within = lib.where(inside, free - (sums - 1) / count, 0.0)
        return lib.where(inside, self.reduced(lib, y, grad(within)) + (sums - 1), y)

    def rows(self, lib: Any, like: Any) -> Any:
        """The matrix of the sums, a row for each leaf; None where nothing sums to one."""
        if not self.leaves:
            return None
        unit = lib.eye(like.shape[-1], like)
        ends = [sum(self.leaves[:k]) for k in range(len(self.leaves))]
        parts = [unit[a : a + n].sum(0)[None] for a, n in zip(ends, self.leaves, strict=True)]
        return lib.join(parts, 0)


def region(constraint: Any, leaves: tuple[int, ...]) -> Region:
    """The region that `constraint` names, of a y whose leaves have these sizes."""
    if constraint is None:
        return Region()
    if isinstance(constraint, str) and constraint == "simplex":
        return Region(low=0.0, leaves=leaves)
    if isinstance(constraint, str) and constraint == "nonnegative":
        return Region(low=0.0)
    if not (isinstance(constraint, tuple) and len(constraint) == 2):
        raise unknown(constraint, EXPECTED)
    found = Region(*bounds(constraint, EXPECTED))
    if not (found.low <= found.high and found.low < math.inf and found.high > -math.inf):
        raise ValueError(
            f"constraint={brief(constraint)} leaves no finite y; give (low, high) with low <= "
            "high, or None for no bound."
        )
    return found


def _over(lib: Any, sizes: tuple[int, ...], part: Any, y: Any) -> Any:
    """`part` of each leaf's entries, side by side again."""
    if len(sizes) == 1:
        return part(y)
    ends = [sum(sizes[:k]) for k in range(len(sizes))]
    return lib.join([part(y[..., a : a + n]) for a, n in zip(ends, sizes, strict=True)], -1)


def simplex(lib: Any, array: Any) -> Any:
    """The nearest point whose entries, along the last axis, are nonnegative and sum to one."""
    array = array - lib.largest(array)  # the same for all shifts
    descending = -lib.sort(-array)
    ranks = (0 * array + 1).cumsum(-1)
    excess = (descending.cumsum(-1) - 1) / ranks
    # Where an entry exceeds its threshold these grow, so the last of them is the largest.
    threshold = lib.largest(lib.where(descending > excess, excess, -math.inf))
    return (array - threshold).clip(0, None)
