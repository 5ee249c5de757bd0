"""The loop over the steps of a run that holds all rows and compiles nothing.

`minimize` here is for small exact problems: f and g bring their derivatives, and all is in NumPy.
`untuned.minimize` uses the same loop; loop.py adds compiled chunks, minibatches and checkpoints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from untuned import ops as array_libraries
from untuned import solvers
from untuned.data.batches import Data, Feed
from untuned.ops import ClosedForm, Tree
from untuned.problem.build import Problem
from untuned.problem.derivatives import Oracles
from untuned.run import ending, steps
from untuned.run.result import History, Result, Snapshot, Status
from untuned.solvers.base import CUT, DIVERGED, GO_ON, Solver
from untuned.util import threads, watch

NEVER: Callable[[], bool] = lambda: False
CHUNK_SECONDS = 0.2  # so that a bar is live and a time limit is kept


def minimize(
    outer: ClosedForm,
    inner: ClosedForm,
    x0: Tree,
    y0: Tree,
    *,
    method: str | Solver = "auto",
    max_steps: int = 1000,
    max_seconds: float | None = None,
    tol: float | None = None,
    seed: int = 0,
    callback: Callable[[Snapshot], Any] | None = None,
) -> Result:
    """`untuned.minimize` for f and g with derivatives of their own, of NumPy arrays and no data.

    The result is the same. Arguments are not checked: callers are our own estimators.
    """
    began = time.perf_counter()
    solver = solvers.get(method)() if isinstance(method, str) else method
    oracles = Oracles(array_libraries.get("numpy"), outer, inner)
    problem = Problem(oracles, x0, y0, Data(), (0, 0), (None, None), repr(None), True)
    solver = solver.for_run(problem.rows, problem.batch_sizes, max_steps)
    limits = {"max_steps": max_steps, "max_seconds": max_seconds, "tol": tol}
    with (
        problem.precision(),
        threads.limited_by_time(lambda: oracles.inner_grad(x0, y0, None)),
    ):
        solver = solver.for_problem(oracles, x0, y0, problem.sample)
        run = Run(problem, solver, limits, records_every(solver, max_steps), seed, began)
        return run.result(run.loop(callback))


def records_every(solver: Solver, max_steps: int) -> int:
    """Steps between records: one where steps are long, else so many that there are about 100."""
    return 1 if solver.cost.hvp is None else math.ceil(max_steps / 100)


class Run:
    """The mutable side of one run: where it is, what it has seen, what it cost.

    `began` is when the run was called, on the clock of `time.perf_counter`.
    """

    def __init__(
        self, problem: Problem, solver: Solver, limits: dict[str, Any], eval_every: int, seed: int,
        began: float,
    ):  # fmt: skip
        self.problem, self.solver, self.limits = problem, solver, limits
        self.eval_every, self.seed, self.began = eval_every, seed, began
        self.history = History(spacing=eval_every)
        self.seconds = 0.0
        self.set_up_seconds = 0.0
        self.deadline = math.inf  # on the clock `seconds`; nearer by what watching g takes
        self.step_seconds = 0.0  # of the last chunk
        self.was_cut = False  # whether the last step was, by a limit of time
        self.bad_inner_value = math.nan
        self.interrupted = NEVER
        self.around: watch.Watch | None = None  # of whoever calls `minimize`
        self.chunk = steps.chunk(problem, solver, limits["tol"])
        self.longest = steps.LONGEST_CHUNK
        self.now = self.start()
        self.sound = self.now  # the last position at which g was seen to be finite

    def start(self) -> steps.Position:
        """Where the run starts."""
        return steps.Position(
            steps.first(self.problem, self.solver, self.problem.x0, self.problem.y0)
        )

    @property
    def compile_seconds(self) -> float:
        """Seconds spent compiling and setting up."""
        return self.set_up_seconds + self.problem.ops.compile_seconds()

    def loop(
        self, callback: Callable | None, interrupted: Callable[[], bool] = NEVER, bar: Any = None
    ) -> Status:
        """Make steps until something ends the run; the status says what."""
        size = 1
        limit = self.limits["max_seconds"]
        if limit is not None:  # what was evaluated to set the run up is a part of its time
            self.deadline = self.seconds + limit - self.problem.max_over_processes(self._set_up())
        self.interrupted, self.around = interrupted, watch.present()
        self._watch_inner()
        while (status := self._status()) is None:
            if self.problem.max_over_processes(float(interrupted())):
                status = "interrupted"
                break
            to_record = self.eval_every - self.now.steps % self.eval_every
            left = self.limits["max_steps"] - self.now.steps
            before = self.now.steps
            taken = self.advance(min(size, to_record, left))
            # Chunks grow and shrink to last about CHUNK_SECONDS; results do not depend on it.
            time_left = min(CHUNK_SECONDS, max(self.deadline - self.seconds, 0.0))
            self.step_seconds = taken / max(1, self.now.steps - before)
            fitting = int(time_left / max(self.step_seconds, 1e-6))
            size = max(1, min(2 * size, fitting, self.longest))
            if self.now.steps % self.eval_every == 0:
                self._watch_inner()
                self.record()
                if callback and self.report(callback):
                    status = "callback"
                    break
            if bar is not None:
                info = self.now.carry.info
                bar.update(self.now.steps, float(info.outer), float(info.hypergrad_norm))
        if self.now.steps > (self.history["step"][-1] if self.history.records else 0):
            if status != "diverged" and not self._watch_inner():
                status = "diverged"
            self.history.append(steps.record_of(self.now, self.seconds))
        return status

    def advance(self, most: int) -> float:
        """Make up to `most` steps; the seconds taken."""
        elapsed = self.stopwatch()
        now = self.now
        with watch.over(lambda: self.is_over(elapsed()), self.problem.grouped):
            carry = self.steps(most)
        taken = self.problem.max_over_processes(elapsed())
        self.seconds += taken
        self.now = steps.after_chunk(now, carry)
        self.was_cut = int(carry.halt) == CUT
        if self.was_cut:
            self.now = steps.with_halt(self.problem, self.now, GO_ON)
        return taken

    def steps(self, count: int) -> steps.Carry:
        """What up to `count` steps from here end with."""
        feed = Feed()
        if self.solver.needs_uniform:
            from untuned.data.streams import uniforms

            feed = Feed(uniform=uniforms(self.seed, self.now.steps, count))
        return self.chunk(self.now.carry, self.problem.data, feed, np.int32(count))

    def is_over(self, elapsed: float) -> bool:
        """Whether a step that has taken so long is to be cut."""
        return self.interrupted() or self.seconds + elapsed > self.deadline

    def stopwatch(self) -> Callable[[], float]:
        """Seconds from now on, except those spent compiling."""
        ops = self.problem.ops
        start, compiling = time.perf_counter(), ops.compile_seconds()
        return lambda: time.perf_counter() - start - (ops.compile_seconds() - compiling)

    def _set_up(self) -> float:
        """Seconds since the run was called, without compilation and what goes with it."""
        if self.problem.ops.compiles:
            return 0.0
        return max(time.perf_counter() - self.began - self.compile_seconds, 0.0)

    def _watch_inner(self) -> bool:
        """Is g itself finite where the next step would evaluate it? Asked at records only.

        No method needs the value of g, and evaluating it at every step would cost a good part of
        one. Where it is not finite, the steps since the last record are made again one by one,
        which is exact, and the run ends with the step that first evaluates g there; if there is
        no time for that, with the last one.
        """
        if int(self.now.carry.halt) == DIVERGED:
            return False
        if math.isfinite(self._timed_inner_value()):
            self.sound = self.now
            return True
        last, self.now = self.now, self.sound
        while math.isfinite(self._timed_inner_value()) and int(self.now.carry.halt) == GO_ON:
            if not self._makes_a_step():
                self.now = last
                break
        self.bad_inner_value = self._timed_inner_value()
        best = self.now.carry.best
        self.now = steps.with_halt(self.problem, self.now, GO_ON)
        self._makes_a_step()
        self.now = steps.with_halt(self.problem, self.now, DIVERGED, best=best)
        return False

    def _makes_a_step(self) -> bool:
        """Make one step, if there is time for it."""
        before = self.now.steps
        if self.seconds <= self.deadline:
            self.advance(1)
        return self.now.steps > before

    def _timed_inner_value(self) -> float:
        """g now. That is no part of the method's seconds, and so brings the deadline nearer."""
        elapsed = self.stopwatch()
        value = self.inner_value()
        if self.limits["max_seconds"] is not None:
            self.deadline -= self.problem.max_over_processes(elapsed())
        return value

    def inner_value(self) -> float:
        """g now."""
        at, problem = self.now.carry.state, self.problem
        return float(problem.oracles.inner_value(at.x, at.y, problem.data.inner))

    def record(self) -> None:
        """Put where the run is into its history."""
        self.history.append(steps.record_of(self.now, self.seconds))

    def _status(self) -> Status | None:
        return ending.status(self.problem, self.solver, self.limits, self.now, self.is_late())

    def is_late(self) -> bool:
        """Whether no time is left."""
        return self.deadline <= self.seconds or (
            self.around is not None and self.around.has_stopped
        )

    def report(self, callback: Callable) -> bool:
        """Whether the callback stops the run."""
        at = self.now.carry.state
        x, y, v = self.problem.outward((at.x, at.y, at.v))
        record = self.history.last()
        snapshot = Snapshot(self.now.steps, self.seconds, x, y, v, record, at, self.compile_seconds)
        stop = bool(callback(snapshot))  # NumPy's True is not `True`
        return self.problem.max_over_processes(float(stop)) > 0

    def result(self, status: Status) -> Result:
        """What the user gets: the best point, and why the run ended."""
        return ending.result(
            self.problem, self.solver, self.limits, self.now, self.history, status,
            self.seconds, self.compile_seconds, self.bad_inner_value,
        )  # fmt: skip
