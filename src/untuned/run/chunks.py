"""A chunk of steps as one function: what JAX compiles once and torch runs as a loop."""

from __future__ import annotations

from collections.abc import Callable

from untuned.data.batches import Data, Feed, gather
from untuned.ops import Scalar
from untuned.problem.build import Problem
from untuned.problem.derivatives import Counts
from untuned.run import stopping
from untuned.run.state import Best, Carry, at_chunk_start, undone
from untuned.solvers.base import Solver


def make(problem: Problem, solver: Solver, tol: float | None) -> Callable:
    """The function (carry, data, feed, count) -> carry that makes up to `count` steps.

    It ends before `count` where a step converges, stalls or is not finite, so where a run ends does
    not depend on how its steps are cut into chunks. A step that a limit of time has cut is undone.
    """
    ops, o = problem.ops, problem.oracles
    draws = (solver.inner_draws, solver.outer_draws)

    def chunk(carry: Carry, data: Data, feed: Feed, count: Scalar) -> Carry:
        def going(carry: Carry) -> Scalar:
            return (carry.steps < count) & (carry.halt == stopping.GO_ON)

        def body(carry: Carry) -> Carry:
            batch = gather(ops, data, feed, carry.steps, carry.drawn, draws)
            state, info = solver.step(o, carry.state, batch)
            if ops.was_cut() is True:
                return undone(ops, carry, state)
            info = ops.cast(info, carry.info)
            reference = stopping.update(ops, carry.reference, info)
            finite = stopping.is_finite(ops, info)
            # Who names a tolerance wants that, be it worth the while or not.
            enough = stopping.CONVERGED if tol is None else stopping.GO_ON
            halt = ops.where(info.verdict == stopping.ENOUGH, enough, info.verdict)
            unchanged = carry.unchanged
            if problem.full_batch:  # other rows may move what these rows do not
                before, after = ((s.x, s.y, s.v) for s in (carry.state, state))
                unchanged = ops.where(ops.equal(before, after), unchanged + 1, ops.counter(0))
                halt = ops.where(unchanged >= stopping.STALL_STEPS, stopping.STALLED, halt)
            if tol is not None:
                converged = stopping.is_converged(info, reference, tol, solver.loops)
                halt = ops.where(converged, stopping.CONVERGED, halt)
            halt = ops.where(finite, halt, stopping.DIVERGED)
            better = finite & (info.measure <= carry.best.measure)
            if not stopping.answers_for_y(solver):
                better = better & stopping.inner_is_solved(info, reference)
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

        return ops.while_loop(going, body, at_chunk_start(ops, carry))

    return chunk
