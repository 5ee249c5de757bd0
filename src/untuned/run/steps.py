"""The steps of a run: what they carry, when they end, and a chunk of them as one function.

JAX compiles a chunk once, and torch and NumPy run it as a loop. What ends a run is the same inside
and outside of compiled code: the predicates of this file, on what a step reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from untuned.data.batches import Data, Feed, gather
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.build import Problem
from untuned.problem.derivatives import Counts
from untuned.run.result import COLUMNS
from untuned.solvers.base import CONVERGED, CUT, DIVERGED, ENOUGH, GO_ON, STALLED, Info, Solver

LONGEST_CHUNK = 1024  # batches: bounds the memory of a chunk's row indices
SOLVED = 0.1  # share of the largest inner gradient norm seen
STALL_STEPS = 100  # steps in a row that change no bit of x, y and v; every later one is as short


class Best(NamedTuple):
    """The point with the smallest measure so far: x_t, and the y and v measured with it."""

    measure: Scalar
    x: Tree
    y: Tree
    v: Tree


class Reference(NamedTuple):
    """What norms are compared with: the first hypergradient, the largest of the others."""

    hypergrad_norm: Scalar = 0.0
    inner_grad_norm: Scalar = 0.0
    residual_norm: Scalar = 0.0


class Carry(NamedTuple):
    """All that goes from one step to the next, and so all that a checkpoint must hold."""

    state: Any
    best: Best
    reference: Reference
    info: Info
    halt: Scalar
    unchanged: Scalar  # steps in a row that moved nothing
    # Of this chunk alone; the host adds them up, so that no counter can overflow.
    steps: Scalar
    capped: Scalar
    indefinite: Scalar
    drawn: tuple[Scalar, Scalar]  # batches of inner and outer data
    counts: Counts


class Position(NamedTuple):
    """Where a run is: what its steps carry, and the totals kept on the host."""

    carry: Carry
    steps: int = 0
    cap_hits: int = 0
    indefinite: int = 0  # steps in which g was seen not to be convex in y
    drawn: tuple[int, int] = (0, 0)  # batches of inner and outer data so far
    counts: Counts = Counts()


def first(problem: Problem, solver: Solver, x: Tree, y: Tree) -> Carry:
    """The carry before the first step, from (x, y)."""
    ops = problem.ops
    state = ops.in_order(solver.init(problem.oracles, x, y))
    zero, zero_count = ops.scalar(0.0, y), ops.counter(0)
    return Carry(
        state=state,
        best=Best(ops.scalar(float("inf"), y), state.x, state.y, state.v),
        reference=Reference(zero, zero, zero),
        info=ops.tree_map(lambda default: zero_count if type(default) is int else zero, Info()),
        halt=zero_count,
        unchanged=zero_count,
        **_nothing_yet(ops),
    )


def chunk(problem: Problem, solver: Solver, tol: float | None) -> Callable:
    """The function (carry, data, feed, count) -> carry that makes up to `count` steps.

    It ends before `count` where a step converges, stalls or is not finite, so where a run ends does
    not depend on how its steps are cut into chunks. A step that a limit of time has cut is undone.
    """
    ops, o = problem.ops, problem.oracles
    draws = (solver.inner_draws, solver.outer_draws)

    def many(carry: Carry, data: Data, feed: Feed, count: Scalar) -> Carry:
        def going(carry: Carry) -> Scalar:
            return (carry.steps < count) & (carry.halt == GO_ON)

        def body(carry: Carry) -> Carry:
            batch = gather(ops, data, feed, carry.steps, carry.drawn, draws)
            state, info = solver.step(o, carry.state, batch)
            state = ops.in_order(state)
            if ops.was_cut() is True:
                return _undone(ops, carry, state)
            info = ops.cast(info, carry.info)
            reference = _updated(ops, carry.reference, info)
            finite = _is_finite(ops, info)
            # Who names a tolerance wants that, be it worth the while or not.
            enough = CONVERGED if tol is None else GO_ON
            halt = ops.where(info.verdict == ENOUGH, enough, info.verdict)
            unchanged = carry.unchanged
            if problem.full_batch:  # other rows may move what these rows do not
                before, after = ((s.x, s.y, s.v) for s in (carry.state, state))
                unchanged = ops.where(ops.equal(before, after), unchanged + 1, ops.counter(0))
                halt = ops.where(unchanged >= STALL_STEPS, STALLED, halt)
            if tol is not None:
                converged = is_converged(info, reference, tol, solver)
                halt = ops.where(converged, CONVERGED, halt)
            halt = ops.where(finite, halt, DIVERGED)
            better = finite & (info.measure <= carry.best.measure)
            if not _answers_for_y(solver):
                better = better & _inner_is_solved(info, reference)
            candidate = Best(info.measure, *solver.measured_at(carry.state, state))
            return Carry(
                state=state,
                best=ops.where(better, candidate, carry.best),
                reference=reference,
                info=info,
                halt=ops.cast(halt, carry.halt),
                unchanged=unchanged,
                steps=carry.steps + 1,
                capped=carry.capped + info.capped,
                indefinite=carry.indefinite + info.indefinite,
                drawn=(carry.drawn[0] + info.inner_drawn, carry.drawn[1] + info.outer_drawn),
                counts=Counts(*(a + b for a, b in zip(carry.counts, info.counts, strict=True))),
            )

        return ops.while_loop(going, body, carry._replace(**_nothing_yet(ops)))

    return many


def after_chunk(now: Position, carry: Carry) -> Position:
    """Where a run is after a chunk of steps that ended with `carry`."""
    return Position(
        carry,
        now.steps + int(carry.steps),
        now.cap_hits + int(carry.capped),
        now.indefinite + int(carry.indefinite),
        (now.drawn[0] + int(carry.drawn[0]), now.drawn[1] + int(carry.drawn[1])),
        Counts(*(a + int(b) for a, b in zip(now.counts, carry.counts, strict=True))),
    )


def with_halt(problem: Problem, now: Position, code: int, **changes: Any) -> Position:
    """The same position, told to end (or to go on) by the host."""
    halt = problem.ops.place_like(problem.ops.counter(code), problem.y0)
    return now._replace(carry=now.carry._replace(halt=halt, **changes))


def record_of(now: Position, seconds: float) -> dict[str, Any]:
    """What the history says of a position."""
    info = {
        name: value.item() if hasattr(value, "item") else value
        for name, value in now.carry.info._asdict().items()
        if name in COLUMNS
    }
    totals = {"cap_hits": now.cap_hits, "indefinite": now.indefinite} | now.counts._asdict()
    return {"step": now.steps, "seconds": seconds} | info | totals


def is_converged(info: Info, reference: Reference, tol: float, solver: Solver) -> Scalar:
    """Whether the hypergradient norm is at most tol times its first value, and can be trusted.

    A method whose loop on y ends by a test answers for y and v itself, unless the loop hit its
    cap. After a fixed number of steps the gradient in y must have fallen, by the same factor unless
    what it leaves open of f is small beside f. In a single-loop method
    the hypergradient can be small by accident while y and v are still far off, so their norms must
    have come down by the same factor from their largest.
    """
    small = (info.hypergrad_norm <= tol * reference.hypergrad_norm) & (info.capped == 0)
    if solver.loops == "double":
        if _answers_for_y(solver):
            return small
        fallen = info.inner_grad_norm <= tol * reference.inner_grad_norm
        exact = info.measure_error <= tol * abs(info.outer)
        return small & _inner_is_solved(info, reference) & (fallen | exact)
    return (
        small
        & (info.inner_grad_norm <= tol * reference.inner_grad_norm)
        & (info.residual_norm <= tol * reference.residual_norm)
    )


def _undone(ops: Ops, carry: Carry, state: Any) -> Carry:
    """The carry from before a step that was cut and left off at `state`.

    Only of the very first step y and v are kept, as far as they were solved for: x has not moved,
    so they belong there, and a run that is resumed does not solve for them from the beginning.
    """
    at = carry.state
    is_first = carry.reference.hypergrad_norm == 0
    if is_first and ops.equal(at.x, state.x) and ops.isfinite(ops.norm((state.y, state.v))):
        at = at._replace(y=state.y, v=state.v)
    return carry._replace(state=at, halt=CUT)


def _nothing_yet(ops: Ops) -> dict[str, Any]:
    """The counters of a chunk at zero."""
    zero = ops.counter(0)
    return {
        "steps": zero, "capped": zero, "indefinite": zero, "drawn": (zero, zero),
        "counts": Counts(zero, zero, zero, zero),
    }  # fmt: skip


def _updated(ops: Ops, reference: Reference, info: Info) -> Reference:
    """Take one step's norms in. A hypergradient of zero is no reference: v starts at zero."""
    first = ops.where(reference.hypergrad_norm > 0, reference.hypergrad_norm, info.hypergrad_norm)
    largest = (
        ops.where(new > old, new, old)
        for new, old in (
            (info.inner_grad_norm, reference.inner_grad_norm),
            (info.residual_norm, reference.residual_norm),
        )
    )
    return Reference(first, *largest)


def _is_finite(ops: Ops, info: Info) -> Scalar:
    """Whether f and all three norms are numbers."""
    return (
        ops.isfinite(info.outer)
        & ops.isfinite(info.inner_grad_norm)
        & ops.isfinite(info.residual_norm)
        & ops.isfinite(info.hypergrad_norm)
    )


def _answers_for_y(solver: Solver) -> bool:
    """Whether a method vouches for the y of its `measure`, and no look at its gradient is needed.

    That is so where its inner loop ends by a test, and where the measure is a mean over many steps.
    A number of steps on y that nothing tests may be far too few.
    """
    return solver.loops == "double" and (solver.averages or solver.tests_inner)


def _inner_is_solved(info: Info, reference: Reference) -> Scalar:
    """Whether y is near a solution: before it is, f(x, y) says nothing about f(x, y*(x))."""
    return info.inner_grad_norm <= SOLVED * reference.inner_grad_norm
