"""Plain gradient steps on y, the inner loop of most tuned methods."""

from __future__ import annotations

from collections.abc import Callable

from untuned.ops import Ops, Scalar, Tree


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
