"""`auto` on all rows: quasi-Newton steps on Phi(x) = f(x, y*(x)), by implicit differentiation.

A step moves x along the direction that the last one found, and evaluates there. With H, J for
grad_yy g, grad_xy g at the new (x, y),

    x <- x + s p,  y near y*(x) by Newton's method from the last y,  s = 1 or shorter, until
    Phi~(x) <= Phi~(last x) + 1e-4 s <h, p>                                up to rounding
    v:   H v = grad_y f  by conjugate gradients from the last v
    h  = grad_x f - J v                                                    the hypergradient
    Phi~ = f(x, y) - <v, grad_y g(x, y)>           Phi(x), but for the square of the error of y
    p  = -B h                                            B: limited-memory BFGS

Where x has bounds, B is of the entries that are free of them, and starts from the size of each.
In any other set p is the spectral projected gradient.

The first step stays where it is. The files: line_search.py chooses s, inner.py solves for y and v,
`_over` here says when a run is over. All of it is plain Python on the oracles: JAX, torch or NumPy
evaluate f, g and their derivatives, and nothing else is compiled.

**Accuracy.** y and v are solved for until a tenth is left of the error that the step of x caused,
measured by its energy (inner.py). So their errors are in proportion to the length of the last step
and fall with the hypergradient; no number says how exact is exact enough. If Phi~ fails to fall
while <v, grad_y g> is not small against the promised decrease, y may be the cause, and is made more
exact before the step is made shorter.

**Scale.** Every comparison is between quantities of one unit, so a constant factor on f or g
changes nothing. Only the first step needs a length: a tenth of x's size per entry, or 0.1 where x
is zero, but no longer than the slope needs to promise a tenth of |f|; all of this but the 0.1
holds in any unit of x. Later steps are at most tenfold the last, so a wrong guess costs few steps.

**The end.** A run has **converged** where nothing is left of the first |h|, or where <h, p>
promises less than rounding can show, three times in a row.

It has gained **enough** where it has made at least 30 steps, in which BFGS has learned all it knows
three times over, each of the last quarter of them gained on average less than a millionth of the
whole gain, and the next step promises no more than they did together: at that rate a thousand more
would gain 0.1 %. This is the same in any precision. The end of a slow run is the same: nearly half
of its steps (7/16, and at least 30) gained less than 0.1 % of everything. Both are left out where
the user gives a tolerance. Before a run ends, y and v are made more exact, and all of this is asked
again.

It has **stalled** where no shorter step lowers Phi~ though more is promised, unless |h| has fallen
by the square root of rounding by then; and where it would be over but y was not solved for, twice
in a row, as where g has no minimum: h says nothing there.
"""

from __future__ import annotations

from typing import NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.auto import line_search
from untuned.solvers.auto.line_search import GROWTH, Point
from untuned.solvers.base import CONVERGED, ENOUGH, GO_ON, STALLED, Info
from untuned.solvers.numerics import lbfgs, preconditioner
from untuned.solvers.numerics.preconditioner import Model, Renewal
from untuned.util import watch

MOST_LINEAR_STEPS = 1000
FIRST_LENGTH = 0.1  # of x's size
SHORTER = 0.01  # of the last step, after a search that failed

FAILURES = 2  # searches in a row
IDLE = 3  # steps in a row that promise a trifle
WORTH = 1e-6  # of the whole gain: less is not worth a step; a thousand steps gain 0.1 %
SLOW = 1e-3  # of the whole gain: less in nearly half of the steps is the end of a slow run
LONG = 3 * lbfgs.PAIRS  # steps: fewer say nothing of how fast a run is
NOTHING = 4e-11  # of the first hypergradient, or of the gain: none is left
DIGITS = 1e-7  # of f: a change beyond these digits is none in any precision


class Mark(NamedTuple):
    """Phi~ after so many steps."""

    value: float = 0.0
    steps: int = 0


class Progress(NamedTuple):
    """What the end of a run is decided by."""

    first_norm: float = 0.0  # of the hypergradient
    first: Mark = Mark()
    # When the gain was last looked at, and when before that.
    last: Mark = Mark()
    before: Mark = Mark()
    failures: int = 0
    idle: int = 0
    unsolved: int = 0  # steps in a row that left y far from a solution
    largest: float = 0.0  # norm of grad_y g


class State(NamedTuple):
    """Where the last step ended, what it found there, and what is remembered of those before."""

    x: Tree
    y: Tree
    v: Tree
    value: float  # Phi~
    hypergrad: Tree
    direction: Tree  # p
    slope: float  # of Phi~ along p
    memory: lbfgs.Pairs
    length: float  # of the last step of x
    model: Model  # of the inverse of g's Hessian
    progress: Progress
    steps: int


def init(o: Oracles, x: Tree, y: Tree) -> State:
    """Start at (x, y) with v = 0."""
    ops, nothing = o.ops, o.ops.zeros_like(x)
    root = ops.size(x) ** 0.5
    per_entry = float(ops.norm(x)) / root
    return State(
        x=x, y=y, v=ops.zeros_like(y), value=0.0, hypergrad=nothing, direction=nothing, slope=0.0,
        memory=lbfgs.empty(ops, x), length=FIRST_LENGTH * root * (per_entry or 1.0),
        model=preconditioner.start(o, y), progress=Progress(), steps=0,
    )  # fmt: skip


