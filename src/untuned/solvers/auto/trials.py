"""The steps of x that `auto` tries before it takes one (implicit.py says by what test)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Oracles, Outer
from untuned.solvers.numerics import linear_system, newton_cg
from untuned.solvers.numerics.curvature import Keeper

if TYPE_CHECKING:
    from untuned.solvers.auto.implicit import State

FIRST_SHARE, SHARE = 0.01, 0.1  # of a residual that may be left: at the start, after a step
LAST_SHARE = 1e-4  # the same, where every attempt failed
GROWTH = 10.0  # most, of a step over the last one
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)
MOST_TRIALS = 20


class Trial(NamedTuple):
    """A step of x being tried, and what it took so far."""

    size: Scalar  # s of x + s p
    share: Scalar  # of the error of y and v that may be left
    y: Tree
    outer: Outer
    inner_grad: Tree
    accepted: Scalar
    tries: Scalar
    newton_steps: Scalar
    gradients: Scalar
    products: Scalar
    indefinite: Scalar
    solved: linear_system.Solved  # v, and the model of g's Hessian


def search(o: Oracles, state: State, batch: Batch, keeper: Keeper, most: int) -> Trial:
    """Shorten the step, or make y more exact, until Phi~ falls; at last stay where it is.

    Whether it falls is asked with the v at hand, and if so, again with the v that belongs there.
    """
    ops, p = o.ops, state.direction
    zero_count = ops.counter(0)
    first, usual = state.steps == 0, allowed(ops, state, batch)

    def going(trial: Trial) -> Scalar:
        return (trial.accepted == 0) & (trial.tries <= MOST_TRIALS)

    def attempt(trial: Trial) -> Trial:
        # The first step stays where it is, and so does the last attempt, after all others failed.
        last = trial.tries == MOST_TRIALS
        s = ops.where(first | last, 0.0, trial.size)
        x = ops.axpy(s, p, state.x)
        # Where nothing fell, the value to fall below may itself be too low, by an inexact y.
        share = ops.where(last, LAST_SHARE, trial.share)
        # A step of zero starts from the y that belongs there, not from where attempts have led it.
        start = [ops.where(s == 0, state.y, trial.y)]
        so_far, tries, newton_steps = trial.solved, trial.tries, trial.newton_steps
        gradients, products, indefinite = trial.gradients, trial.products, trial.indefinite
        del trial  # vectors may be large: the last attempt's are not kept beside those to come
        inner = newton_cg.solve(o, x, start.pop(), batch.inner, share, keeper, so_far.model)
        f = o.outer(x, inner.y, batch.outer)
        promised = s * state.slope
        rounding = 2 * ops.epsilon(state.y) * ops.maximum(f.value, -f.value)
        large = ops.epsilon(state.y) ** 0.5 * ops.maximum(f.value, -f.value)

        def corrected(v: Tree) -> tuple[Scalar, Scalar, Scalar]:
            """Phi~, the size of its correction, and whether it falls."""
            correction = ops.dot(v, inner.grad)
            value, error = f.value - correction, ops.maximum(correction, -correction)
            # A correction beyond what is promised, and large for f, is no correction: y could not
            # be solved for there, as where a penalty exp(x) leaves the range of the dtype.
            sound = error <= ops.maximum(-promised, large)
            falls = sound & (value <= state.value + ENOUGH * promised + rounding) & (s > 0)
            return value, error, falls

        before = so_far._replace(model=inner.model)
        stays = first | (s == 0)
        solved = ops.cond(
            corrected(before.v)[2] | stays,
            lambda: linear_system.solve(
                o, x, inner.y, f.grad_y, batch.inner, share, keeper, before, most
            ),
            lambda: before,
        )
        value, error, falls = corrected(solved.v)
        refine = (error > -SHARE * promised) & (inner.stuck == 0)
        falls = first | (falls & ops.logical_not(refine))
        # The minimum of the parabola through both values and the slope, kept within bounds.
        bend = value - state.value - promised
        best = -0.5 * promised / ops.where(bend > 0, bend, 1.0)
        part = ops.where(ops.isfinite(value), _between(ops, best, 0.1, 0.5), 0.1)
        part = ops.where(refine, 1.0, part)
        # The correction goes with the error of y: what may be left of that for it to be small.
        needed = _between(ops, -SHARE * promised / ops.where(refine, error, 1.0), LAST_SHARE, SHARE)
        # y*(x) is nearly linear along p, so a shorter step starts from a shorter move of y.
        nearer = ops.tree_map(lambda a, b: a + part * (b - a), state.y, inner.y)
        nearer = ops.where(ops.isfinite(value), nearer, state.y)
        stays = falls | (s == 0)
        return ops.cast(
            Trial(
                size=ops.where(stays, s, part * s),
                share=ops.where(refine, needed, usual),
                y=ops.where(stays, inner.y, nearer),
                outer=f,
                inner_grad=inner.grad,
                accepted=ops.where(falls, zero_count + 1, zero_count),
                tries=tries + 1,
                newton_steps=newton_steps + inner.newton_steps,
                gradients=gradients + inner.gradients,
                products=products + inner.linear_steps + inner.made,
                indefinite=ops.maximum(indefinite, inner.indefinite),
                solved=solved,
            ),
            untried,
        )

    norm = ops.norm(p)
    longest = GROWTH * state.length / ops.where(norm > 0, norm, 1.0)
    size = ops.where(longest < 1, longest, 1.0)
    zero = ops.scalar(0.0, state.y)
    untried = Trial(
        size=zero + size, share=zero + usual, y=state.y,
        outer=Outer(zero, ops.zeros_like(state.x), state.v),
        inner_grad=state.v, accepted=zero_count, tries=zero_count, newton_steps=zero_count,
        gradients=zero_count, products=zero_count, indefinite=zero_count,
        solved=linear_system.unsolved(ops, state.v, state.model),
    )  # fmt: skip
    return ops.while_loop(going, attempt, untried)


def allowed(ops: Ops, state: State, batch: Batch) -> Scalar:
    """The share of a residual that may be left: little at the start, whose error may be anything.

    On a sample not so little, as its own error is larger.
    """
    if batch.data.held_out is not None:
        return SHARE
    return ops.where(state.first_norm > 0, SHARE, FIRST_SHARE)


def _between(ops: Ops, value: Scalar, low: float, high: float) -> Scalar:
    return ops.where(value > high, high, ops.where(value > low, value, low))
