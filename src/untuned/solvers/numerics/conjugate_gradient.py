"""Conjugate gradients for H z = b, for a number of steps or until a residual is small."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from untuned.ops import Ops, Scalar, Tree

Map = Callable[[Tree], Tree]


class Solution(NamedTuple):
    """Where conjugate gradients ended.

    Where `indefinite` is 1 a direction of no positive curvature was met, and z is the point
    before it; `escape` is the next step with the sign of that curvature turned.
    """

    z: Tree
    residual_norm: Scalar
    steps: Scalar
    indefinite: Scalar
    escape: Tree
    residual: Tree


def solve(
    ops: Ops,
    product: Map,
    residual: Tree,
    start: Tree,
    *,
    tolerance: Scalar = 0.0,
    most: Scalar,
    precondition: Map = lambda r: r,
) -> Solution:
    """Steps from `start`, whose `residual` is b - H start, until its `energy` is `tolerance`.

    Ends after `most` steps in any case, and at once where the curvature along the next direction
    is not positive. Each step costs one product.
    """
    zero = ops.scalar(0.0, start)

    def going(carry: tuple) -> Scalar:
        *_, rz, k, indefinite = carry
        return (rz > tolerance) & (k < most) & (indefinite == 0)

    def step(carry: tuple) -> tuple:
        z, r, direction, _, rz, k, _ = carry
        del carry  # vectors may be large: each goes as soon as the next one is there
        h = product(direction)
        curvature = ops.dot(direction, h)
        convex = curvature > 0
        # The sign turned where the curvature is negative; nowhere to go where it is zero.
        size = ops.where(convex, curvature, -curvature)
        length = ops.where(size > 0, rz / ops.where(size > 0, size, zero + 1), zero)
        taken = ops.where(convex, length, zero)
        z = ops.axpy(taken, direction, z)
        r = ops.axpy(-taken, h, r)
        del h
        pr = precondition(r)
        new = ops.dot(r, pr)
        following = ops.axpy(ops.where(rz > 0, new / ops.where(rz > 0, rz, zero + 1), zero),
                             direction, pr)  # fmt: skip
        direction = ops.where(convex, following, direction)
        failed = ops.where(convex, ops.counter(0), ops.counter(1))
        return z, r, direction, length, new, k + 1, failed

    pr = precondition(residual)
    zero_count = ops.counter(0)
    carry = [(start, residual, pr, zero, ops.dot(residual, pr), zero_count, zero_count)]
    del start, residual, pr  # so that no name here keeps them while the loop runs
    z, r, direction, length, _, steps, indefinite = ops.while_loop(going, step, carry.pop())
    escape = ops.tree_map(lambda d: length * d, direction)
    return Solution(z, ops.norm(r), steps, indefinite, escape, r)


def energy(ops: Ops, residual: Tree, precondition: Map) -> Scalar:
    """<r, M r>: with M near the inverse of H, the square of the error of z in the norm of H.

    That is what the error costs, along flat directions as along steep ones; in the residual's own
    norm an error along a flat direction would count for next to nothing.
    """
    return ops.dot(residual, precondition(residual))
