"""Descent with the step size both algorithms of the paper are made of.

AdaGrad-Norm divides by the root of all squared gradient norms so far,

    b_{p+1}^2 = b_p^2 + |G(z_p)|^2,    z_{p+1} = z_p - (eta / b_{p+1}) G(z_p),

so no constant of the problem is needed: b grows until steps are short enough to descend. The
start value b_0 has the units of G; "auto" starts from the first gradient that is not zero instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from untuned.ops import Ops, Scalar, Tree

Start = Any  # a positive number, or "auto"


def first_value(start: Start) -> float:
    """b_0; zero for "auto", so that the first gradient sets the scale."""
    return 0.0 if start == "auto" else start


def step_size(ops: Ops, eta: float, accumulator: Scalar) -> Scalar:
    """eta / b, and 0 as long as b is 0: there was no gradient to follow yet."""
    begun = accumulator > 0
    return ops.where(begun, eta / ops.where(begun, accumulator, 1.0), 0.0)


class Descent(NamedTuple):
    """Where a sub-loop ended: the point, the last norm seen, the accumulator, the steps taken."""

    point: Tree
    norm: Scalar
    accumulator: Scalar
    steps: Scalar
    capped: Scalar = False  # ended by the cap, not by its test
    indefinite: Scalar = 0  # 1 if a direction without positive curvature ended it


def descend_until(
    ops: Ops, gradient: Callable[[Tree], Tree], z: Tree, start: Start, eta: float,
    epsilon: Scalar, cap: int,
) -> Descent:  # fmt: skip
    """Steps while |G(z)|^2 > epsilon, tested before each step, `cap` steps at most.

    A norm that is not a number ends the loop, since no comparison with it holds.
    """
    # The root is compared, not the square, which could leave the range of the dtype.
    threshold = epsilon**0.5

    def unsolved(carry: tuple) -> Scalar:
        _, _, norm, _, p = carry
        return (norm > threshold) & (p < cap)

    def step(carry: tuple) -> tuple:
        z, g, norm, accumulator, p = carry
        accumulator = ops.hypot(accumulator, norm)
        z = ops.axpy(-step_size(ops, eta, accumulator), g, z)
        g = gradient(z)
        return z, g, ops.norm(g), accumulator, p + 1

    g = gradient(z)
    carry = (z, g, ops.norm(g), ops.scalar(first_value(start), z), ops.counter(0))
    z, _, norm, accumulator, p = ops.while_loop(unsolved, step, carry)
    return Descent(z, norm, accumulator, p, capped=norm > threshold)


def descend_for(
    ops: Ops,
    gradient: Callable[[Scalar, Tree], Tree],
    z: Tree,
    start: Start,
    eta: float,
    steps: int,
) -> Descent:
    """Exactly `steps` steps and no test; G is told which step it serves, to use fresh rows."""

    def step(carry: tuple) -> tuple:
        z, _, accumulator, p = carry
        g = gradient(p, z)
        norm = ops.norm(g)
        accumulator = ops.hypot(accumulator, norm)
        return ops.axpy(-step_size(ops, eta, accumulator), g, z), norm, accumulator, p + 1

    carry = (z, ops.scalar(0.0, z), ops.scalar(first_value(start), z), ops.counter(0))
    return Descent(*ops.while_loop(lambda carry: carry[-1] < steps, step, carry))
