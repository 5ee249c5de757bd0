"""Runs that plain.py does not serve: compiled chunks of steps, minibatches, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from untuned.data.batches import Feed, gather, on_first
from untuned.ops import Tree
from untuned.ops.cache import compiled, name_of
from untuned.problem.build import Problem
from untuned.run import backend, steps
from untuned.run.checkpoint import resume
from untuned.run.feeder import Feeder
from untuned.run.plain import NEVER, Run
from untuned.run.result import Status
from untuned.solvers.base import Solver

LITTLE_DATA = 2**20  # bytes
BEYOND = 0.05  # of a time limit, that a step which cannot be cut may go beyond it


class Loop(Run):
    """A run with rows that are drawn, steps that are compiled, and a file to save to."""

    def __init__(
        self, problem: Problem, solver: Solver, limits: dict[str, Any], eval_every: int, seed: int,
        began: float, path: Path | None, private: Path | None,
    ):  # fmt: skip
        self.feeder = Feeder(problem, solver, seed, eval_every)
        self.saves_inside = True  # of a first step that takes long
        self.saver: resume.Saver | None = None
        if path:
            self.saver = resume.Saver(problem, solver, seed, eval_every, path, private)
        # All processes of a run resume, or none: one may be too late to find no file.
        found = self.saver is not None and self.saver.path.exists()
        self.resumes = problem.max_over_processes(float(found)) > 0
        super().__init__(problem, solver, limits, eval_every, seed, began)
        self.longest = self.feeder.longest
        if self.saver and self.resumes:
            self.now, self.history, self.seconds = self.saver.load(self.now, limits["tol"])
        self.sound = self.now
        self._compile()

    def start(self) -> steps.Position:
        """Where the run starts, by one compiled function in place of many small ones.

        Not where a checkpoint is to be read: a wrong one is refused before anything is compiled.
        """
        problem, solver, name = self.problem, self.solver, self._name()
        point = (problem.x0, problem.y0)
        if self.resumes:
            first = steps.first(problem, solver, *point)
            return steps.Position(problem.ops.place_like(first, point))
        start = compiled(
            problem.ops, name and ("start", name), partial(steps.first, problem, solver),
            *point, effort="least",
        )  # fmt: skip
        return steps.Position(start(*point))

    def _compile(self) -> None:
        """Compile the steps."""
        elapsed = self.stopwatch()
        ops, o = self.problem.ops, self.problem.oracles
        now, feeder, data = self.now, self.feeder, self.problem.data
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
        self.chunk = compiled(ops, name and ("chunk", name), self.chunk, *arguments, effort=effort)
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
        self._inner_value = compiled(ops, name, inner_value, *point, data, feed, effort=effort)
        self.set_up_seconds += elapsed()

    def _name(self) -> Hashable | None:
        """All that compiled steps depend on, besides the shapes of arrays."""
        problem, tol = self.problem, self.limits["tol"] or 0.0
        if problem.constraint is None:
            return None
        o = problem.oracles
        return name_of(o.outer_function, o.inner_function, self.solver, tol, problem.constraint)

    def loop(
        self, callback: Callable | None, interrupted: Callable[[], bool] = NEVER, bar: Any = None
    ) -> Status:
        """Make steps until something ends the run, and save where it ended."""
        status = super().loop(callback, interrupted, bar)
        self._save()
        return status

    def advance(self, most: int) -> float:
        """Make up to `most` steps, as many as the rows at hand are for; the seconds taken.

        Save y of a first step that was cut for that, and for no other reason, and go on.
        """
        taken, before = 0.0, self.now.carry.state
        while True:
            taken += super().advance(min(most, self.feeder.room(self.now.drawn)))
            if self.was_cut:
                # Where the saves of a first step find nothing new to save, they are in its way.
                at = self.now.carry.state
                self.saves_inside = not self.problem.ops.equal((at.y, at.v), (before.y, before.v))
                before = at
            late = self.interrupted() or self.seconds > self.deadline
            if late or self.now.steps or not self.saver or not self.saver.is_long_ago():
                return taken
            self._save()

    def steps(self, count: int) -> steps.Carry:
        """What up to `count` steps from here end with."""
        now, feeder = self.now, self.feeder
        feed = feeder.take(now.steps, now.drawn)
        carry = self.chunk(now.carry, self.problem.data, feed, np.int32(count))
        feeder.draw_ahead(now.steps, now.drawn, count)  # while the device computes
        self.problem.ops.sync(carry)
        return carry

    def is_over(self, elapsed: float) -> bool:
        """Whether a step that has taken so long is to be cut, be it in order to save.

        Only the first step, whose y is kept. Of several processes each has a clock of its own, so
        theirs are not.
        """
        inside = self.saves_inside and self.now.steps == 0 and not self.problem.grouped
        saves = inside and self.saver is not None and self.saver.is_long_ago()
        return super().is_over(elapsed) or saves

    def inner_value(self) -> float:
        """g now, on the rows that the next step begins with."""
        at = self.now.carry.state
        feed = self.feeder.make(self.now.steps, self.now.drawn, 1)
        return float(self._inner_value(at.x, at.y, self.problem.data, feed))

    def record(self) -> None:
        """Put where the run is into its history, and save it if that is due."""
        super().record()
        if self.saver and self.problem.max_over_processes(float(self.saver.is_due())):
            self._save()

    def _save(self) -> None:
        if self.saver:
            self.saver.save(self.now, self.history, self.seconds, self.limits["tol"])

    def is_late(self) -> bool:
        """Whether no time is left; a compiled step cannot be cut, so then: for another one."""
        left, limit = self.deadline - self.seconds, self.limits["max_seconds"]
        if limit is None or not self.problem.ops.compiles:
            return super().is_late()
        return super().is_late() or self.step_seconds > left + BEYOND * limit

    def report(self, callback: Callable) -> bool:
        """Whether the callback stops the run; save also where it raises."""
        try:
            return super().report(callback)
        except Exception:
            if not self.problem.grouped:  # saving takes all processes, and the others go on
                self._save()  # what is wrong with a callback is not wrong with the run
            raise
