"""Newton's method for the inner problem, its systems no more exact than they need be (Dembo and
Steihaug, "Truncated-Newton algorithms").

    d from H d = -grad_y g to a residual that would end the solve if g were quadratic,
    y <- y + t d,   t = 1, 1/2, 1/4, ... until g has fallen enough.

H d is solved by conjugate gradients; or, where there is a model M of the inverse of H on all rows,
d = -M grad_y g, which takes no product, for as long as such steps lower g at t = 1 and leave at
most a quarter of the error's energy: another takes half a product, and conjugate gradients one.

Where g is not convex the conjugate gradients stop at the first direction of no positive curvature,
and what they have is a direction of descent; if they have nothing, that direction itself is
taken, as far as its curvature with the sign turned says. M is positive definite whatever H is.
"""

from __future__ import annotations

from typing import NamedTuple

from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.conjugate_gradient import Map, Solution
from untuned.solvers.numerics.curvature import Fixed, Keeper, Model

MOST_STEPS, MOST_HALVINGS = 20, 30
FORCING = 0.03
QUARTER = 0.25  # of the energy, that a step by the model may leave
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
    stuck: Scalar  # 1 if rounding, or g itself, leaves nothing more to gain; 2 if it gave up
    model: Model
    made: Scalar  # what new models took, in products


def solve_inner(
    o: Oracles, x: Tree, y: Tree, rows: Tree, share: Scalar, most: int, precondition: Map,
    most_steps: int = MOST_STEPS, forcing: float = FORCING, gives_up: bool = False,
) -> InnerSolution:  # fmt: skip
    """`solve` with one preconditioner throughout; `most` bounds each conjugate gradients."""
    zero, none = o.ops.scalar(0.0, y), o.ops.counter(0)
    model, keeper = Model(None, None, zero, zero, none, none), Fixed(precondition, most)
    start = [y]
    del y  # so that no name here keeps it while steps leave it behind: vectors may be large
    return solve(o, x, start.pop(), rows, share, keeper, model, most_steps, forcing, gives_up)


