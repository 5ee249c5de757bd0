"""Newton's method for the inner problem, its steps from conjugate gradients and no more exact
than they need be (Dembo and Steihaug, "Truncated-Newton algorithms").

    d from H d = -grad_y g to a residual that would end the solve if g were quadratic,
    y <- y + t d,   t = 1, 1/2, 1/4, ... until g has fallen enough.

Where g is not convex the conjugate gradients stop at the first direction of no positive curvature,
and what they have is a direction of descent; if they have nothing, that direction itself is
taken, as far as its curvature with the sign turned says.
"""

from __future__ import annotations

from typing import NamedTuple

from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.conjugate_gradient import Map

MOST_STEPS, MOST_HALVINGS = 20, 30
FORCING = (
    0.03  # a far point's Newton system is not solved to more than this share of its right side
)
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)


class InnerSolution(NamedTuple):
    """The y found, grad_y g there, and what it took."""

    y: Tree
    grad: Tree
    energy: Scalar  # of grad_y g
    newton_steps: Scalar
    linear_steps: Scalar
    gradients: Scalar
    indefinite: Scalar  # 1 if g was seen not to be convex
    stuck: Scalar  # 1 if rounding, or g itself, leaves nothing more to gain


def solve_inner(
    o: Oracles, x: Tree, y: Tree, rows: Tree, share: Scalar, most: int, precondition: Map,
    most_steps: int = MOST_STEPS,
) -> InnerSolution:  # fmt: skip
    """y with at most `share` of the error at the start left, as `energy` sees it in grad_y g.

    `most` bounds the steps of each conjugate gradients, `most_steps` those of Newton's method.
    """
    ops = o.ops
    rounding = 10 * ops.epsilon(y)
    g, grad = o.inner_value_and_grad(x, y, rows)
    first = conjugate_gradient.energy(ops, grad, precondition)
    zero_count = ops.counter(0)

    def going(carry: tuple) -> Scalar:
        at, _ = carry
        return (at.energy > share**2 * first) & (at.newton_steps < most_steps) & (at.stuck == 0)

    def newton_step(carry: tuple) -> tuple:
        at, g = carry
        down = ops.tree_map(lambda r: -r, at.grad)
        goal = ops.maximum((0.5 * share) ** 2 * first, FORCING**2 * at.energy)
        linear = o.linear(x, at.y, rows)
        newton = conjugate_gradient.solve(
            ops, linear.hvp, down, ops.zeros_like(at.y),
            tolerance=goal, most=most, precondition=precondition,
        )  # fmt: skip
        only_escape = (newton.indefinite == 1) & (newton.steps == 1)
        d = ops.where(only_escape, newton.escape, newton.z)
        slope = ops.dot(at.grad, d)

        def levelled(g_t: Scalar) -> Scalar:
            """Whether g changed by no more than rounding."""
            return ops.maximum(g_t - g, g - g_t) <= rounding * ops.maximum(g, -g)

        def too_far(trial: tuple) -> Scalar:
            t, g_t, _, energy_t, tries = trial
            falls = g_t <= g + ENOUGH * t * slope
            # Where g changes by rounding only, its gradient must tell.
            level = levelled(g_t) & (energy_t < at.energy)
            fine = (tries > 0) & (falls | level)
            return ops.logical_not(fine) & (tries <= MOST_HALVINGS)

        def shorten(trial: tuple) -> tuple:
            t, *_, tries = trial
            t = 0.5 * t
            g_t, grad_t = o.inner_value_and_grad(x, ops.axpy(t, d, at.y), rows)
            energy_t = conjugate_gradient.energy(ops, grad_t, precondition)
            return t, g_t, grad_t, energy_t, tries + 1

        untried = (ops.scalar(2.0, y), g, at.grad, at.energy, zero_count)
        t, g_t, grad_t, energy_t, tries = ops.while_loop(too_far, shorten, untried)
        found = (tries > 0) & (tries <= MOST_HALVINGS)  # none where time is up
        new = InnerSolution(
            y=ops.where(found, ops.axpy(t, d, at.y), at.y),
            grad=ops.where(found, grad_t, at.grad),
            energy=ops.where(found, energy_t, at.energy),
            newton_steps=at.newton_steps + 1,
            linear_steps=at.linear_steps + newton.steps,
            gradients=at.gradients + tries,
            indefinite=ops.where(newton.indefinite == 1, zero_count + 1, at.indefinite),
            stuck=ops.where(
                found & ops.where(levelled(g_t) & (energy_t > 0.25 * at.energy), False, True),
                zero_count,
                zero_count + 1,
            ),
        )
        return new, ops.where(found, g_t, g)

    start = InnerSolution(
        y, grad, first, zero_count, zero_count, zero_count + 1, zero_count, zero_count
    )
    return ops.while_loop(going, newton_step, (start, g))[0]