def step(o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
    """Move x along the direction found before, and find the next."""
    ops = o.ops
    most = min(MOST_LINEAR_STEPS, 2 * ops.size(state.y) + 10)
    renewal = Renewal(o, state.x, state.y, batch.inner, batch.data.sample, most)
    at = line_search.search(o, state, batch, renewal, most)
    for is_last in (False, True):
        hypergrad = ops.sub(at.outer.grad_x, o.linear(at.x, at.y, batch.inner).cross(at.v))
        ahead = _next(o, state, at, hypergrad)
        verdict, progress = _over(state, at, ahead, ops.epsilon(state.y))
        if is_last or verdict not in (CONVERGED, ENOUGH) or watch.says_stop():
            break
        at = line_search.made_exact(o, at, batch, renewal, most)  # the end, if it still looks so
    info = Info(
        outer=at.outer.value,
        inner_grad_norm=ops.norm(at.inner_grad),
        residual_norm=at.residual_norm,
        hypergrad_norm=ahead.norm,
        step_x=ahead.step_size,
        step_y=1.0,
        step_v=1.0,
        measure=at.value + at.error,
        measure_error=at.error,
        inner_steps=at.work.newton_steps,
        linear_steps=at.work.linear_steps,
        capped=int(not at.solved),
        indefinite=int(at.indefinite or not at.has_v),
        verdict=verdict,
        counts=Counts(at.tries, at.work.gradients, at.work.products, 1 + is_last),
    )
    following = State(
        x=at.x, y=at.y, v=at.v, value=at.value, hypergrad=hypergrad, direction=ahead.direction,
        slope=ahead.slope, memory=ahead.memory, length=ahead.length, model=at.model,
        progress=progress, steps=state.steps + 1,
    )  # fmt: skip
    return following, info


class Next(NamedTuple):
    """Where the next step goes."""

    memory: lbfgs.Pairs
    length: float  # of the last step of x
    direction: Tree  # p
    norm: float  # zero at a stationary point
    step_size: float
    slope: float  # of Phi~ along p


def _next(o: Oracles, state: State, at: Point, hypergrad: Tree) -> Next:
    """p = -B h, from what the last step taught about Phi."""
    ops, memory = o.ops, state.memory
    if not at.accepted:
        # A model that leads nowhere is forgotten, and the next step is short and down the slope.
        memory, length = lbfgs.empty(ops, at.x), SHORTER * state.length
    elif state.steps == 0:
        length = _first_length(state.length, at.outer.value, ops.norm(hypergrad))
    else:
        moved, change = ops.sub(at.x, state.x), ops.sub(hypergrad, state.hypergrad)
        memory = lbfgs.remember(ops, memory, moved, change)
        length = at.step * ops.norm(state.direction)
        # Where Phi has only bent downwards so far, no model says how far to go: farther than this.
        if memory.kept == 0 and ops.dot(moved, change) < 0:
            length = GROWTH * length
    p, norm, step_size = lbfgs.step_along(ops, o.project, memory, at.x, hypergrad, length)
    return Next(memory, length, p, norm, step_size, ops.dot(hypergrad, p))


def _first_length(longest: float, f: float, norm: float) -> float:
    """No farther than to where the slope promises a tenth of |f|, whatever the unit of x."""
    promising = FIRST_LENGTH * abs(f) / (norm if norm > 0 else 1.0)
    return promising if 0 < promising < longest else longest


def _over(state: State, at: Point, ahead: Next, epsilon: float) -> tuple[int, Progress]:
    """The verdict after a step, and what the next one is decided by."""
    so_far, steps, value = state.progress, state.steps + 1, at.value
    size_of_f, promised = abs(at.outer.value), -ahead.slope
    first, first_norm = so_far.first, so_far.first_norm
    if state.steps == 0:
        first = Mark(value, steps)
    if not first_norm > 0:
        first_norm = ahead.norm
    # Below this a gain is nothing: lost in rounding, or a trifle of what was gained.
    trifle = max(epsilon * size_of_f, min(epsilon, NOTHING) * (first.value - value))
    # Where g curves downwards there may be no v, and then h says nothing.
    idle = so_far.idle + 1 if promised <= trifle and at.has_v else 0
    failures = 0 if at.accepted else so_far.failures + 1
    unsolved = 0 if at.solved else so_far.unsolved + 1
    # No way down is the goal all the same, where |h| has fallen as far as f can resolve.
    at_rest = failures >= FAILURES and ahead.norm <= epsilon**0.5 * first_norm
    lost = idle >= IDLE and promised <= epsilon * size_of_f
    gone = ahead.norm <= max(NOTHING, 10 * epsilon) * first_norm and at.has_v

    last, before, enough = so_far.last, so_far.before, idle >= IDLE
    if state.steps == 0:
        last = before = first
    elif 4 * (steps - last.steps) >= max(4 * IDLE, steps):  # another quarter of the steps is made
        whole_gain = first.value - value
        worth = max(WORTH * (steps - last.steps) * whole_gain, DIGITS * size_of_f)
        little = SLOW * whole_gain
        poor = last.value - value <= worth and promised <= worth and steps >= LONG
        slow = steps - before.steps >= LONG and before.value - value <= little >= promised
        enough = enough or ((poor or slow) and failures == 0)
        last, before = Mark(value, steps), last
    if gone or lost or at_rest:
        verdict = CONVERGED
    elif failures >= FAILURES:
        verdict = STALLED
    else:
        verdict = ENOUGH if enough else GO_ON
    if unsolved and verdict in (CONVERGED, ENOUGH):
        verdict = STALLED if unsolved >= FAILURES else GO_ON
    return verdict, Progress(
        first_norm, first, last, before, failures, idle, unsolved, at.largest
    )  # fmt: skip
