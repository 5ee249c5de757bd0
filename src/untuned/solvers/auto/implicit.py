"""`auto` on all rows: quasi-Newton steps on Phi(x) = f(x, y*(x)), by implicit differentiation.

A step moves x along the direction that the last one found, and evaluates there. With H, J for
grad_yy g, grad_xy g at the new (x, y),

    x <- x + s p,  y near y*(x) by Newton's method from the last y,  s = 1 or shorter, until
    Phi~(x) <= Phi~(last x) + 1e-4 s <h, p>                                up to rounding
    v:   H v = grad_y f  by conjugate gradients from the last v
    h  = grad_x f - J v                                                    the hypergradient
    Phi~ = f(x, y) - <v, grad_y g(x, y)>           Phi(x), but for the square of the error of y
    p  = -B h                                            B: limited-memory BFGS

(s is tested with the last v first, and with the new one then). The first step stays where it is.

**Accuracy.** y and v are solved for until a tenth is left of the error that the step of x caused,
as `conjugate_gradient.energy` sees it. So their errors are in proportion to the last step's length,
and fall with the hypergradient; no number says how exact is exact enough. If Phi~ fails to fall
while <v, grad_y g> is not small against the promised decrease, y may be to blame, and is made more
exact before the step is made shorter.

**Scale.** Every comparison is between quantities of one unit, so multiplying f or g by a constant
changes nothing. Only the first step needs a length: a tenth of x's size per entry, or 0.1 where x
is zero, but no longer than the slope needs to promise a tenth of |f|; all of this but the 0.1
holds in any unit of x. Later ones are at most tenfold the last, so a wrong guess costs a few steps.

**A sample on trial** (batch.data.whole, run/stages.py) has too few rows for its variables, so y
and v are solved for on the sample, and h is taken with J on all rows, as x may have entries that
belong to rows outside the sample. <v, grad_y g> on as many other rows says what the sample gets
wrong in Phi~. Once a step promises less than that the stage is over; if it is so at the first step,
the sample is unfit, and the run begins anew on all rows.

When it ends is said in judgement.py.
"""

from __future__ import annotations

from typing import NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.auto import direction, judgement, trials
from untuned.solvers.base import Info, size
from untuned.solvers.numerics import curvature, lbfgs
from untuned.solvers.numerics.curvature import Keeper, Model

MOST_LINEAR_STEPS = 1000


class State(NamedTuple):
    """Where the last step ended, what it found there, and what is remembered of those before."""

    x: Tree
    y: Tree
    v: Tree
    value: Scalar  # Phi~
    hypergrad: Tree
    direction: Tree  # p
    slope: Scalar  # of Phi~ along it, on these rows
    memory: lbfgs.Pairs
    length: Scalar  # of the last step of x
    model: Model  # of g's Hessian
    first_norm: Scalar  # of the hypergradient
    first_value: Scalar  # Phi~ on these rows
    earlier: Scalar  # gained on other rows before
    marks: judgement.Marks
    held_out: Scalar  # f on held-out rows
    gained: Scalar  # by how much it has fallen in all
    steps: Scalar  # on these rows
    failures: Scalar
    idle: Scalar


def init(o: Oracles, x: Tree, y: Tree) -> State:
    """Start at (x, y) with v = 0."""
    ops = o.ops
    zero, zero_count, nothing = ops.scalar(0.0, y), ops.counter(0), ops.zeros_like(x)
    entries = size(ops, x)
    rms = ops.norm(x) / entries**0.5
    return State(
        x=x, y=y, v=ops.zeros_like(y), value=zero, hypergrad=nothing, direction=nothing,
        slope=zero, memory=lbfgs.empty(ops, x),
        length=direction.FIRST_LENGTH * entries**0.5 * ops.where(rms > 0, rms, zero + 1),
        model=curvature.start(o, y),
        first_norm=zero, first_value=zero, earlier=zero,
        marks=((zero, zero_count), (zero, zero_count)),
        held_out=zero, gained=zero,
        steps=zero_count, failures=zero_count, idle=zero_count,
    )  # fmt: skip


def on_new_rows(o: Oracles, state: State) -> State:
    """The state for going on with other rows: the next step stays where it is and evaluates.

    What BFGS has learned on a sample misleads it on others, so that is forgotten.
    """
    zero_count, memory = o.ops.counter(0), lbfgs.empty(o.ops, state.x)
    return state._replace(
        memory=memory, model=curvature.on_new_rows(o.ops, state.model),
        steps=zero_count, failures=zero_count, idle=zero_count,
        earlier=state.earlier + state.first_value - state.value,
    )  # fmt: skip


