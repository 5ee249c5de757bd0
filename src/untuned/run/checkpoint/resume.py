"""Which run a checkpoint belongs to, when it is saved, and how a run goes on from it."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from untuned.data.batches import Data
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.build import Problem
from untuned.problem.derivatives import Counts
from untuned.run.checkpoint import storage
from untuned.run.checkpoint.data_digest import data_digest
from untuned.run.checkpoint.storage import fingerprint
from untuned.run.result import COLUMNS, History
from untuned.run.steps import Carry, Position
from untuned.solvers.base import CONVERGED, GO_ON
from untuned.util import lock, threads
from untuned.util.wording import brief

SAVE_SHARE = 20  # saving may take one part in so many of the time since the last save
LONG = 60.0  # seconds of work that may be lost inside a first step
DIGESTS = ("x0", "y0", "data")  # what is known of them is a digest
HISTORY = "history "  # before the names of the history's columns


def only_user(path: Path) -> AbstractContextManager[Path]:
    """Hold a checkpoint for one run, with a temporary name for it; another run is refused."""
    return lock.held(
        path,
        f"The checkpoint {path} is in use by another run; wait until it ends, or give another "
        "path.",
    )


class Saver:
    """Keeps a run's position, history and clock in the checkpoint at `path`."""

    def __init__(
        self, problem: Problem, solver: Any, seed: int, eval_every: int, path: Path,
        private: Path | None,
    ):  # fmt: skip
        self.problem, self.eval_every, self.path = problem, eval_every, path
        self.private = private
        self.identity = identity(problem, solver, seed)
        self.probe: list[float] = []
        self.last_save, self.save_seconds = -math.inf, 0.0
        self.began = time.monotonic()

    def load(self, start: Position, tol: float | None) -> tuple[Position, History, float]:
        """The position, history and seconds saved, if they are this run's."""
        arrays, notes = storage.load(self.path)
        check_same_run(self.path, notes.pop("run", None), self.identity)
        probed, saved_tol = notes.pop("probe", None), notes.pop("tol", None)
        rows = arrays.get(HISTORY + "step", np.zeros(0)).size
        empty = {HISTORY + name: np.zeros(rows, each.dtype) for name, each in History().items()}
        check_same_layout(self.path, arrays, _arrays_of(self.problem.ops, start.carry) | empty)
        check_same_layout(self.path, notes, self._notes(start, History(spacing=1), 0.0))
        self.probe = probe(self.problem)  # compiled, so only after all else is right
        check_same_functions(self.path, probed, self.probe, self.problem.dtype)
        threads.use(notes["threads"])
        columns = {name: arrays.pop(HISTORY + name).tolist() for name in COLUMNS}
        if columns["step"] and columns["step"][-1] % max(1, notes["spacing"]):
            # The record of where it ended, between two that are due: made anew if it ends there.
            columns = {name: column[:-1] for name, column in columns.items()}
        stride = max(1, notes["spacing"] // max(1, notes["eval_every"]))
        carry = _carry_of(self.problem.ops, arrays, start.carry)
        if saved_tol != tol and int(carry.halt) == CONVERGED:
            carry = carry._replace(halt=self.problem.ops.counter(GO_ON))
        history = History(columns, stride * self.eval_every)
        return _position_of(carry, notes), history, notes["seconds"]

    def is_due(self) -> bool:
        """Whether enough time has passed since the last save."""
        return time.monotonic() - self.last_save >= SAVE_SHARE * self.save_seconds

    def is_long_ago(self) -> bool:
        """Whether so much time has passed since the last save, or the start, that a step is cut."""
        return self.is_due() and time.monotonic() - max(self.last_save, self.began) >= LONG

    def save(self, now: Position, history: History, seconds: float, tol: float | None) -> None:
        """Write all of it, whole or not at all; a run whose disk is full goes on with a warning."""
        start = time.monotonic()
        self.probe = self.probe or probe(self.problem)
        columns = {HISTORY + name: column for name, column in history.items()}
        notes = self._notes(now, history, seconds)
        notes |= {"run": self.identity, "probe": self.probe, "tol": tol}
        ops = self.problem.ops
        arrays = _arrays_of(ops, now.carry)
        try:
            if ops.is_main_process(self.problem.y0):
                storage.save(self.path, arrays | columns, notes, self.private)
        except OSError as error:
            warnings.warn(
                f"The checkpoint {self.path} could not be saved at step {now.steps} "
                f"({error.strerror or error}); the one before it, if any, is untouched and the run "
                "goes on, so make room for the next one.",
                RuntimeWarning,
                stacklevel=5,
            )
        self.last_save = time.monotonic()
        self.save_seconds = self.last_save - start

    def _notes(self, now: Position, history: History, seconds: float) -> dict[str, Any]:
        return {
            "eval_every": self.eval_every,
            "spacing": history.spacing,
            "seconds": seconds,
            "threads": threads.count(),
        } | _totals_of(now)


def _arrays_of(ops: Ops, carry: Carry) -> dict[str, np.ndarray]:
    """The carry as arrays by name, for a file; all processes of a run call this together."""
    return dict(zip(ops.paths(carry), ops.to_host(carry), strict=True))


def _carry_of(ops: Ops, arrays: Mapping[str, np.ndarray], like: Carry) -> Carry:
    """The carry that `_arrays_of` turned into `arrays`, laid out like another one."""
    return ops.from_host([arrays[path] for path in ops.paths(like)], like)


def _totals_of(now: Position) -> dict[str, Any]:
    """The totals of a position, for a file."""
    return {
        "steps": now.steps,
        "cap_hits": now.cap_hits,
        "indefinite": now.indefinite,
        "drawn": list(now.drawn),
        "counts": now.counts._asdict(),
    }


def _position_of(carry: Carry, totals: Mapping[str, Any]) -> Position:
    """The position that `_totals_of` turned into `totals`."""
    inner, outer = totals["drawn"]
    return Position(
        carry, totals["steps"], totals["cap_hits"], totals["indefinite"], (inner, outer),
        Counts(**totals["counts"]),
    )  # fmt: skip


def identity(problem: Problem, solver: Any, seed: int) -> dict[str, Any]:
    """All that must be the same for a run to go on, but for what f and g compute (`probe`)."""
    ops, data = problem.ops, problem.data
    inner, outer = (data_digest(ops, side, problem.y0) for side in data[:2])
    return settings_of(problem, solver, seed) | {"data": [inner, outer]}


def settings_of(problem: Problem, solver: Any, seed: int) -> dict[str, Any]:
    """What belongs to no process alone: the method, its start and what it was told."""
    ops = problem.ops

    def digest(tree: Tree) -> str:
        return fingerprint(ops.to_host(tree))

    known = dataclasses.is_dataclass(solver) and not isinstance(solver, type)
    return {
        "method": type(solver).__name__,
        **(dataclasses.asdict(solver) if known else {"hyperparameters": repr(solver)}),
        "array library": ops.name,
        "seed": seed,
        "rows": list(problem.rows),
        "batch_size": list(problem.batch_sizes),
        "constraint": problem.constraint or "a function",
        "tree of x0 and y0": ops.paths((problem.x0, problem.y0)),
        "x0": digest(problem.x0),
        "y0": digest(problem.y0),
    }


def check_alike(problem: Problem, solver: Any, seed: int, limits: dict, eval_every: int) -> None:
    """Refuse a run whose processes were told different things: they would wait forever."""
    told = settings_of(problem, solver, seed) | limits | {"eval_every": eval_every}
    for name, value in told.items():
        if not problem.ops.same_on_all(repr(value), problem.y0):
            raise ValueError(
                f"The processes of the group were given different {name} (here: {brief(value)}); "
                "expected the same of all but the data in every process."
            )


def probe(problem: Problem) -> list[float]:
    """A few numbers that tell one pair of functions from another: values and gradient norms.

    Code cannot be compared, what it computes can. Taken at the start and, as many functions
    agree at zero, at a second point near it; on the first rows where the run uses minibatches.
    """
    ops, o = problem.ops, problem.oracles

    def numbers(x: Tree, y: Tree, data: Data) -> tuple:
        inner, outer = (
            rows if size is None else ops.take(rows, np.arange(size))
            for rows, size in zip(data[:2], problem.batch_sizes, strict=True)
        )
        out: list[Scalar] = []
        for shift in (0.0, 0.1):
            x, y = (ops.tree_map(lambda leaf, s=shift: leaf + s, tree) for tree in (x, y))
            f = o.outer(x, y, outer)
            g = o.inner(x, y, y, inner)
            parts = (f.grad_x, f.grad_y, g.grad, g.hvp, g.cross)
            out += [f.value, *(ops.norm(part) for part in parts)]
        return tuple(out)

    arguments = (problem.x0, problem.y0, problem.data)
    return [float(number) for number in ops.compile(numbers, *arguments)(*arguments)]


def check_same_run(path: Path, saved: Any, wanted: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another problem, method or setting, naming the difference."""
    saved = saved if isinstance(saved, dict) else {}
    for name, value in wanted.items():
        there = saved.get(name)
        if there == value:
            continue
        if name in DIGESTS:  # which would say nothing to anyone
            if name == "data":
                same_inner = isinstance(there, list) and there[:1] == value[:1]
                name = "outer_data" if same_inner else "inner_data"
            raise _another_run(path, f"its {name} differed from this run's")
        raise _another_run(path, f"its {name} is {brief(there)} and this run's is {brief(value)}")


def check_same_layout(path: Path, saved: Any, wanted: Any) -> None:
    """Refuse a checkpoint with other names, shapes or kinds than this version of untuned writes.

    Its digest is right, so it is not damaged: another version wrote it, or another program.
    """
    if layout(saved) != layout(wanted):
        names = [name for name in wanted if layout(saved.get(name)) != layout(wanted[name])]
        what = brief(names[0] if names else min(set(saved) - set(wanted)))
        raise ValueError(
            f"The checkpoint {path} was written by another version of untuned, which kept {what} "
            "in another way; give another path, or delete the file to start anew."
        )


def layout(value: Any) -> Any:
    """What something is made of, without its numbers."""
    if isinstance(value, dict):
        return {name: layout(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [layout(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.shape, "whole" if value.dtype.kind in "biu" else value.dtype.name
    return "negative" if type(value) is int and value < 0 else type(value).__name__


def check_same_functions(path: Path, saved: Any, wanted: list[float], dtype: str) -> None:
    """Refuse a checkpoint whose f and g computed other numbers near the start."""
    # They may differ in their last digits on another machine, or on other devices; and one that
    # is zero but for rounding may be any such number.
    rounding = 100 * float(np.finfo(dtype).eps) * max((abs(w) for w in wanted), default=0.0)
    same = layout(saved) == layout(wanted) and np.allclose(
        saved, wanted, rtol=1e-4, atol=rounding if np.isfinite(rounding) else 0.0, equal_nan=True
    )
    if not same:
        raise _another_run(path, "its f or g gave other values or gradients at the same point")


def _another_run(path: Path, difference: str) -> ValueError:
    return ValueError(
        f"The checkpoint {path} belongs to another run: {difference}; give another path, or "
        "delete the file to start anew."
    )
