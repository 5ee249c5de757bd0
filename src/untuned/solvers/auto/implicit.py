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
ending.py says when a run is over. All of it is plain Python on the oracles: JAX, torch or NumPy
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
"""

from __future__ import annotations

from typing import Any, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Ops, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.auto import ending, line_search
from untuned.solvers.auto.ending import Progress
from untuned.solvers.auto.line_search import GROWTH, Point
from untuned.solvers.base import Info
from untuned.solvers.numerics import hessian_model, lbfgs
from untuned.solvers.numerics.hessian_model import Model, Renewal

MOST_LINEAR_STEPS = 1000
FIRST_LENGTH = 0.1  # of x's size
MOST_MASKS = 10  # of free entries that are tried
KEPT = 0.1  # share of the descent that must be left where bounds stop entries
SHORTER = 0.01  # of the last step, after a search that failed


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
        model=hessian_model.start(o, y), progress=Progress(), steps=0,
    )  # fmt: skip


def step(o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
    """Move x along the direction found before, and find the next."""
    ops = o.ops
    most = min(MOST_LINEAR_STEPS, 2 * ops.size(state.y) + 10)
    renewal = Renewal(o, state.x, state.y, batch.inner, batch.data.sample, most)
    at = line_search.search(o, state, batch, renewal, most)
    hypergrad = ops.sub(at.outer.grad_x, o.linear(at.x, at.y, batch.inner).cross(at.v))
    ahead = _next(o, state, at, hypergrad)
    verdict, progress = ending.after(state, at, ahead, ops.epsilon(state.y))
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
        counts=Counts(at.tries, at.work.gradients, at.work.products, 1),
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
    p, norm, step_size = _direction(o, memory, at.x, hypergrad, length)
    return Next(memory, length, p, norm, step_size, ops.dot(hypergrad, p))


def _direction(
    o: Oracles, memory: lbfgs.Pairs, x: Tree, hypergrad: Tree, length: float
) -> tuple[Tree, float, float]:
    """The direction p, the norm that is zero at a stationary point, and a step size to report."""
    ops, norm, known = o.ops, o.ops.norm(hypergrad), lbfgs.pairs(o.ops, memory)
    along = lbfgs.scale(ops, known[-1]) if known else length / (norm if norm > 0 else 1.0)
    project: Any = o.project
    if project is not None:
        p = _spectral(ops, project, x, hypergrad, along)
        if not known:  # entries that a bound holds are no part of the length
            free = ops.norm(ops.tree_map(lambda h, move: h * (move != 0), hypergrad, p))
            along = length / free if free > 0 else along
            p = _spectral(ops, project, x, hypergrad, along)
        norm = ops.norm(p) / along
        if known and _has_bounds(ops, project, x, hypergrad, along):
            p = _inside(ops, project, known, x, hypergrad, p)
        return p, norm, along
    if known:
        return lbfgs.direction(ops, known, hypergrad), norm, along
    return ops.tree_map(lambda leaf: -along * leaf, hypergrad), norm, along


def _spectral(ops: Ops, project: Any, x: Tree, hypergrad: Tree, along: float) -> Tree:
    """p of the spectral projected gradient (Birgin, Martinez and Raydan), which suits any set."""
    return ops.sub(project(ops.axpy(-along, hypergrad, x)), x)


def _has_bounds(ops: Ops, project: Any, x: Tree, hypergrad: Tree, along: float) -> bool:
    """Whether the set of x looks like one of bounds for each entry, by two projected points.

    There an entry goes as far as it is asked to, or to a bound and no farther.
    """
    near, far = (ops.axpy(-part * along, hypergrad, x) for part in (1.0, 2.0))
    at, farther = project(near), project(far)
    other = ops.tree_map(lambda a, b, c: (a != b) * (b != c) * 1.0, near, at, farther)
    return bool(ops.norm(other) == 0)


def _inside(
    ops: Ops, project: Any, known: list[lbfgs.Pair], x: Tree, hypergrad: Tree, spectral: Tree
) -> Tree:
    """p of BFGS for entries that are free of their bounds, and `spectral` for the others.

    That leaves entries where they are that a bound holds. Entries that BFGS takes beyond a bound
    stop there; where that costs most of the descent, they are not free either.
    """
    mask = ops.tree_map(lambda move: (move != 0) * 1.0, spectral)
    for _ in range(MOST_MASKS):
        free = lbfgs.restricted(ops, known, mask)
        if not free:
            break
        slopes = ops.tree_map(lambda h, one: h * one, hypergrad, mask)
        wanted = lbfgs.direction(ops, free, slopes, lbfgs.sizes(ops, free))
        aim = ops.axpy(1.0, wanted, x)
        at = project(aim)
        moved = ops.sub(at, x)
        if ops.dot(slopes, moved) <= KEPT * ops.dot(slopes, wanted):
            return ops.tree_map(lambda a, b, one: one * a + (1 - one) * b, moved, spectral, mask)
        mask = ops.tree_map(lambda one, a, b: one * (a == b), mask, aim, at)
    return spectral


def _first_length(longest: float, f: float, norm: float) -> float:
    """No farther than to where the slope promises a tenth of |f|, whatever the unit of x."""
    promising = FIRST_LENGTH * abs(f) / (norm if norm > 0 else 1.0)
    return promising if 0 < promising < longest else longest
