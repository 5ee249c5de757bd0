"""The limited-memory BFGS direction (Nocedal, "Updating quasi-Newton matrices with limited
storage").

A memory holds the last pairs s = x_{k+1} - x_k, z = h_{k+1} - h_k of a gradient h. `direction` is
-B h with B the inverse-Hessian model those pairs give, by the two-loop recursion; `step_along` is
that in a set, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from untuned.ops import Ops, Tree

PAIRS = 10
MOST_MASKS = 10  # of free entries that are tried
KEPT = 0.1  # share of the descent that must be left where bounds stop entries
CURVED = 1e-4  # cosine between s and z below which a pair says more of errors than of curvature


class Pairs(NamedTuple):
    """The pairs, stacked, the newest last; 1 / <s, z> of each; `kept` of them so far."""

    s: Tree
    z: Tree
    inverse: Any
    kept: int


def empty(ops: Ops, x: Tree) -> Pairs:
    """A memory without pairs."""
    places = ops.stack(ops.zeros_like(x), PAIRS)
    return Pairs(places, places, ops.stack(ops.array(0.0, x), PAIRS), 0)


def remember(ops: Ops, memory: Pairs, s: Tree, z: Tree) -> Pairs:
    """Add a pair, if it curves upwards where x has moved; bounds may hold the rest of x."""
    change = ops.tree_map(lambda a, b: a * (b != 0), z, s)
    if not _curves_upwards(ops, s, change):
        return memory
    pair = s, z, ops.array(1 / ops.dot(s, z), s)
    stacks = ops.push((memory.s, memory.z, memory.inverse), pair)
    return Pairs(stacks[0], stacks[1], stacks[2], memory.kept + 1)


def _curves_upwards(ops: Ops, s: Tree, z: Tree) -> bool:
    """Whether a pair says something of curvature, in numbers that the dtype holds."""
    squares = ops.dot(s, s), ops.dot(z, z)
    return min(squares) > 0 and ops.dot(s, z) > CURVED * ops.norm(s) * ops.norm(z)


Pair = tuple[Tree, Tree, float]  # s, z and 1 / <s, z>


def pairs(ops: Ops, memory: Pairs) -> list[Pair]:
    """The pairs one by one, the newest last."""

    def pair(k: int) -> Pair:
        s, z = (ops.tree_map(lambda stack: stack[k], part) for part in (memory.s, memory.z))
        return s, z, ops.number(memory.inverse[k])

    return [pair(k) for k in range(max(PAIRS - memory.kept, 0), PAIRS)]


def restricted(ops: Ops, known: list[Pair], mask: Tree) -> list[Pair]:
    """What the pairs say of some entries alone, those where the mask is true."""
    found = []
    for whole in known:
        s, z = (ops.tree_map(lambda part, one: part * one, each, mask) for each in whole[:2])
        if _curves_upwards(ops, s, z):
            found.append((s, z, 1 / ops.dot(s, z)))
    return found


def scale(ops: Ops, newest: Pair) -> float:
    """<s, z> / <z, z> of the newest pair: the length of a step along a gradient."""
    _, z, inverse = newest
    return 1 / (inverse * ops.dot(z, z))


def sizes(ops: Ops, known: list[Pair]) -> Tree:
    """How far each entry has moved for a change of its slope of one, from all pairs.

    Where nothing is known of an entry: as far as that of the newest pair.
    """
    otherwise, (s, z, _) = scale(ops, known[-1]), known[-1]
    moves, changes = ops.zeros_like(s), ops.zeros_like(z)
    for s, z, _ in known:
        moves, changes = (
            ops.tree_map(lambda total, part: total + part * part, total, part)
            for total, part in ((moves, s), (changes, z))
        )

    def ratio(move: Any, change: Any) -> Any:
        none = (move == 0) | (change == 0)
        return ((move + none * otherwise * otherwise) / (change + none)) ** 0.5

    return ops.tree_map(ratio, moves, changes)


def direction(ops: Ops, known: list[Pair], gradient: Tree, unit: Tree = None) -> Tree:
    """-B gradient; there is a pair. `unit` says how far entries go beside each other."""
    q, weights = gradient, []
    for s, z, inverse in reversed(known):
        weights.append(inverse * ops.dot(s, q))
        q = ops.axpy(-weights[-1], z, q)
    if unit is None:
        factor = scale(ops, known[-1])
        q = ops.tree_map(lambda leaf: factor * leaf, q)
    else:
        _, z, inverse = known[-1]
        factor = 1 / (inverse * ops.dot(z, ops.tree_map(lambda a, b: a * b, unit, z)))
        q = ops.tree_map(lambda leaf, each: factor * each * leaf, q, unit)
    for (s, z, inverse), weight in zip(known, reversed(weights), strict=True):
        q = ops.axpy(weight - inverse * ops.dot(z, q), s, q)
    return ops.tree_map(lambda leaf: -leaf, q)


def step_along(
    ops: Ops, project: Any, memory: Pairs, x: Tree, gradient: Tree, length: float
) -> tuple[Tree, float, float]:
    """The direction p, the norm that is zero at a stationary point, and a step size to report.

    `project` leads to the set of x, or is None. `length` is that of p where there is no pair.
    """
    norm, known = ops.norm(gradient), pairs(ops, memory)
    along = scale(ops, known[-1]) if known else length / (norm if norm > 0 else 1.0)
    if project is not None:
        p = _spectral(ops, project, x, gradient, along)
        if not known:  # entries that a bound holds are no part of the length
            free = ops.norm(ops.tree_map(lambda h, move: h * (move != 0), gradient, p))
            along = length / free if free > 0 else along
            p = _spectral(ops, project, x, gradient, along)
        norm = ops.norm(p) / along
        if known and _has_bounds(ops, project, x, gradient, along):
            p = _inside(ops, project, known, x, gradient, p)
        return p, norm, along
    if known:
        return direction(ops, known, gradient), norm, along
    return ops.tree_map(lambda leaf: -along * leaf, gradient), norm, along


def _spectral(ops: Ops, project: Any, x: Tree, gradient: Tree, along: float) -> Tree:
    """p of the spectral projected gradient (Birgin, Martinez and Raydan), which suits any set."""
    return ops.sub(project(ops.axpy(-along, gradient, x)), x)


def _has_bounds(ops: Ops, project: Any, x: Tree, gradient: Tree, along: float) -> bool:
    """Whether the set of x looks like one of bounds for each entry, by two projected points.

    There an entry goes as far as it is asked to, or to a bound and no farther.
    """
    near, far = (ops.axpy(-part * along, gradient, x) for part in (1.0, 2.0))
    at, farther = project(near), project(far)
    other = ops.tree_map(lambda a, b, c: (a != b) * (b != c) * 1.0, near, at, farther)
    return bool(ops.norm(other) == 0)


def _inside(
    ops: Ops, project: Any, known: list[Pair], x: Tree, gradient: Tree, spectral: Tree
) -> Tree:
    """p of BFGS for entries that are free of their bounds, and `spectral` for the others.

    That leaves entries where they are that a bound holds. Entries that BFGS takes beyond a bound
    stop there; where that costs most of the descent, they are not free either.
    """
    mask = ops.tree_map(lambda move: move != 0, spectral)
    for _ in range(MOST_MASKS):
        free = restricted(ops, known, mask)
        if not free:
            break
        slopes = ops.tree_map(lambda h, one: h * one, gradient, mask)
        wanted = direction(ops, free, slopes, sizes(ops, free))
        aim = ops.axpy(1.0, wanted, x)
        at = project(aim)
        moved = ops.sub(at, x)
        if ops.dot(slopes, moved) <= KEPT * ops.dot(slopes, wanted):
            return ops.tree_map(lambda a, b, one: one * a + ~one * b, moved, spectral, mask)
        mask = ops.tree_map(lambda one, a, b: one * (a == b), mask, aim, at)
    return spectral
