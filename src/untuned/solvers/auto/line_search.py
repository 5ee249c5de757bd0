"""The line search of `auto` on all rows: how far x goes along its direction (implicit.py)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Tree
from untuned.problem.derivatives import Oracles, Outer
from untuned.solvers.auto import inner
from untuned.solvers.auto.inner import Work
from untuned.solvers.numerics.preconditioner import Model, Renewal
from untuned.util import watch

if TYPE_CHECKING:
    from untuned.solvers.auto.implicit import State

FIRST_SHARE, SHARE = 0.01, 0.1  # of an error that may be left: at the start, after a step
LAST_SHARE = 1e-4  # the same, where every attempt failed
GROWTH = 10.0  # largest step over the last one
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)
MOST_TRIALS = 20


class Point(NamedTuple):
    """Where a search ended, and what was evaluated on the way."""

    x: Tree
    y: Tree
    v: Tree
    outer: Outer
    inner_grad: Tree
    residual_norm: float
    value: float  # Phi~
    error: float  # of f, by the error of y: |<v, grad_y g>|
    step: float  # s of x + s p
    accepted: bool
    indefinite: bool  # whether g was seen not to be convex in y
    solved: bool  # whether y was solved for
    largest: float  # norm of grad_y g so far
    has_v: bool  # not so where H was seen not to be positive definite
    model: Model
    tries: int
    work: Work


def search(o: Oracles, state: State, batch: Batch, renewal: Renewal, most: int) -> Point:
    """Shorten the step, or make y more exact, until Phi~ falls; at last stay where it is.

    Whether Phi~ falls is tested with the v at hand first, and with the v of the new point then.
    The first search stays where it is: it evaluates the start.
    """
    ops, p = o.ops, state.direction
    is_first = state.steps == 0
    usual = share = SHARE if state.progress.first_norm > 0 else FIRST_SHARE
    length = ops.norm(p)
    s = min(GROWTH * state.length / (length if length > 0 else 1.0), 1.0)
    start, v, model, residual_norm = state.y, state.v, state.model, ops.norm(state.v)
    work, indefinite, has_v = Work(), False, True
    for tries in range(1, MOST_TRIALS + 2):
        is_last = tries > MOST_TRIALS
        if is_last:  # the value to fall below may itself be too low, by an inexact y
            share = LAST_SHARE
        if is_first or is_last:  # from the y that belongs there, not from where attempts have led
            s, start = 0.0, state.y
        x = ops.axpy(s, p, state.x)
        known = state.progress.largest
        found = inner.solve_y(o, x, start, batch.inner, share, renewal, model, known)
        f = o.outer(x, found.y, batch.outer)
        model, work = found.model, work.plus(found.work)
        if tries == 1:  # later ones begin where g may have led astray
            largest = found.largest
        indefinite = indefinite or found.indefinite
        if s == 0 or _corrected(o, state, s, f, found, v).falls:
            solved = inner.solve_v(
                o, x, found.y, f.grad_y, batch.inner, share, renewal, v, model, most
            )
            v, model, residual_norm = solved.v, solved.model, solved.residual_norm
            has_v, work = has_v and not solved.indefinite, work.plus(solved.work)
        value, error, falls = _corrected(o, state, s, f, found, v)
        promised = s * state.slope
        refine = error > max(-SHARE * promised, 0.0) and not found.stuck
        accepted = is_first or (falls and not refine)
        if accepted or is_last or watch.says_stop():
            break
        if refine:  # the correction goes with the error of y: what may be left for it to be small
            share, part = _between(-SHARE * promised / error, LAST_SHARE, SHARE), 1.0
        elif math.isfinite(value):  # to the minimum of the parabola through values and slope
            bend = value - state.value - promised
            share, part = usual, _between(-0.5 * promised / (bend if bend > 0 else 1.0), 0.1, 0.5)
        else:
            share, part = usual, 0.1
        s, start = part * s, state.y
        if math.isfinite(value):  # y*(x) is nearly linear along p: a shorter step, a shorter move
            start = ops.axpy(part, ops.sub(found.y, start), start)
    return Point(
        x, found.y, v, f, found.grad, residual_norm, value, error, s, accepted, indefinite,
        found.solved, largest, has_v, model, tries, work,
    )  # fmt: skip


def made_exact(o: Oracles, at: Point, batch: Batch, renewal: Renewal, most: int) -> Point:
    """The same x with y and v as after the last of many attempts."""
    ops, rows, share = o.ops, batch.inner, LAST_SHARE
    found = inner.solve_y(o, at.x, at.y, rows, share, renewal, at.model, at.largest)
    f = o.outer(at.x, found.y, batch.outer)
    solved = inner.solve_v(
        o, at.x, found.y, f.grad_y, rows, share, renewal, at.v, found.model, most
    )
    correction = ops.dot(solved.v, found.grad)
    return at._replace(
        y=found.y, v=solved.v, outer=f, inner_grad=found.grad, residual_norm=solved.residual_norm,
        value=f.value - correction, error=abs(correction), solved=found.solved,
        largest=found.largest, indefinite=at.indefinite or found.indefinite,
        has_v=not solved.indefinite, model=solved.model, tries=at.tries + 1,
        work=at.work.plus(found.work).plus(solved.work),
    )  # fmt: skip


class Corrected(NamedTuple):
    """Phi~, the size of its correction, and whether it falls enough."""

    value: float
    error: float
    falls: bool


def _corrected(
    o: Oracles, state: State, s: float, f: Outer, found: inner.InnerSolution, v: Tree
) -> Corrected:
    """Phi~ = f - <v, grad_y g> after a step s."""
    epsilon, promised = o.ops.epsilon(state.y), s * state.slope
    correction = o.ops.dot(v, found.grad)
    value, error, size_of_f = f.value - correction, abs(correction), abs(f.value)
    # A correction beyond what is promised, and large for f, is none: y could not be solved for
    # there, as where a penalty exp(x) leaves the range of the dtype.
    sound = error <= max(-promised, epsilon**0.5 * size_of_f)
    falls = value <= state.value + ENOUGH * promised + 2 * epsilon * size_of_f
    return Corrected(value, error, bool(s > 0 and sound and falls))


def _between(value: float, low: float, high: float) -> float:
    return high if value > high else value if value > low else low