def step(o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
    """Move x along the direction found before, and find the next."""
    ops = o.ops
    most = min(MOST_LINEAR_STEPS, 2 * size(ops, state.y) + 10)
    keeper = Keeper(o, state.x, state.y, batch.inner, batch.data.pilot, most)
    trial = trials.search(o, state, batch, keeper, most)
    x, y = ops.axpy(trial.size, state.direction, state.x), trial.y
    here = _evaluate(o, batch, trial, x)
    ahead = _look_ahead(o, state, trial, here, x)
    judged = judgement.of(o, state, batch, trial, here, ahead, x)
    info = Info(
        outer=trial.outer.value,
        inner_grad_norm=ops.norm(trial.inner_grad),
        residual_norm=trial.solved.residual_norm,
        hypergrad_norm=ahead.norm,
        step_x=ahead.step_size,
        step_y=1.0,
        step_v=1.0,
        measure=here.value + here.error,
        measure_error=here.error,
        inner_steps=trial.newton_steps,
        linear_steps=trial.solved.steps,
        indefinite=ops.maximum(trial.solved.indefinite, trial.indefinite),
        verdict=judged.verdict,
        counts=Counts(
            outer_grad=trial.tries,
            inner_grad=trial.gradients + _is_on_trial(batch),
            hvp=trial.products + trial.solved.products,
            cross=1 + _is_on_trial(batch),
        ),
    )
    # Where rows outside the sample say that the step was too much, it is taken back.
    too_much = judged.over & (judged.held_out > state.held_out)
    x, y = ops.where(too_much, (state.x, state.y), (x, y))
    following = State(
        x=x, y=y, v=trial.solved.v, value=here.value, hypergrad=here.hypergrad,
        direction=ahead.direction, slope=ahead.slope, memory=ahead.memory, length=ahead.length,
        model=trial.solved.model,
        first_norm=judged.first_norm, first_value=judged.first_value, earlier=state.earlier,
        marks=judged.marks,
        held_out=judged.held_out, gained=judged.gained,
        steps=state.steps + 1, failures=judged.failures, idle=judged.idle,
    )  # fmt: skip
    return ops.cast(following, state), info


class Evaluation(NamedTuple):
    """Phi~ and the hypergradient where a step ended."""

    hypergrad: Tree
    on_sample: Tree  # the hypergradient with J on the sample's own rows
    value: Scalar  # Phi~
    error: Scalar  # of f, by the error of y
    sample_error: Scalar  # what a sample on trial gets wrong in Phi~


def _is_on_trial(batch: Batch) -> bool:
    return batch.data.whole is not None


def _evaluate(o: Oracles, batch: Batch, trial: trials.Trial, x: Tree) -> Evaluation:
    """h = grad_x f - J v, and Phi~ = f - <v, grad_y g>."""
    ops, y, v, f = o.ops, trial.y, trial.solved.v, trial.outer
    linear = o.linear(x, y, batch.inner)
    on_sample = hypergrad = ops.sub(f.grad_x, linear.cross(v))
    sample_error = ops.scalar(0.0, y)
    if _is_on_trial(batch):
        hypergrad = ops.sub(f.grad_x, o.linear(x, y, batch.data.whole).cross(v))
        sample_error = ops.dot(v, o.inner_grad(x, y, batch.data.unseen))
    correction = ops.dot(v, trial.inner_grad)
    value, error = f.value - correction, ops.maximum(correction, -correction)
    return Evaluation(hypergrad, on_sample, value, error, sample_error)


class Ahead(NamedTuple):
    """Where the next step goes."""

    memory: lbfgs.Pairs
    length: Scalar  # of the last step of x
    direction: Tree  # p
    norm: Scalar  # zero at a stationary point
    step_size: Scalar
    slope: Scalar  # of Phi~ along p


def _look_ahead(o: Oracles, state: State, trial: trials.Trial, here: Evaluation, x: Tree) -> Ahead:
    """p = -B h, from what the last step taught about Phi."""
    ops = o.ops
    first, moved, failed = state.steps == 0, trial.accepted > 0, trial.accepted == 0
    step_of_x, change = ops.sub(x, state.x), ops.sub(here.hypergrad, state.hypergrad)
    memory = lbfgs.remember(ops, state.memory, step_of_x, change, moved & (state.steps > 0))
    # A model that leads nowhere is forgotten, and the next step is short and down the slope.
    memory = ops.cond(failed, lambda: lbfgs.empty(ops, x), lambda: memory)
    went = trial.size * ops.norm(state.direction)
    # Where Phi has only bent downwards so far, no model says how far to go: farther than this.
    bent_down = (memory.count == 0) & (ops.dot(step_of_x, change) < 0)
    farther = ops.where(bent_down, trials.GROWTH * went, went)
    first_length = direction.first_length(ops, state.length, trial.outer.value, here.hypergrad)
    length = ops.where(first, first_length, farther)
    length = ops.where(moved, length, 0.01 * state.length)
    p, norm, step_size = direction.of(o, memory, x, here.hypergrad, length)
    return Ahead(memory, length, p, norm, step_size, ops.dot(here.on_sample, p))
