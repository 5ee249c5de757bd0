"""The inner solution y and the linear system for v, as exactly as `auto` asks for.

    y:  d from H d = -grad_y g,  y <- y + t d,  t = 1, 1/2, 1/4, ... until g has fallen enough
    v:  H v = grad_y f

with H = grad_yy g at (x, y). Systems are solved by conjugate gradients, preconditioned by a model M
of the inverse of H (numerics/preconditioner.py). Where M comes from all rows, Newton's direction is
d = -M grad_y g, which takes no product, as long as such steps lower g at t = 1 and leave at most a
quarter of the error's energy: another one takes half a product, and conjugate gradients one.

"Energy" is <r, M r> for a residual r: with M near the inverse of H, the square of the error in the
norm of H. That is what the error costs along flat directions as along steep ones.

Where g is not convex, conjugate gradients stop at the first direction without positive curvature,
and what they have is a direction of descent. If they have nothing, that direction itself is taken,
as far as its curvature with the sign turned says (Dembo and Steihaug, "Truncated-Newton
algorithms").
"""

from __future__ import annotations

from typing import NamedTuple

from untuned.ops import Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.conjugate_gradient import Map, energy
from untuned.solvers.numerics.preconditioner import ALL_ROWS, NONE_YET, Model, Renewal
from untuned.util import watch

MOST_STEPS, MOST_HALVINGS = 20, 30
FORCING = 0.03  # share of its right side to which a far point's system is solved
QUARTER = 0.25  # of the energy, that a step by M may leave
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)
ROUNDING = 10  # units in the last place of g


class Work(NamedTuple):
    """What was evaluated."""

    newton_steps: int = 0
    gradients: int = 0
    products: int = 0  # with the price of new models
    linear_steps: int = 0  # conjugate-gradient steps for v

    def plus(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(self, other, strict=True)))


class InnerSolution(NamedTuple):
    """The y found, and grad_y g there."""

    y: Tree
    grad: Tree
    model: Model
    stuck: bool  # whether rounding, or g itself, leaves nothing to gain
    solved: bool  # whether the share asked for was reached, or rounding leaves nothing to gain
    largest: float  # norm of grad_y g so far
    indefinite: bool  # whether g was seen not to be convex
    work: Work


def solve_y(
    o: Oracles, x: Tree, y: Tree, rows: Tree, share: float, renewal: Renewal, model: Model,
    largest: float = 0.0,
) -> InnerSolution:  # fmt: skip
    """y with at most `share` of the error at the start left.

    `largest` is the largest norm of grad_y g before. Beside it, the square root of rounding is
    rest, and so is what a Newton step promises to gain where rounding hides it.
    """
    ops = o.ops
    model = renewal.after_move(model)
    g, grad = o.inner_value_and_grad(x, y, rows)
    left = energy(ops, grad, renewal.multiply(model))
    goal = share**2 * left
    # Whether the next step is by the model, and whether the last one was refused.
    by_model, refused = model.source == ALL_ROWS, model.source == NONE_YET
    work, misjudged, stuck, indefinite, bent = Work(gradients=1), False, False, False, False
    largest = ops.maximum(largest, ops.norm(grad))
    while (left > goal or misjudged) and not stuck and work.newton_steps < MOST_STEPS:
        if watch.says_stop():
            break
        model, renewed, price = renewal.renewed(model, x, y)
        multiply = renewal.multiply(model)
        seen = energy(ops, grad, multiply)
        if not misjudged:  # another model sees another energy; the goal stays the same share of it
            goal = goal * seen / left
        left = seen
        if left == 0:  # the dtype holds no smaller one, and nothing can be divided by it
            break
        if renewed and not refused:  # a new model would be refused at the same y as well
            by_model = model.source == ALL_ROWS
        down = ops.tree_map(lambda r: -r, grad)
        steps, bent = 0, False
        if by_model:
            d = multiply(down)
        else:
            newton = conjugate_gradient.solve(
                ops, o.linear(x, y, rows).hvp, down, ops.zeros_like(y),
                tolerance=ops.maximum(QUARTER * goal, FORCING**2 * left),
                most=renewal.most(model), precondition=multiply,
            )  # fmt: skip
            steps, bent = newton.steps, newton.indefinite == 1
            d = newton.escape if bent and steps == 1 else newton.z
            del newton  # vectors may be large
        del down
        slope = ops.dot(grad, d)
        # A model whose full step leads too far is wrong there, and so would be a shorter one.
        most = 1 if by_model else MOST_HALVINGS
        step = _line_search(o, x, y, rows, d, multiply, (g, left, slope), most)
        # Evaluations of the first step are due in any case.
        evaluations = step.tries if by_model and work.newton_steps else 0
        model = renewal.charged(model, steps, evaluations)
        by_products = not by_model and not bent and slope < 0
        found = -slope if by_products else left
        model, misjudged = renewal.checked(model, left, found, renewed)
        if misjudged:
            goal = goal * found / left
        work = work.plus(Work(1, step.tries, steps + price))
        indefinite = indefinite or bent
        if not step.accepted:
            stuck, refused, by_model = not by_model, True, False
            continue
        good = step.left <= QUARTER * left
        stuck, refused, by_model = step.is_level and not good, False, by_model and good
        y, g, grad, left = ops.axpy(step.t, d, y), step.value, step.grad, step.left
    rounding = ROUNDING * ops.epsilon(y) * abs(g)
    norm = ops.norm(grad)
    at_rest = (left <= rounding and not bent) or norm <= ops.epsilon(y) ** 0.5 * largest
    # Where g falls for ever its gradient may grow for ever, and every measure of it with that.
    solved = norm <= largest and (left <= goal or at_rest)
    return InnerSolution(y, grad, model, stuck, solved, largest, indefinite, work)


