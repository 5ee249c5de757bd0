"""`auto` on minibatches: one gradient step on y, v and x together, each as long as it has come far.

With all gradients taken at (x_t, y_t, v_t) on the step's rows, as in SOBA,

    y <- y - beta_t grad_y g,                 beta_t  = D_y / sqrt(sum of |grad_y g|^2)
    v <- v - beta_t ((grad_yy g) v - grad_y f)
    x <- x - alpha_t h,                       alpha_t = c D_x / sqrt(sum of |h|^2)

where D is the largest distance from the start so far (Ivgi, Hinder and Carmon, "DoG is SGD's best
friend"). v takes the step of y, since both are governed by the same Hessian. h says nothing
before y and v have come some way, so x waits for WARM_UP steps.

Distance over gradient knows nothing of y and v lagging behind x, and where they lag too much the
three drive each other away. That shows at once: a gradient's square outweighs the sum of all
before it. Then the run goes back to where it was at least WARM_UP steps ago, and c, which
starts at 1, is divided by 4. So c becomes as small as it must and no smaller.

Multiplying f or g by a constant changes nothing: each step size has the units it needs.
"""

from __future__ import annotations

from typing import NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x, size

WARM_UP = 100  # steps
MANY = 20  # terms of a sum after which a single one should not outweigh it
FIRST_DISTANCE = (1e-3, 1e-4)  # of x and y, relative to their size (or to 1, if that is more)
CUT = 4.0
MEMORY = 0.01  # weight of the newest batch in the running estimate of f


class Core(NamedTuple):
    """What a step changes, and what is restored after a bad one."""

    x: Tree
    y: Tree
    v: Tree
    distance_x: Scalar
    distance_y: Scalar
    squares_x: Scalar
    squares_y: Scalar
    squares_v: Scalar
    t: Scalar


class State(NamedTuple):
    """x, y and v, two places to go back to, and a running estimate of f."""

    x: Tree
    y: Tree
    v: Tree
    core: Core
    newer: Core
    older: Core
    x_start: Tree
    y_start: Tree
    cut: Scalar  # c
    mean: Scalar  # of f over the latest batches
    spread: Scalar  # its variance over them
    seen: Scalar  # batches


def init(o: Oracles, x: Tree, y: Tree) -> State:
    """Start at (x, y) with v = 0."""
    ops = o.ops
    zero, zero_count, v = ops.scalar(0.0, y), ops.counter(0), ops.zeros_like(y)
    far_x, far_y = (
        part * ops.maximum(ops.norm(tree), zero + size(ops, tree) ** 0.5)
        for part, tree in zip(FIRST_DISTANCE, (x, y), strict=True)
    )
    core = Core(x, y, v, far_x, far_y, zero, zero, zero, zero_count)
    return State(x, y, v, core, core, core, x, y, zero + 1, zero, zero, zero_count)


def step(o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
    """One step of all three, or back to an earlier place."""
    ops, core = o.ops, state.core
    x, y, v, t = core.x, core.y, core.v, core.t
    f = o.outer(x, y, batch.outer)
    g = o.inner(x, y, v, batch.inner)
    residual = ops.sub(g.hvp, f.grad_y)
    hypergrad = ops.sub(f.grad_x, g.cross)
    g_norm, r_norm, h_norm = ops.norm(g.grad), ops.norm(residual), ops.norm(hypergrad)

    # Products and no powers, of which Python's floats make an error where they overflow.
    squares_x = ops.where(t < WARM_UP, core.squares_x, core.squares_x + h_norm * h_norm)
    squares_y = core.squares_y + g_norm * g_norm
    squares_v = core.squares_v + r_norm * r_norm
    far_x = _larger(o, core.distance_x, ops.norm(ops.sub(x, state.x_start)))
    far_y = _larger(o, core.distance_y, ops.norm(ops.sub(y, state.y_start)))
    beta = _ratio(o, far_y, squares_y)
    alpha = state.cut * _ratio(o, far_x, squares_x)
    moved, h_norm = descend_x(o, alpha, hypergrad, h_norm, x)
    new = Core(
        moved, ops.axpy(-beta, g.grad, y), ops.axpy(-beta, residual, v),
        far_x, far_y, squares_x, squares_y, squares_v, t + 1,
    )  # fmt: skip

    # A sum that more than doubles in one step, once it is of many, is a run driven away.
    calm_y = (squares_y <= 2 * core.squares_y) & (squares_v <= 2 * core.squares_v)
    calm_x = (squares_x <= 2 * core.squares_x) | (t < WARM_UP + MANY)
    driven_away = (t >= MANY) & ops.where(calm_x & calm_y, False, True)
    new = ops.where(driven_away, state.older, new)
    due = t % WARM_UP == 0
    newer = ops.where(driven_away, state.older, ops.where(due, core, state.newer))
    older = ops.where(due & ops.logical_not(driven_away), state.newer, state.older)

    weight = ops.maximum(1 / (state.seen + 1.0), MEMORY)
    shift = f.value - state.mean
    mean = state.mean + weight * shift
    spread = (1 - weight) * (state.spread + weight * shift * shift)
    # What is taken back is not reported either: it may not even be finite.
    steps = ops.where(t > 0, t, 1)
    usual = (
        state.mean,
        *((total / steps) ** 0.5 for total in (core.squares_y, core.squares_v, core.squares_x)),
    )
    outer, g_norm, r_norm, h_norm = ops.where(driven_away, usual, (f.value, g_norm, r_norm, h_norm))
    mean, spread = ops.where(driven_away, (state.mean, state.spread), (mean, spread))
    info = Info(
        outer=outer,
        inner_grad_norm=g_norm,
        residual_norm=r_norm,
        hypergrad_norm=h_norm,
        step_x=alpha,
        step_y=beta,
        step_v=beta,
        measure=mean,
        measure_error=(spread * weight / (2 - weight)) ** 0.5,
        inner_steps=1,
        linear_steps=1,
        counts=Counts(1, 1, 1, 1),
    )
    following = State(
        new.x, new.y, new.v, new, newer, older, state.x_start, state.y_start,
        ops.where(driven_away, state.cut / CUT, state.cut), mean, spread, state.seen + 1,
    )  # fmt: skip
    return ops.cast(following, state), info


def _larger(o: Oracles, a: Scalar, b: Scalar) -> Scalar:
    return o.ops.where(b > a, b, a)


def _ratio(o: Oracles, distance: Scalar, squares: Scalar) -> Scalar:
    """distance / sqrt(squares), and 0 before there was a gradient."""
    has = squares > 0
    return o.ops.where(has, distance / o.ops.where(has, squares, 1.0) ** 0.5, 0.0)
