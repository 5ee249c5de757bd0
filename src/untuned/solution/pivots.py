"""Newton's step within a set: the minimum of g's quadratic model over it.

    min_z  grad' (z - y) + (z - y)' H (z - y) / 2   over the set

by block pivoting (Judice and Pires, "A block principal pivoting algorithm for large-scale strictly
monotone linear complementarity problems"): solve for the free entries with the others on their
bounds, then hold those that are beyond one and free those that want to leave theirs, all at once
as long as that leaves fewer wrong ones, else one at a time. The free step alone, cut off at the
bounds, need not fall where H is badly conditioned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from untuned.solution.regions import Region

CHANCES = 3  # exchanges of all wrong entries that may leave no fewer of them
MOST_EACH, MOST = 4, 50  # exchanges at most: so many for each entry, and some


def exchanged(lib: Any, wrong: Callable, solved: Callable, first: Any, held: Any) -> Any:
    """The step at which nothing is wrong, from one that is right for what is held at first.

    `wrong(d, held)` says which entries are, and what each would be held by instead; `solved(held)`
    is the step for what is held.
    """
    size = first.shape[-1]
    number = (0 * first + 1).cumsum(-1)
    zero = lib.zeros_like(first[..., :1])

    def count(which: Any) -> Any:
        return (which * (0 * first + 1)).sum(-1)[..., None]

    def going(carry: tuple) -> Any:
        d, held, *_, tries = carry
        usable = lib.isfinite(d).all(-1)[..., None] & (tries < MOST + MOST_EACH * size)
        return (count(wrong(d, held)[0]) > 0) & usable

    def exchange(carry: tuple) -> tuple:
        d, held, fewest, chances, tries = carry
        which, instead = wrong(d, held)
        fewer = count(which) < fewest
        chances = lib.where(fewer, CHANCES + 0 * chances, chances - 1)
        last = lib.largest(lib.where(which, number, 0.0))
        held = lib.where(which & ((chances >= 0) | (number == last)), instead, held)
        return solved(held), held, lib.where(fewer, count(which), fewest), chances, tries + 1

    carry = (first, held, zero + size + 1, zero + CHANCES, zero)
    return lib.while_loop(going, exchange, carry)[0]


def within(
    lib: Any, region: Region, rows: Any, hessian: Any, y: Any, grad: Any, free: Any, first: Any,
    solver: Callable,
) -> Any:  # fmt: skip
    """z - y in a region, where `first` is the step among the entries that are free now and
    `solver(free)` the map from slopes, and what is missing of the sums, to such steps."""
    product = lambda d: (hessian @ d[..., None])[..., 0]
    nothing = 0 * y  # an entry is held by its lower bound (-1), its upper one (1), or free

    def wrong(d: Any, held: Any) -> tuple[Any, Any]:
        z, slope, inside = y + d, grad + product(d), held == 0
        if rows is not None:
            members = lib.where(inside[..., None, :], rows, 0.0)
            price = (members @ slope[..., None])[..., 0] / members.sum(-1)
            slope = slope - (price[..., None, :] @ rows)[..., 0, :]
        below, above = inside & (z < region.low), inside & (z > region.high)
        leaving = held * slope > 0
        return below | above | leaving, lib.where(
            below, -1 + nothing, lib.where(above, 1.0, nothing)
        )

    def solved(held: Any) -> Any:
        inside = held == 0
        on_bound = lib.where(held < 0, region.low - y, lib.where(held > 0, region.high - y, 0.0))
        slope = lib.where(inside, grad + product(on_bound), 0.0)
        missing = None if rows is None else -(rows @ on_bound[..., None])[..., 0]
        return lib.where(inside, solver(inside)(slope, missing), on_bound)

    now = lib.where(free, nothing, lib.where(y <= region.low, -1 + nothing, 1.0))
    return exchanged(lib, wrong, solved, first, now)


def penalized(
    lib: Any, hessian: Any, y: Any, grad: Any, weight: Any, first: Any, solver: Callable
) -> Any:
    """z - y for the model and sum_i weight_i |z_i|: entries are positive (1), negative (-1) or
    held by zero."""
    product = lambda d: (hessian @ d[..., None])[..., 0]
    sign = lambda a: lib.where(a > 0, 1 + 0 * a, lib.where(a < 0, -1 + 0 * a, 0.0))

    def wrong(d: Any, signs: Any) -> tuple[Any, Any]:
        slope = grad + product(d)
        turned, leaving = (y + d) * signs < 0, (signs == 0) & (abs(slope) > weight)
        return turned | leaving, lib.where(leaving, -sign(slope), 0.0)

    def solved(signs: Any) -> Any:
        on = signs != 0
        to_zero = lib.where(on, 0.0, -y)
        slope = lib.where(on, grad + weight * signs + product(to_zero), 0.0)
        return lib.where(on, -solver(on).solve(lib, slope), to_zero)

    return exchanged(lib, wrong, solved, first, sign(y))