def solve(
    o: Oracles, x: Tree, y: Tree, rows: Tree, share: Scalar, keeper: Keeper | Fixed, model: Model,
    most_steps: int = MOST_STEPS, forcing: float = FORCING, gives_up: bool = False,
) -> InnerSolution:  # fmt: skip
    """y with at most `share` of the error at the start left, as `energy` sees it in grad_y g.

    `most_steps` bounds the steps of Newton's method; a far point's system is not solved to more
    than a share `forcing` of its right side. One that `gives_up` ends after the first system that
    takes all the products it may.
    """
    ops = o.ops
    rounding = 10 * ops.epsilon(y)
    model = keeper.moved(model)
    g, grad = o.inner_value_and_grad(x, y, rows)
    first = conjugate_gradient.energy(ops, grad, keeper.multiply(model))
    zero, zero_count = ops.scalar(0.0, y), ops.counter(0)

    def going(carry: tuple) -> Scalar:
        at, _, goal, _, misjudged = carry
        return (
            ((at.energy > goal) | (misjudged == 1))
            & (at.newton_steps < most_steps)
            & (at.stuck == 0)
        )

    def newton_step(carry: tuple) -> tuple:
        at, g, goal, by_model, misjudged = carry
        model, renewed, price = keeper.renewed(at.model, x, at.y)
        precondition = keeper.multiply(model)
        # Another model sees another energy, and the goal stays the same share of it; unless
        # products have said what the energy was.
        energy = conjugate_gradient.energy(ops, at.grad, precondition)
        goal = ops.where(misjudged == 1, goal, goal * energy / at.energy)
        # Where the last step was refused y has not moved, and a new model would be refused as well.
        by_model = ops.where(renewed & (by_model >= 0), model.whole, by_model)

        def down() -> Tree:  # made where it is needed: vectors may be large
            return ops.tree_map(lambda r: -r, at.grad)

        def from_model() -> Solution:
            return Solution(
                precondition(down()), zero, zero_count, zero_count, ops.zeros_like(at.y),
                ops.zeros_like(at.y),
            )  # fmt: skip

        def from_products() -> Solution:
            return conjugate_gradient.solve(
                ops, o.linear(x, at.y, rows).hvp, down(), ops.zeros_like(at.y),
                tolerance=ops.maximum(QUARTER * goal, forcing**2 * energy),
                most=keeper.most(model), precondition=precondition,
            )  # fmt: skip

        newton = ops.cond(by_model == 1, from_model, from_products)
        steps, indefinite = newton.steps, newton.indefinite
        only_escape = (indefinite == 1) & (steps == 1)
        d = ops.where(only_escape, newton.escape, newton.z)
        del newton  # vectors may be large
        slope = ops.dot(at.grad, d)

        def levelled(g_t: Scalar) -> Scalar:
            """Whether g changed by no more than rounding."""
            return ops.maximum(g_t - g, g - g_t) <= rounding * ops.maximum(g, -g)

        def fine(trial: tuple) -> Scalar:
            t, g_t, _, energy_t, tries = trial
            falls = g_t <= g + ENOUGH * t * slope
            # Where g changes by rounding only, its gradient must tell.
            level = levelled(g_t) & (energy_t < energy)
            return (tries > 0) & (falls | level)

        # A model whose full step leads too far is wrong there, and so would be a shorter one.
        most_tries = ops.where(by_model == 1, 1, MOST_HALVINGS)

        def too_far(trial: tuple) -> Scalar:
            return ops.logical_not(fine(trial)) & (trial[-1] < most_tries)

        def shorten(trial: tuple) -> tuple:
            t, tries = 0.5 * trial[0], trial[-1]
            del trial
            g_t, grad_t = o.inner_value_and_grad(x, ops.axpy(t, d, at.y), rows)
            energy_t = conjugate_gradient.energy(ops, grad_t, precondition)
            return t, g_t, grad_t, energy_t, tries + 1

        untried = (ops.scalar(2.0, at.y), g, at.grad, energy, zero_count)
        trial = ops.while_loop(too_far, shorten, untried)
        t, g_t, grad_t, energy_t, tries = trial
        found = fine(trial)  # not so where time is up
        # The first of a solve's steps, and what a model is asked for when new, is its due.
        beside = ops.where((at.newton_steps > 0) & (by_model == 1), tries, zero_count)
        model = keeper.charged(model, steps, beside)
        by_products = (by_model < 1) & (indefinite == 0) & (slope < 0)
        model, off = keeper.judged(model, energy, ops.where(by_products, -slope, energy), renewed)
        goal = ops.where(off, goal * -slope / energy, goal)
        new = InnerSolution(
            y=ops.where(found, ops.axpy(t, d, at.y), at.y),
            grad=ops.where(found, grad_t, at.grad),
            energy=ops.where(found, energy_t, energy),
            newton_steps=at.newton_steps + 1,
            linear_steps=at.linear_steps + steps,
            gradients=at.gradients + tries,
            indefinite=ops.where(indefinite == 1, zero_count + 1, at.indefinite),
            stuck=ops.where(
                (found | (by_model == 1))
                & ops.logical_not(found & levelled(g_t) & (energy_t > QUARTER * energy)),
                zero_count,
                zero_count + 1,
            ),
            model=model,
            made=at.made + price,
        )
        if gives_up:
            too_slow = steps >= keeper.most(model)
            new = new._replace(stuck=ops.where(too_slow, zero_count + 2, new.stuck))
        good = found & (energy_t <= QUARTER * energy)
        following = ops.where(good, ops.maximum(by_model, zero_count), zero_count)
        following = ops.where(found, following, zero_count - 1)
        misjudged = ops.where(off, zero_count + 1, zero_count)
        return ops.cast((new, ops.where(found, g_t, g), goal, following, misjudged), carry)

    start = InnerSolution(
        y, grad, first, zero_count, zero_count, zero_count + 1, zero_count, zero_count, model,
        zero_count,
    )  # fmt: skip
    carry = [(start, g, share**2 * first + zero, model.whole, zero_count)]
    del y, grad, start  # so that no name here keeps them while the loop runs
    return ops.while_loop(going, newton_step, carry.pop())[0]
