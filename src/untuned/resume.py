"""Which run a checkpoint belongs to, and how a run's state becomes named arrays and back."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from untuned import checkpoint, stopping
from untuned.batches import Data
from untuned.checkpoint import fingerprint
from untuned.chunk import Position
from untuned.data_digest import data_digest
from untuned.derivatives import Counts
from untuned.ops import Ops, Scalar, Tree
from untuned.problem import Problem
from untuned.result import COLUMNS, History
from untuned.wording import brief

SAVE_SHARE = 20  # saving may take one part in so many of the time since the last save


class Saver:
    """Keeps a run's position, history and clock in the checkpoint at `path`."""

    def __init__(self, problem: Problem, solver: Any, seed: int, eval_every: int, path: Path):
        self.problem, self.eval_every, self.path = problem, eval_every, path
        self.identity = identity(problem, solver, seed)
        self.probe: list[float] = []
        self.last_save, self.save_seconds = -math.inf, 0.0

    def load(self, start: Position, tol: float | None) -> tuple[Position, History, float]:
        """The position, history and seconds saved, if they are this run's."""
        arrays, notes = checkpoint.load(self.path)
        check_same_run(self.path, notes["run"], self.identity)
        self.probe = probe(self.problem)  # compiled, so only after all else is right
        check_same_functions(self.path, notes["probe"], self.probe, self.problem.dtype)
        columns = {name: arrays.pop("history " + name).tolist() for name in COLUMNS}
        if columns["step"] and columns["step"][-1] % notes["eval_every"]:
            # The record of where it ended, between two that are due: made anew if it ends there.
            columns = {name: column[:-1] for name, column in columns.items()}
        carry = unpack(self.problem.ops, arrays, start.carry)
        if notes["tol"] != tol and int(carry.halt) == stopping.CONVERGED:
            carry = carry._replace(halt=self.problem.ops.counter(stopping.GO_ON))
        inner, outer = notes["drawn"]
        counts = Counts(**notes["counts"])
        position = Position(
            carry, notes["steps"], notes["cap_hits"], notes["indefinite"], (inner, outer), counts,
            notes["stage"],
        )  # fmt: skip
        return position, History(columns), notes["seconds"]

    def is_due(self) -> bool:
        """Whether enough time has passed since the last save."""
        return time.monotonic() - self.last_save >= SAVE_SHARE * self.save_seconds

    def save(self, now: Position, history: History, seconds: float, tol: float | None) -> None:
        """Write all of it, whole or not at all."""
        start = time.monotonic()
        self.probe = self.probe or probe(self.problem)
        columns = {"history " + name: column for name, column in history.items()}
        notes = {
            "run": self.identity,
            "probe": self.probe,
            "eval_every": self.eval_every,
            "steps": now.steps,
            "seconds": seconds,
            "cap_hits": now.cap_hits,
            "indefinite": now.indefinite,
            "stage": now.stage,
            "drawn": now.drawn,
            "counts": now.counts._asdict(),
            "tol": tol,
        }
        ops, y = self.problem.ops, self.problem.y0
        arrays = pack(ops, now.carry)  # by all processes together, where there are several
        if ops.leads(y):
            checkpoint.save(self.path, arrays | columns, notes)
        self.last_save = time.monotonic()
        self.save_seconds = self.last_save - start


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
        "constraint": problem.constraint,
        "tree of x0 and y0": ops.paths((problem.x0, problem.y0)),
        "x0": digest(problem.x0),
        "y0": digest(problem.y0),
    }


def check_alike(problem: Problem, solver: Any, seed: int, limits: dict, eval_every: int) -> None:
    """Refuse a run whose processes were told different things: they would wait for ever."""
    if not problem.grouped:
        return
    told = settings_of(problem, solver, seed) | limits | {"eval_every": eval_every}
    for name, value in told.items():
        if not problem.ops.alike(repr(value), problem.y0):
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


def check_same_run(path: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another problem, method or setting, naming the difference."""
    for name, value in wanted.items():
        if saved.get(name) != value:
            raise _another_run(
                path,
                f"its {name} is {brief(saved.get(name))} and this run's is {brief(value)}",
            )


def check_same_functions(path: Path, saved: list[float], wanted: list[float], dtype: str) -> None:
    """Refuse a checkpoint whose f and g computed other numbers near the start."""
    # They may differ in their last digits on another machine, or on other devices; and one that
    # is zero but for rounding may be any such number.
    rounding = 100 * float(np.finfo(dtype).eps) * max((abs(w) for w in wanted), default=0.0)
    same = len(saved) == len(wanted) and np.allclose(
        saved, wanted, rtol=1e-4, atol=rounding if np.isfinite(rounding) else 0.0, equal_nan=True
    )
    if not same:
        raise _another_run(path, "its f or g gave other values or gradients at the same point")


def _another_run(path: Path, difference: str) -> ValueError:
    return ValueError(
        f"The checkpoint {path} belongs to another run: {difference}; give another path, or "
        "delete the file to start anew."
    )


def pack(ops: Ops, tree: Tree) -> dict[str, np.ndarray]:
    """The leaves of a tree as arrays by name."""
    return dict(zip(ops.paths(tree), ops.to_host(tree), strict=True))


def unpack(ops: Ops, arrays: Mapping[str, np.ndarray], like: Tree) -> Tree:
    """Named arrays as a tree with the structure, dtypes and device of `like`."""
    return ops.from_host([arrays[path] for path in ops.paths(like)], like)
