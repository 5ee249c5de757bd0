"""Why a run is over, what it gives back, and the sentence that says what to try."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from untuned.problem.build import Problem
from untuned.run.result import History, Result, Status
from untuned.run.steps import Position, is_converged, record_of
from untuned.solvers.base import CONVERGED, DIVERGED, GO_ON, STALLED, Solver

READ_MORE = "docs/methods.md says what the start values assume about scale"


def status(
    problem: Problem, solver: Solver, limits: dict[str, Any], now: Position, late: bool
) -> Status | None:
    """Why the run is over, or None; `late` says whether its time is up."""
    carry, steps, cap_hits = now[:3]
    halt = int(carry.halt)
    if halt == STALLED:
        # At rest because the hypergradient is zero but for rounding: that is the goal.
        rounding = 100 * float(np.finfo(problem.dtype).eps)
        at_rest = is_converged(carry.info, carry.reference, rounding, solver)
        return "converged" if at_rest else "stalled"
    if halt != GO_ON:
        return "diverged" if halt == DIVERGED else "converged"
    over: Status | None = None
    if steps >= limits["max_steps"]:
        over = "max_steps"
    elif late:
        over = "max_seconds"
    return "cap_hit" if over and 0 < steps <= 2 * cap_hits else over


def result(
    problem: Problem, solver: Solver, limits: dict[str, Any], now: Position, history: History,
    status: Status, seconds: float, compile_seconds: float, bad_inner_value: float,
) -> Result:  # fmt: skip
    """What the user gets: the best point, and why the run ended."""
    carry = now.carry
    # A batch's own loss is no reason to prefer an earlier point; a divergence is.
    comparable = problem.full_batch or solver.averages
    # Worse beyond what an inexact y explains.
    worst = carry.info.measure - 2 * carry.info.measure_error
    worse = comparable and bool(carry.best.measure < worst)
    point = carry.best if worse or status == "diverged" else carry.state
    x, y, v, last = problem.outward((point.x, point.y, point.v, carry.state))
    first_norm = float(carry.reference.hypergrad_norm)
    record = record_of(now, seconds) | {
        "inner": bad_inner_value, "capped": carry.info.capped, "verdict": int(carry.info.verdict)
    }  # fmt: skip
    message = sentence(status, record, first_norm, limits, problem.dtype, solver)
    return Result(
        x=x,
        y=y,
        v=v,
        status=status,
        message=message + of_compilation(seconds, compile_seconds),
        steps=now.steps,
        seconds=seconds,
        compile_seconds=compile_seconds,
        counts=now.counts._asdict(),
        history=history,
        state=last,
    )


def sentence(
    status: str, record: dict[str, Any], first_norm: float, limits: dict[str, Any], dtype: str,
    solver: Any,
) -> str:  # fmt: skip
    """The message of a status, from the last record and the limits the user set."""
    text = _what_happened(status, record, first_norm, limits, dtype, solver)
    # What is not finite has no curvature either, which says nothing of g.
    indefinite = record["indefinite"] - (status == "diverged")
    if indefinite > 0:
        text += (
            f" In {indefinite} of {_steps(record['step'])} g was flat or not convex in y in some "
            "directions, which were left out of v; untuned.check_problem says more."
        )
    return f"{text} {solver.remark}".rstrip()


def of_compilation(seconds: float, compile_seconds: float) -> str:
    """A sentence for who waited longer for the compiler than for the run; else nothing."""
    if compile_seconds < max(1.0, seconds):
        return ""
    return (
        f" Compiling took {compile_seconds:.1f} s and the run {seconds:.1f} s; docs/performance.md "
        "says how to compile less."
    )


def _what_happened(
    status: str, record: dict[str, Any], first_norm: float, limits: dict[str, Any], dtype: str,
    solver: Any,
) -> str:  # fmt: skip
    step, norm = record["step"], record["hypergrad_norm"]
    went = f"the hypergradient norm went from {first_norm:.3g} to {norm:.3g}"
    chooses_steps = not solver.to_tune and not solver.start_values
    if status == "converged":
        if norm == first_norm == 0.0:
            return (
                f"Converged after {_steps(step)}: the hypergradient is zero where x started, and x "
                "has stayed there. If x should matter there, check that g depends on x and on y, "
                "and f on y."
            )
        if limits["tol"] is not None and norm <= limits["tol"] * first_norm:
            why = f"which is tol={limits['tol']:g}"
        elif chooses_steps and record["verdict"] == CONVERGED:
            why = f"and {dtype} cannot hold a smaller gain of f"
        elif chooses_steps:
            why = "and no step promises a gain worth its while"
        else:
            why = "which is zero but for rounding"
        return f"Converged after {_steps(step)}: {went}, {why}."
    if status == "max_steps":
        return (
            f"Stopped at max_steps={limits['max_steps']}: {went}, with f at {record['outer']:.6g}. "
            f"Give more steps to go further{_if_too_short(solver, record['step_x'])}."
        )
    if status == "max_seconds" and step == 0:
        return (
            f"Stopped at {_limit(limits)} inside the first step: x has not "
            "moved yet, and y is nearer to its solution there. Give more time to go further."
        )
    if status == "max_seconds":
        stopped = f"Stopped after {_steps(step)} at {_limit(limits)}"
        return f"{stopped}: {went}. Give more time to go further."
    if status == "callback":
        return f"The callback stopped the run after {_steps(step)}: {went}."
    if status == "interrupted":
        return f"Ctrl-C ended the run after {_steps(step)}: {went}. x and y are what there is."
    if status == "stalled":
        if chooses_steps and record["capped"]:
            return f"Stalled after {_steps(step)}: {_unsolved(record)}"
        if chooses_steps:
            return (
                f"Stalled after {_steps(step)} at hypergradient norm {norm:.3g}: no step along the "
                f"direction found lowers f, however short. "
                + ("Try float64, or check" if dtype == "float32" else "Check")
                + " f and g with untuned.check_hypergradient."
            )
        return (
            f"Stalled after {_steps(step)} at hypergradient norm {norm:.3g}: x, y and v no longer "
            f"change in {dtype}, with step sizes {record['step_x']:.2g}, {record['step_y']:.2g}, "
            f"{record['step_v']:.2g}. Try "
            + ("float64, or " if dtype == "float32" else "")
            + _longer_steps(solver)
            + "."
        )
    if status == "cap_hit" and chooses_steps:
        return f"Ended after {_steps(step)}; in {record['cap_hits']} of them {_unsolved(record)}"
    if status == "cap_hit":
        return (
            f"Ended after {_steps(step)}, and in {record['cap_hits']} of them a sub-loop hit its "
            f"cap before reaching its accuracy: {went}, but less exactly than the method asks. "
            f"Raise cap, {'loosen c_y or c_v, ' * hasattr(solver, 'c_y')}or check the inner "
            "problem with untuned.check_problem."
        )
    return _divergence(record, solver)


def _unsolved(record: dict[str, Any]) -> str:
    return (
        f"y could not be solved for, and the gradient of g in y has norm "
        f"{record['inner_grad_norm']:.3g}. g may have no minimum in y there, or rounding hides it; "
        "untuned.check_problem says more."
    )


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _limit(limits: dict[str, Any]) -> str:
    seconds = limits["max_seconds"]
    return "the limit of the run around it" if seconds is None else f"max_seconds={seconds:g}"


def _if_too_short(solver: Any, step_x: float) -> str:
    if solver.start_values:
        first = solver.start_values[0]
        return f"; if step_x={step_x:.2g} is too short for your x, lower {first} ({READ_MORE})"
    if solver.to_tune:
        return f"; step_x={step_x:.2g} comes from {' and '.join(solver.to_tune)}, try others"
    return ""


def _longer_steps(solver: Any) -> str:
    if solver.start_values:
        return f"smaller {', '.join(solver.start_values)} ({READ_MORE})"
    return _others(solver)


def _others(solver: Any) -> str:
    return f"other values of {' and '.join(solver.to_tune)}"


def _divergence(record: dict[str, Any], solver: Any) -> str:
    # In this order: a bad gradient of g spoils y and with it all the others.
    names = {
        "inner_grad_norm": "the gradient of g in y",
        "outer": "the outer function f",
        "residual_norm": "the residual of the linear system for v",
        "hypergrad_norm": "the hypergradient",
    }
    # Where all of these are finite, it was the bare value of g.
    what, value = "the inner function g", record["inner"]
    for column, name in names.items():
        if not math.isfinite(record[column]):
            what, value = name, record[column]
            break
    if solver.start_values:
        values = ", ".join(solver.start_values)
        shorter = f", or raise {values}, which makes the first steps shorter"
    elif solver.first_steps:
        shorter = f", or try smaller {', '.join(solver.first_steps)}"
    else:
        shorter = f", or try {_others(solver)}" if solver.to_tune else ""
    return (
        f"Diverged at step {record['step']}: {what} became {value}. x, y and v are those "
        f"of the best step before it. Check f and g there with untuned.check_problem{shorter}."
    )
