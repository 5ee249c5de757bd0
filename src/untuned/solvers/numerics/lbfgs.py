"""The limited-memory BFGS direction (Nocedal, "Updating quasi-Newton matrices with limited
storage").

A memory holds the last pairs s = x_{k+1} - x_k, z = h_{k+1} - h_k of a gradient h. `direction` is
-B h with B the inverse-Hessian model those pairs give, by the two-loop recursion.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from untuned.ops import Ops, Tree

PAIRS = 10
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
    """Add a pair, if it curves upwards."""
    product = ops.dot(s, z)
    if not product > CURVED * ops.norm(s) * ops.norm(z):
        return memory
    pair = s, z, ops.array(1 / product, s)
    stacks = ops.push((memory.s, memory.z, memory.inverse), pair)
    return Pairs(stacks[0], stacks[1], stacks[2], memory.kept + 1)


def scale(ops: Ops, memory: Pairs) -> float:
    """<s, z> / <z, z> of the newest pair: the length of a step along a gradient."""
    newest = ops.tree_map(lambda stack: stack[-1], memory.z)
    return 1 / (ops.number(memory.inverse[-1]) * ops.dot(newest, newest))


def direction(ops: Ops, memory: Pairs, gradient: Tree) -> Tree:
    """-B gradient; there is a pair."""

    def pair(k: int) -> tuple[Tree, Tree, float]:
        s, z = (ops.tree_map(lambda stack: stack[k], part) for part in (memory.s, memory.z))
        return s, z, ops.number(memory.inverse[k])

    q, weights = gradient, {}
    places = range(max(PAIRS - memory.kept, 0), PAIRS)
    for k in reversed(places):
        s, z, inverse = pair(k)
        weights[k] = inverse * ops.dot(s, q)
        q = ops.axpy(-weights[k], z, q)
    factor = scale(ops, memory)
    q = ops.tree_map(lambda leaf: factor * leaf, q)
    for k in places:
        s, z, inverse = pair(k)
        q = ops.axpy(weights[k] - inverse * ops.dot(z, q), s, q)
    return ops.tree_map(lambda leaf: -leaf, q)
