"""The state of a run: what its steps carry, the totals on the host, and how a file holds both.

`Carry` goes through compiled code from one step to the next. `Position` is a carry with the totals
that the host keeps. All changes to either outside of a step are functions of this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from untuned.ops import Ops, Scalar, Tree
from untuned.problem.build import Problem
from untuned.problem.derivatives import Counts
from untuned.run import stopping
from untuned.run.result import COLUMNS
from untuned.solvers.base import Info, Solver


class Best(NamedTuple):
    """The point with the smallest measure so far: x_t, and the y and v measured with it."""

    measure: Scalar
    x: Tree
    y: Tree
    v: Tree


class Carry(NamedTuple):
    """All that goes from one step to the next, and so all a checkpoint must hold."""

    state: Any
    best: Best
    reference: stopping.Reference
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
    stage: int = 0


def first(problem: Problem, solver: Solver, x: Tree, y: Tree) -> Carry:
    """The carry before the first step, from (x, y)."""
    ops = problem.ops
    state = solver.init(problem.oracles, x, y)
    zero, zero_count = ops.scalar(0.0, y), ops.counter(0)
    return Carry(
        state=state,
        best=Best(ops.scalar(float("inf"), y), state.x, state.y, state.v),
        reference=stopping.Reference(zero, zero, zero),
        info=ops.tree_map(lambda default: zero_count if type(default) is int else zero, Info()),
        halt=zero_count,
        unchanged=zero_count,
        **_nothing_yet(ops),
    )


def at_chunk_start(ops: Ops, carry: Carry) -> Carry:
    """The carry with the counters of a chunk at zero."""
    return carry._replace(**_nothing_yet(ops))


def undone(ops: Ops, carry: Carry, state: Any) -> Carry:
    """The carry from before a step that was cut and left off at `state`.

    Only of the very first step y and v are kept, as far as they were solved for: x has not moved,
    so they belong there, and a run that is resumed does not solve for them from the beginning.
    """
    at = carry.state
    is_first = carry.reference.hypergrad_norm == 0
    if is_first and ops.equal(at.x, state.x) and ops.isfinite(ops.norm((state.y, state.v))):
        at = at._replace(y=state.y, v=state.v)
    return carry._replace(state=at, halt=stopping.CUT)


def _nothing_yet(ops: Ops) -> dict[str, Any]:
    zero = ops.counter(0)
    return {
        "steps": zero, "capped": zero, "indefinite": zero, "drawn": (zero, zero),
        "counts": Counts(zero, zero, zero, zero),
    }  # fmt: skip


def after_chunk(now: Position, carry: Carry) -> Position:
    """Where a run is after a chunk of steps that ended with `carry`."""
    return Position(
        carry,
        now.steps + int(carry.steps),
        now.cap_hits + int(carry.capped),
        now.indefinite + int(carry.indefinite),
        (now.drawn[0] + int(carry.drawn[0]), now.drawn[1] + int(carry.drawn[1])),
        Counts(*(a + int(b) for a, b in zip(now.counts, carry.counts, strict=True))),
        now.stage,
    )


def on_new_rows(problem: Problem, solver: Solver, carry: Carry) -> Carry:
    """The carry for going on with other rows."""
    ops = problem.ops
    return carry._replace(
        state=solver.on_new_rows(problem.oracles, carry.state),
        # Values on other rows do not compare.
        best=carry.best._replace(measure=ops.scalar(math.inf, problem.y0)),
        halt=ops.counter(stopping.GO_ON),
        unchanged=ops.counter(0),
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


def arrays_of(ops: Ops, carry: Carry) -> dict[str, np.ndarray]:
    """The carry as arrays by name, for a file; all processes of a run call this together."""
    return dict(zip(ops.paths(carry), ops.to_host(carry), strict=True))


def carry_of(ops: Ops, arrays: Mapping[str, np.ndarray], like: Carry) -> Carry:
    """The carry that `arrays_of` turned into `arrays`, laid out like another one."""
    return ops.from_host([arrays[path] for path in ops.paths(like)], like)


def totals_of(now: Position) -> dict[str, Any]:
    """The totals of a position, for a file."""
    return {
        "steps": now.steps,
        "cap_hits": now.cap_hits,
        "indefinite": now.indefinite,
        "drawn": list(now.drawn),
        "counts": now.counts._asdict(),
        "stage": now.stage,
    }


def position_of(carry: Carry, totals: Mapping[str, Any]) -> Position:
    """The position that `totals_of` turned into `totals`."""
    inner, outer = totals["drawn"]
    return Position(
        carry, totals["steps"], totals["cap_hits"], totals["indefinite"], (inner, outer),
        Counts(**totals["counts"]), totals["stage"],
    )  # fmt: skip
