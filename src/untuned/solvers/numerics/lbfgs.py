"""The limited-memory BFGS direction (Nocedal, "Updating quasi-Newton matrices with limited
storage").

A memory holds the last pairs s = x_{k+1} - x_k, z = h_{k+1} - h_k of a gradient h. `direction` is
-B h with B the inverse-Hessian model those pairs give, by the two-loop recursion.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from untuned.ops import Ops, Scalar, Tree

PAIRS = 10
CURVED = 1e-4  # cosine between s and z below which a pair says more of errors than of curvature


class Pairs(NamedTuple):
    """The pairs, stacked, the newest last; 1 / <s, z> of each, 0 where the place is still empty."""

    s: Tree
    z: Tree
    inverse: Any
    count: Scalar


def empty(ops: Ops, x: Tree) -> Pairs:
    """A memory without pairs."""
    places = ops.stack(ops.zeros_like(x), PAIRS)
    return Pairs(places, places, ops.stack(ops.array(0.0, x), PAIRS), ops.counter(0))


def remember(ops: Ops, memory: Pairs, s: Tree, z: Tree, is_pair: Scalar) -> Pairs:
    """Add a pair, if `is_pair` holds and it curves upwards."""
    product = ops.dot(s, z)
    good = is_pair & (product > CURVED * ops.norm(s) * ops.norm(z))
    inverse = ops.array(1 / ops.where(good, product, 1.0), s)
    stacks = ops.push((memory.s, memory.z, memory.inverse), (s, z, inverse))
    longer = Pairs(stacks[0], stacks[1], stacks[2], memory.count + 1)
    return ops.where(good, longer, memory)


def scale(ops: Ops, memory: Pairs) -> Scalar:
    """<s, z> / <z, z> of the newest pair: the length of a step along a gradient; 1 without one."""
    newest = ops.tree_map(lambda stack: stack[-1], memory.z)
    inverse = ops.number(memory.inverse[-1])
    has = inverse > 0
    curvature = ops.where(has, inverse, 1.0) * ops.where(has, ops.dot(newest, newest), 1.0)
    return 1 / curvature


def direction(ops: Ops, memory: Pairs, gradient: Tree) -> Tree:
    """-B gradient; an empty place changes nothing."""

    def pair(k: Any) -> tuple[Tree, Tree, Scalar]:
        s, z = (ops.tree_map(lambda stack: stack[k], part) for part in (memory.s, memory.z))
        return s, z, ops.number(memory.inverse[k])

    def backward(q: Tree, k: Any) -> tuple[Tree, Scalar]:
        s, z, inverse = pair(k)
        weight = inverse * ops.dot(s, q)
        return ops.axpy(-weight, z, q), weight

    def forward(q: Tree, k: Any) -> tuple[Tree, Scalar]:
        s, z, inverse = pair(k)
        rest = weights[k - first] - inverse * ops.dot(z, q)
        return ops.axpy(rest, s, q), rest

    # Where the count is a number at hand, empty places are not even looked at.
    first = max(PAIRS - memory.count, 0) if isinstance(memory.count, int) else 0
    places = np.arange(first, PAIRS)
    q, weights = ops.scan(backward, gradient, places, len(places), True)
    factor = scale(ops, memory)
    q = ops.tree_map(lambda leaf: factor * leaf, q)
    q, _ = ops.scan(forward, q, places, len(places), False)
    return ops.tree_map(lambda leaf: -leaf, q)
