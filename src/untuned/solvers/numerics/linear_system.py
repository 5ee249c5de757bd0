"""H v = b by conjugate gradients, with a model of H that is made anew where that is cheaper."""

from __future__ import annotations

from typing import NamedTuple

from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.curvature import Keeper, Model


class Solved(NamedTuple):
    """The v found, and what it took, with what it took before."""

    v: Tree
    residual_norm: Scalar
    steps: Scalar  # of conjugate gradients
    products: Scalar  # in all, with the price of new models
    indefinite: Scalar  # 1 if H was seen not to be positive definite
    model: Model


def unsolved(ops: Ops, v: Tree, model: Model) -> Solved:
    """Before anything was done."""
    none = ops.counter(0)
    return Solved(v, ops.norm(v), none, none, none, model)


def solve(
    o: Oracles, x: Tree, y: Tree, b: Tree, rows: Tree, share: Scalar, keeper: Keeper,
    before: Solved, most: int,
) -> Solved:  # fmt: skip
    """v at (x, y) with at most `share` of the error before left, as `energy` sees it.

    A model that is found wanting is made anew there, once; as it is exact then, what is left takes
    few products, unless rounding is in the way.
    """
    ops = o.ops
    linear = o.linear(x, y, rows)
    residual = ops.sub(b, linear.hvp(before.v))
    # Where a penalty exp(x) has grown out of all proportion, the v before is worse than none.
    multiply = keeper.multiply(before.model)
    seen = conjugate_gradient.energy(ops, residual, multiply)
    worse = ops.logical_not(seen <= conjugate_gradient.energy(ops, b, multiply))
    v, residual = ops.where(worse, (ops.zeros_like(b), b), (before.v, residual))

    def going(carry: tuple) -> Scalar:
        _, left, rounds = carry
        return (left > 1) & (rounds < 2)

    def round_of(carry: tuple) -> tuple:
        (at, residual), left, rounds = carry
        model, renewed, price = keeper.renewed(at.model, x, y)
        multiply = keeper.multiply(model)
        # `left` is the energy in units of the goal, whichever model sees it.
        energy = conjugate_gradient.energy(ops, residual, multiply)
        goal = energy / left
        found = conjugate_gradient.solve(
            ops, linear.hvp, residual, at.v, tolerance=goal, precondition=multiply,
            most=ops.where(rounds == 0, keeper.most(model), most),
        )  # fmt: skip
        after = conjugate_gradient.energy(ops, found.residual, multiply)
        over = (found.indefinite == 1) | (goal <= 0)
        model = keeper.charged(model, found.steps, ops.counter(0))
        truly = ops.where(over, energy, ops.dot(residual, ops.sub(found.z, at.v)))
        model, _ = keeper.judged(model, energy, truly, renewed)
        new = Solved(
            found.z, found.residual_norm, at.steps + found.steps,
            at.products + found.steps + price, ops.maximum(at.indefinite, found.indefinite), model,
        )  # fmt: skip
        left = ops.where(over, 0.0, after / ops.where(goal > 0, goal, 1.0))
        return ops.cast(((new, found.residual), left, rounds + 1), carry)

    norm = ops.norm(residual)
    start = before._replace(v=v, residual_norm=norm, products=before.products + 1)
    # Where nothing is left of the residual there is nothing to solve.
    left = ops.where(norm == 0, ops.scalar(0.0, y), ops.scalar(1.0, y) / share**2)
    carry = ((start, residual), left, ops.counter(0))
    return ops.while_loop(going, round_of, carry)[0][0]
