"""What adaptive methods share: v by conjugate gradients, and the state of BiSLS and BiSPS."""

from __future__ import annotations

from typing import NamedTuple

from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Oracles, Outer
from untuned.solvers.numerics import conjugate_gradient


class State(NamedTuple):
    """The point, and the last step sizes of x and y."""

    x: Tree
    y: Tree
    v: Tree
    rate_x: Scalar
    rate_y: Scalar
    t: Scalar


def linear_solution(
    o: Oracles, x: Tree, y: Tree, v: Tree, f: Outer, rows: Tree, steps: int
) -> tuple[conjugate_gradient.Solution, Tree]:
    """v after `steps` of conjugate gradients from the last one, and the hypergradient with it."""
    ops, linear = o.ops, o.linear(x, y, rows)
    residual = ops.sub(f.grad_y, linear.hvp(v))
    solved = conjugate_gradient.solve(ops, linear.hvp, residual, v, most=steps)
    return solved, ops.sub(f.grad_x, linear.cross(solved.z))
