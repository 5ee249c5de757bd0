"""The only outer loop: chunks of steps, the clock, history, stopping, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from untuned.data.batches import Feed, gather, on_first
from untuned.ops import Tree
from untuned.ops.cache import compiled, name_of
from untuned.problem.build import Problem
from untuned.run import backend, ending, steps
from untuned.run.checkpoint import resume
from untuned.run.feeder import Feeder
from untuned.run.result import History, Result, Snapshot, Status
from untuned.solvers.base import CUT, DIVERGED, GO_ON
from untuned.util import watch
from untuned.util.progress import Bar

LITTLE_DATA = 2**20  # bytes
CHUNK_SECONDS = 0.2  # so that the bar is live and a time limit is kept
BEYOND = 0.05  # of a time limit, that a step which cannot be cut may go beyond it


class Loop:
    """The mutable side of one run: where it is, what it has seen, what it cost."""

    def __init__(
        self, problem: Problem, solver: Any, limits: dict, eval_every: int, seed: int,
        path: Path | None, private: Path | None,
    ):  # fmt: skip
        self.problem, self.solver, self.limits = problem, solver, limits
        self.eval_every, self.seed = eval_every, seed
        self.feeder = Feeder(problem, solver, seed, eval_every)
        self.seconds = 0.0
        self.bad_inner_value = math.nan
        self.history = History(spacing=eval_every)
        self.set_up_seconds = 0.0
        self.deadline = math.inf  # on the clock `seconds`; nearer by what watching g takes
        self.step_seconds = 0.0  # of the last chunk
        self.saves_inside = True  # of a first step that takes long
        self.interrupted: Callable[[], bool] = lambda: False
        self.around: watch.Watch | None = None  # of whoever calls `minimize`
        self.saver: resume.Saver | None = None
        if path:
            self.saver = resume.Saver(problem, solver, seed, eval_every, path, private)
        # All processes of a run resume, or none: one may be too late to find no file.
        found = self.saver is not None and self.saver.path.exists()
        resumed = problem.max_over_processes(float(found)) > 0
        self.now = steps.Position(self._start(in_one_piece=not resumed))
        if self.saver and resumed:
            self.now, self.history, self.seconds = self.saver.load(self.now, limits["tol"])
        self.sound = self.now  # the last position at which g was seen to be finite
        self._compile()

    def _compile(self) -> None:
        """Compile the steps for the rows of the present stage."""
        elapsed = self._stopwatch()
        ops, o = self.problem.ops, self.problem.oracles
        now, feeder, data = self.now, self.feeder, self.problem.data
        function = steps.chunk(self.problem, self.solver, self.limits["tol"])
        feed = feeder.make(now.steps, now.drawn, feeder.longest)
        arguments = (now.carry, data, feed, np.int32(0))
        name = self._name()
        # On little data a few steps take less time than an optimizing compiler would.
        little = (
            sum(getattr(leaf, "nbytes", 0) for leaf in ops.flatten(arguments)[0]) <= LITTLE_DATA
        )
        # A method without a fixed number of products is made of loops: slow to compile, done in few
        # steps, and those are spent on products.
        effort = "full" if self.solver.cost.hvp is not None else "least" if little else "half"
        self.chunk = compiled(ops, name and ("chunk", name), function, *arguments, effort=effort)
        # What the first step sets up does not count as the method's time. Its result is thrown
        # away, so where a step may take long no step is made and only the rest is set up.
        one = ops.compiles and backend.is_short(self.solver)
        ops.sync(self.chunk(*arguments[:3], np.int32(one)))

        def inner_value(x: Tree, y: Tree, data: Any, feed: Feed) -> Any:
            batch = gather(ops, data, feed, 0, (0, 0), feeder.draws)
            return on_first(ops, batch.inner, lambda rows: o.inner_value(x, y, rows))

        point = (self.problem.x0, self.problem.y0)
        feed = feeder.make(now.steps, now.drawn, 1)
        name = name and ("inner value", name)
        self.inner_value = compiled(ops, name, inner_value, *point, data, feed, effort=effort)
        self.set_up_seconds += elapsed()

    @property
    def compile_seconds(self) -> float:
        """Seconds spent compiling and setting up."""
        return self.set_up_seconds + self.problem.ops.compile_seconds()

    def _start(self, in_one_piece: bool) -> steps.Carry:
        """What the first step starts from, by one compiled function in place of many small ones.

        Not where a checkpoint is to be read: a wrong one is refused before anything is compiled.
        """
        problem, solver, name = self.problem, self.solver, self._name()
        point = (problem.x0, problem.y0)
        if not in_one_piece:
            return problem.ops.place_like(steps.first(problem, solver, *point), point)
        start = compiled(
            problem.ops, name and ("start", name), partial(steps.first, problem, solver),
            *point, effort="least",
        )  # fmt: skip
        return start(*point)

    def _name(self) -> Hashable | None:
        """All that compiled steps depend on, besides the shapes of arrays."""
        problem, tol = self.problem, self.limits["tol"] or 0.0
        if problem.constraint is None:
            return None
        o = problem.oracles
        return name_of(o.outer_function, o.inner_function, self.solver, tol, problem.constraint)

    def loop(self, callback: Callable | None, bar: Bar, interrupted: Callable[[], bool]) -> Status:
        """Make steps until something ends the run; the status says what."""
        size = 1
        limit = self.limits["max_seconds"]
        self.deadline = math.inf if limit is None else self.seconds + limit
        self.interrupted, self.around = interrupted, watch.present()
        self._watch_inner()
        while (status := self._status()) is None:
            if self.problem.max_over_processes(float(interrupted())):
                status = "interrupted"
                break
            to_record = self.eval_every - self.now.steps % self.eval_every
            left = self.limits["max_steps"] - self.now.steps
            before = self.now.steps
            taken = self._advance(min(size, to_record, left))
            if self._saved_inside():
                continue
            # Chunks grow and shrink to last about CHUNK_SECONDS; results do not depend on it.
            time_left = min(CHUNK_SECONDS, max(self.deadline - self.seconds, 0.0))
            self.step_seconds = taken / max(1, self.now.steps - before)
            fitting = int(time_left / max(self.step_seconds, 1e-6))
            size = max(1, min(2 * size, fitting, self.feeder.longest))
            if self.now.steps % self.eval_every == 0:
                self._watch_inner()
                self.history.append(steps.record_of(self.now, self.seconds))
                self._save(only_if_due=True)
                if callback and self._report(callback):
                    status = "callback"
                    break
            info = self.now.carry.info
            bar.update(self.now.steps, float(info.outer), float(info.hypergrad_norm))
        if self.now.steps > (self.history["step"][-1] if self.history.records else 0):
            if status != "diverged" and not self._watch_inner():
                status = "diverged"
            self.history.append(steps.record_of(self.now, self.seconds))
        self._save()
        return status

    def _advance(self, most: int) -> float:
        """Make up to `most` steps, as many as the rows at hand are for; the seconds taken."""
        elapsed = self._stopwatch()
        now, feeder = self.now, self.feeder
        count = min(most, feeder.room(now.drawn))
        feed = feeder.take(now.steps, now.drawn)
        saves = self._may_save_inside()

        def is_over() -> bool:
            late = self.interrupted() or self.seconds + elapsed() > self.deadline
            return late or (saves and self.saver is not None and self.saver.is_long_ago())

        with watch.over(is_over, self.problem.grouped):
            carry = self.chunk(now.carry, self.problem.data, feed, np.int32(count))
        feeder.draw_ahead(now.steps, now.drawn, count)  # while the device computes
        self.problem.ops.sync(carry)
        taken = self.problem.max_over_processes(elapsed())
        self.seconds += taken
        self.now = steps.after_chunk(now, carry)
        if int(carry.halt) == CUT:
            # Where the saves of a first step find nothing new to save, they are in its way.
            at, before = carry.state, now.carry.state
            self.saves_inside = not self.problem.ops.equal((at.y, at.v), (before.y, before.v))
            self.now = steps.with_halt(self.problem, self.now, GO_ON)
        return taken

    def _may_save_inside(self) -> bool:
        """Whether the step ahead may be cut in order to save: the first one, whose y is kept.

        Of several processes each has a clock of its own, so theirs are not.
        """
        return self.saves_inside and self.now.steps == 0 and not self.problem.grouped

    def _saved_inside(self) -> bool:
        """Save y of a first step that was cut for that, and for no other reason."""
        late = self.interrupted() or self.seconds > self.deadline
        if late or self.now.steps or not self.saver or not self.saver.is_long_ago():
            return False
        self._save()
        return True

    def _stopwatch(self) -> Callable[[], float]:
        """Seconds from now on, except those spent compiling."""
        ops = self.problem.ops
        start, compiling = time.perf_counter(), ops.compile_seconds()
        return lambda: time.perf_counter() - start - (ops.compile_seconds() - compiling)

    def _watch_inner(self) -> bool:
        """Is g itself finite where the next step would evaluate it? Asked at records only.

        No method needs the value of g, and evaluating it at every step would cost a good part of
        one. Where it is not finite, the steps since the last record are made again one by one,
        which is exact, and the run ends with the step that first evaluates g there; if there is
        no time for that, with the last one.
        """
        if int(self.now.carry.halt) == DIVERGED:
            return False
        if math.isfinite(self._inner_value()):
            self.sound = self.now
            return True
        last, self.now = self.now, self.sound
        while math.isfinite(self._inner_value()) and int(self.now.carry.halt) == GO_ON:
            if not self._makes_a_step():
                self.now = last
                break
        self.bad_inner_value = self._inner_value()
        best = self.now.carry.best
        self.now = steps.with_halt(self.problem, self.now, GO_ON)
        self._makes_a_step()
        self.now = steps.with_halt(self.problem, self.now, DIVERGED, best=best)
        return False

    def _makes_a_step(self) -> bool:
        """Make one step, if there is time for it."""
        before = self.now.steps
        if self.seconds <= self.deadline:
            self._advance(1)
        return self.now.steps > before

    def _inner_value(self) -> float:
        """g now. That is no part of the method's seconds, and so brings the deadline nearer."""
        elapsed, at = self._stopwatch(), self.now.carry.state
        feed = self.feeder.make(self.now.steps, self.now.drawn, 1)
        value = float(self.inner_value(at.x, at.y, self.problem.data, feed))
        if self.limits["max_seconds"] is not None:
            self.deadline -= self.problem.max_over_processes(elapsed())
        return value

    def _save(self, only_if_due: bool = False) -> None:
        if not self.saver:
            return
        if not only_if_due or self.problem.max_over_processes(float(self.saver.is_due())):
            self.saver.save(self.now, self.history, self.seconds, self.limits["tol"])

    def _status(self) -> Status | None:
        return ending.status(self.problem, self.solver, self.limits, self.now, self._is_late())

    def _is_late(self) -> bool:
        """Whether no time is left; a compiled step cannot be cut, so then: for another one."""
        if self.around is not None and self.around.has_stopped:
            return True
        left, limit = self.deadline - self.seconds, self.limits["max_seconds"]
        if limit is not None and self.problem.ops.compiles:
            return left <= 0 or self.step_seconds > left + BEYOND * limit
        return left <= 0

    def _report(self, callback: Callable) -> bool:
        at = self.now.carry.state
        x, y, v = self.problem.outward((at.x, at.y, at.v))
        record = self.history.last()
        snapshot = Snapshot(self.now.steps, self.seconds, x, y, v, record, at, self.compile_seconds)
        try:
            stop = bool(callback(snapshot))  # NumPy's True is not `True`
        except Exception:
            if not self.problem.grouped:  # saving takes all processes, and the others go on
                self._save()  # what is wrong with a callback is not wrong with the run
            raise
        return self.problem.max_over_processes(float(stop)) > 0

    def result(self, status: Status) -> Result:
        """What the user gets: the best point, and why the run ended."""
        return ending.result(
            self.problem, self.solver, self.limits, self.now, self.history, status,
            self.seconds, self.compile_seconds, self.bad_inner_value,
        )  # fmt: skip