class _Step(NamedTuple):
    """A step y + t d, and g there."""

    t: float
    value: float
    grad: Tree
    left: float  # the energy of the gradient
    is_level: bool  # whether g changed by no more than rounding
    accepted: bool
    tries: int


def _line_search(
    o: Oracles, x: Tree, y: Tree, rows: Tree, d: Tree, multiply: Map,
    before: tuple[float, float, float], most: int,
) -> _Step:  # fmt: skip
    """Halve t until g has fallen enough, at most `most` times."""
    ops, (g, left, slope) = o.ops, before
    rounding = ROUNDING * ops.epsilon(y) * abs(g)
    step = _Step(2.0, g, None, left, True, False, 0)
    while not step.accepted and step.tries < most and not watch.says_stop():
        t, tries = 0.5 * step.t, step.tries + 1
        del step  # vectors may be large
        value, grad = o.inner_value_and_grad(x, ops.axpy(t, d, y), rows)
        after = energy(ops, grad, multiply)
        is_level = abs(value - g) <= rounding
        # Where g changes by rounding only, its gradient must tell.
        accepted = value <= g + ENOUGH * t * slope or (is_level and after < left)
        step = _Step(t, value, grad, after, is_level, accepted, tries)
    return step


class Solved(NamedTuple):
    """The v found."""

    v: Tree
    residual_norm: float
    model: Model
    indefinite: bool  # whether H was seen not to be positive definite
    work: Work = Work()


def solve_v(
    o: Oracles, x: Tree, y: Tree, b: Tree, rows: Tree, share: float, renewal: Renewal,
    start: Tree, model: Model, most: int,
) -> Solved:  # fmt: skip
    """v with H v = b at (x, y), and at most `share` of the error of `start` left.

    A model that is found to be off is made again, once; as it is exact then, the rest takes few
    products, unless rounding is in the way.
    """
    ops, linear = o.ops, o.linear(x, y, rows)
    v, residual = start, ops.sub(b, linear.hvp(start))
    multiply = renewal.multiply(model)
    # Where a penalty exp(x) has grown out of all proportion, the last v is worse than none.
    if not energy(ops, residual, multiply) <= energy(ops, b, multiply):
        v, residual = ops.zeros_like(b), b
    norm = ops.norm(residual)
    left = 1 / share**2 if norm != 0 else 0.0  # the energy in units of the goal, for any model
    products, steps, indefinite = 1, 0, False
    for rounds in range(2):
        if not left > 1 or watch.says_stop():
            break
        model, renewed, price = renewal.renewed(model, x, y)
        multiply = renewal.multiply(model)
        seen = energy(ops, residual, multiply)
        goal = seen / left
        found = conjugate_gradient.solve(
            ops, linear.hvp, residual, v, tolerance=goal, precondition=multiply,
            most=renewal.most(model) if rounds == 0 else most,
        )  # fmt: skip
        over = found.indefinite == 1 or goal <= 0
        model = renewal.charged(model, found.steps, 0)
        truly = seen if over else ops.dot(residual, ops.sub(found.z, v))
        model, _ = renewal.checked(model, seen, truly, renewed)
        left = 0.0 if over else energy(ops, found.residual, multiply) / goal
        v, residual, norm = found.z, found.residual, found.residual_norm
        products, steps = products + found.steps + price, steps + found.steps
        indefinite = indefinite or found.indefinite == 1
    return Solved(v, norm, model, indefinite, Work(products=products, linear_steps=steps))
