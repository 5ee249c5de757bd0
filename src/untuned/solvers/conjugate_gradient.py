"""Conjugate gradients for H v = b with a fixed number of products."""

from __future__ import annotations

from collections.abc import Callable

from untuned.ops import Ops, Scalar, Tree


def conjugate_gradient(
    ops: Ops, product: Callable[[Tree], Tree], b: Tree, v: Tree, steps: int
) -> tuple[Tree, Scalar]:
    """`steps` steps from v; the solution and its residual norm. Costs steps + 1 products.

    Once the residual or the curvature is exactly zero there is nothing left to do, and the
    solution is kept.
    """

    def ratio(a: Scalar, by: Scalar) -> Scalar:
        return ops.where(by > 0, a / ops.where(by > 0, by, ops.scalar(1.0, v)), 0 * a)

    def step(carry: tuple) -> tuple:
        v, r, direction, rr, k = carry
        h = product(direction)
        length = ratio(rr, ops.dot(direction, h))
        v = ops.axpy(length, direction, v)
        r = ops.axpy(-length, h, r)
        new = ops.dot(r, r)
        return v, r, ops.axpy(ratio(new, rr), direction, r), new, k + 1

    r = ops.sub(b, product(v))
    start = (v, r, r, ops.dot(r, r), ops.counter(0))
    v, r, _, _, _ = ops.while_loop(lambda carry: carry[-1] < steps, step, start)
    return v, ops.norm(r)
