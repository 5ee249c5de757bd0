"""The model of a coreset, and v at it: what a method that moves between coresets needs."""

from __future__ import annotations

from typing import NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Oracles, Outer
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.conjugate_gradient import Solution
from untuned.solvers.numerics.newton_cg import InnerSolution, solve_inner


class Trained(NamedTuple):
    """y on the coreset's rows alone, f with it on all rows, and v."""

    inner: InnerSolution
    outer: Outer
    linear: Solution

    @property
    def products(self) -> Scalar:
        """Hessian products that it took."""
        return self.inner.linear_steps + self.linear.steps + 1


def train(
    o: Oracles, x: Tree, start: tuple[Tree, Tree], rows: Tree, batch: Batch,
    shares: tuple[float, float], most: int,
) -> Trained:  # fmt: skip
    """Solve for y and v from `start`; `rows` are those that have a weight in x.

    `shares` of the residuals of y and of v may be left; `most` bounds the steps of each solve by
    conjugate gradients.
    """
    ops, (y, v) = o.ops, start
    inner = solve_inner(o, x, y, rows, shares[0], most, lambda r: r)
    f = o.outer(x, inner.y, batch.outer)
    linear = o.linear(x, inner.y, rows)
    solved = conjugate_gradient.solve(
        ops, linear.hvp, ops.sub(f.grad_y, linear.hvp(v)), v,
        tolerance=shares[1] ** 2 * ops.dot(f.grad_y, f.grad_y), most=most,
    )  # fmt: skip
    return Trained(inner, f, solved)
