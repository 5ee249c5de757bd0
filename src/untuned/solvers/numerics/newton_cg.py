"""Newton's method for an inner problem, its systems no more exact than they need be (Dembo and
Steihaug, "Truncated-Newton algorithms").

    d from H d = -grad_y g by conjugate gradients, to a residual that would end the solve if g were
    quadratic;   y <- y + t d,   t = 1, 1/2, 1/4, ... until g has fallen enough.

Where g is not convex the conjugate gradients stop at the first direction without positive
curvature, and what they have is a direction of descent; if they have nothing, that direction itself
is taken, as far as its curvature with the sign turned says. JAX can trace all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.conjugate_gradient import Map

MOST_STEPS, MOST_HALVINGS = 20, 30
FORCING = 0.03  # share of its right side to which a far point's system is solved
QUARTER = 0.25  # of the goal, to which the last system is solved
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)
ROUNDING = 10  # units in the last place of g


class InnerSolution(NamedTuple):
    """The y found, grad_y g there, and what it took."""

    y: Tree
    grad: Tree
    energy: Scalar  # of grad_y g
    newton_steps: Scalar
    linear_steps: Scalar
    gradients: Scalar
    indefinite: Scalar  # 1 if g was seen not to be convex
    stuck: Scalar  # 1 if rounding, or g itself, leaves nothing more to gain; 2 if it gave up


def solve_inner(
    o: Oracles, x: Tree, y: Tree, rows: Tree, share: Scalar, most: int, precondition: Map,
    most_steps: int = MOST_STEPS, forcing: float = FORCING, gives_up: bool = False,
) -> InnerSolution:  # fmt: skip
    """y with at most `share` of the error at the start left, as `energy` sees it in grad_y g.

    `most` bounds the conjugate-gradient steps of one system, `most_steps` the Newton steps. One
    that `gives_up` ends after the first system that takes all the products it may.
    """
    ops, none = o.ops, o.ops.counter(0)
    rounding = ROUNDING * ops.epsilon(y)
    g, grad = o.inner_value_and_grad(x, y, rows)
    first = conjugate_gradient.energy(ops, grad, precondition)
    goal = share**2 * first + ops.scalar(0.0, y)

    def going(carry: tuple) -> Scalar:
        at, _ = carry
        return (at.energy > goal) & (at.newton_steps < most_steps) & (at.stuck == 0)

    def newton_step(carry: tuple) -> tuple:
        at, g = carry
        newton = conjugate_gradient.solve(
            ops, o.linear(x, at.y, rows).hvp, ops.tree_map(lambda r: -r, at.grad),
            ops.zeros_like(at.y), most=most, precondition=precondition,
            tolerance=ops.maximum(QUARTER * goal, forcing**2 * at.energy),
        )  # fmt: skip
        steps, indefinite = newton.steps, newton.indefinite
        d = ops.where((indefinite == 1) & (steps == 1), newton.escape, newton.z)
        del newton  # vectors may be large
        slope = ops.dot(at.grad, d)

        def level(value: Scalar) -> Scalar:
            """Whether g changed by no more than rounding."""
            return ops.maximum(value - g, g - value) <= rounding * ops.maximum(g, -g)

        def fine(trial: tuple) -> Scalar:
            t, value, _, energy, tries = trial
            falls = value <= g + ENOUGH * t * slope
            # Where g changes by rounding only, its gradient must tell.
            return (tries > 0) & (falls | (level(value) & (energy < at.energy)))

        def too_far(trial: tuple) -> Scalar:
            return ops.logical_not(fine(trial)) & (trial[-1] < MOST_HALVINGS)

        def shorten(trial: tuple) -> tuple:
            t, tries = 0.5 * trial[0], trial[-1]
            del trial
            value, grad = o.inner_value_and_grad(x, ops.axpy(t, d, at.y), rows)
            energy = conjugate_gradient.energy(ops, grad, precondition)
            return t, value, grad, energy, tries + 1

        untried = (ops.scalar(2.0, at.y), g, at.grad, at.energy, none)
        trial = ops.while_loop(too_far, shorten, untried)
        t, value, grad, energy, tries = trial
        found = fine(trial)  # not so where time is up
        stuck = ops.logical_not(found) | (level(value) & (energy > QUARTER * at.energy))
        new = InnerSolution(
            y=ops.where(found, ops.axpy(t, d, at.y), at.y),
            grad=ops.where(found, grad, at.grad),
            energy=ops.where(found, energy, at.energy),
            newton_steps=at.newton_steps + 1,
            linear_steps=at.linear_steps + steps,
            gradients=at.gradients + tries,
            indefinite=ops.where(indefinite == 1, none + 1, at.indefinite),
            stuck=ops.where(stuck, none + 1, none),
        )
        if gives_up:
            new = new._replace(stuck=ops.where(steps >= most, none + 2, new.stuck))
        return ops.cast((new, ops.where(found, value, g)), carry)

    carry = [(InnerSolution(y, grad, first, none, none, none + 1, none, none), g)]
    del y, grad  # so that no name here keeps them while the loop runs: vectors may be large
    return ops.while_loop(going, newton_step, carry.pop())[0]
