"""Inner loops of most tuned methods: gradient steps on y, and truncated Neumann series for v,

    v = H^{-1} b  ~  sigma sum_q (I - sigma H)^q b,   on fresh rows.

`product(k, w)` is H w on the rows of the k-th product. Trees may be pairs of trees, with a product
that acts on each: then two points share the same rows.
"""

from __future__ import annotations

from collections.abc import Callable

from untuned.ops import Ops, Scalar, Tree

Product = Callable[[Scalar, Tree], Tree]


def descend(
    ops: Ops, gradient: Callable[[Scalar, Tree], Tree], z: Tree, rate: Scalar, steps: int
) -> tuple[Tree, Scalar]:
    """z_{k+1} = z_k - rate G_k(z_k), `steps` times; the point and the last gradient's norm."""

    def step(carry: tuple) -> tuple:
        z, _, k = carry
        g = gradient(k, z)
        return ops.axpy(-rate, g, z), g, k + 1

    start = (z, ops.zeros_like(z), ops.counter(0))
    z, g, _ = ops.while_loop(lambda carry: carry[-1] < steps, step, start)
    return z, ops.norm(g)  # after the loop: in it, norms would cost a good part of a small step


def hia(ops: Ops, product: Product, b: Tree, n: int, sigma: Scalar, p: Scalar) -> Tree:
    """n sigma (I - sigma H)^p b: with p uniform on 0..n-1, the n-term series in the mean."""

    def step(carry: tuple) -> tuple:
        w, k = carry
        return ops.axpy(-sigma, product(k, w), w), k + 1

    w, _ = ops.while_loop(lambda carry: carry[-1] < p, step, (b, ops.counter(0)))
    return ops.axpy(n * sigma, w, ops.zeros_like(w))


def shia(ops: Ops, product: Product, b: Tree, n: int, sigma: Scalar) -> Tree:
    """The series itself, n + 1 terms."""

    def step(carry: tuple) -> tuple:
        w, total, k = carry
        w = ops.axpy(-sigma, product(k, w), w)
        return w, ops.axpy(1.0, w, total), k + 1

    start = (b, b, ops.counter(0))
    _, total, _ = ops.while_loop(lambda carry: carry[-1] < n, step, start)
    return ops.axpy(sigma, total, ops.zeros_like(total))


def truncation(ops: Ops, uniform: Scalar, n: int) -> Scalar:
    """p, uniform on 0..n-1, from a random number in [0, 1)."""
    if uniform is None:
        raise ValueError(
            "This method draws how long its series is, and the batch has no random number; give "
            "untuned.Batch(inner, outer, uniform=...) one from 0 to below 1 at every step."
        )
    p = ops.floor(uniform * n)
    # In float32 a number just below 1 rounds to 1.
    return ops.where(p < n, p, ops.counter(n - 1))
