"""Why a run is over, and what it gives back."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.problem.build import Problem
from untuned.run import messages, stopping
from untuned.run.result import History, Result, Status
from untuned.run.state import Position, record_of
from untuned.solvers.base import Solver


def status(
    problem: Problem, solver: Solver, limits: dict[str, Any], now: Position, late: bool
) -> Status | None:
    """Why the run is over, or None; `late` says whether its time is up."""
    carry, steps, cap_hits = now[:3]
    halt = int(carry.halt)
    if halt == stopping.STALLED:
        # At rest because the hypergradient is zero but for rounding: that is the goal.
        rounding = 100 * float(np.finfo(problem.dtype).eps)
        at_rest = stopping.is_converged(carry.info, carry.reference, rounding, solver.loops)
        return "converged" if at_rest else "stalled"
    if halt != stopping.GO_ON:
        return "diverged" if halt == stopping.DIVERGED else "converged"
    over: Status | None = None
    if steps >= limits["max_steps"]:
        over = "max_steps"
    elif late:
        over = "max_seconds"
    return "cap_hit" if over and stopping.keeps_hitting_cap(cap_hits, steps) else over


def result(
    problem: Problem, solver: Solver, limits: dict[str, Any], now: Position, history: History,
    status: Status, seconds: float, compile_seconds: float, bad_inner_value: float,
) -> Result:  # fmt: skip
    """What the user gets: the best point, and why the run ended."""
    carry = now.carry
    # A batch's own loss is no reason to prefer an earlier point; a divergence is.
    comparable = problem.full_batch or solver.averages
    worse = comparable and stopping.last_is_worse(carry.info, carry.best.measure)
    point = carry.best if worse or status == "diverged" else carry.state
    x, y, v, last = problem.outward((point.x, point.y, point.v, carry.state))
    first_norm = float(carry.reference.hypergrad_norm)
    record = record_of(now, seconds) | {"inner": bad_inner_value}
    message = messages.sentence(status, record, first_norm, limits, problem.dtype, solver)
    return Result(
        x=x,
        y=y,
        v=v,
        status=status,
        message=message + messages.of_compilation(seconds, compile_seconds),
        steps=now.steps,
        seconds=seconds,
        compile_seconds=compile_seconds,
        counts=now.counts._asdict(),
        history=history,
        state=last,
    )
