"""`minimize`: what the user calls. It checks what was given; loop.py makes the steps."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from untuned import solvers
from untuned.ops import Tree
from untuned.problem.build import Problem, Processes, build
from untuned.run import backend
from untuned.run.checkpoint import resume
from untuned.run.loop import Loop
from untuned.run.plain import Run, records_every
from untuned.run.result import Result, Snapshot
from untuned.util import interrupts, threads
from untuned.util.wording import brief


def minimize(
    outer: Callable,
    inner: Callable,
    x0: Tree,
    y0: Tree,
    *,
    method: Any = "auto",
    outer_data: Tree = None,
    inner_data: Tree = None,
    batch_size: int | tuple[int | None, int | None] | None = None,
    max_steps: int = 1000,
    max_seconds: float | None = None,
    tol: float | None = None,
    constraint: Any = None,
    seed: int = 0,
    eval_every: int | None = None,
    callback: Callable[[Snapshot], Any] | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    group: Any = None,
    sharded: Any = False,
) -> Result:
    """Minimize f(x, y*(x)) over x, where y*(x) minimizes g(x, y) over y.

    Parameters
    ----------
    outer, inner : f and g, scalar functions of the trees x and y, called as f(x, y), or as
        f(x, y, batch) where data are given for them. Where both bring their own derivatives
        (`untuned.ops.ClosedForm`) and all is in NumPy, nothing else is loaded and nothing compiled.
    x0, y0 : where to start; arrays, or dicts, tuples and lists of arrays. JAX and NumPy arrays
        run on JAX, torch tensors on torch, in their dtype and on their device.
    method : a name of `untuned.solvers.names()`, or a solver such as `untuned.solvers.DTFBO(...)`.
    outer_data, inner_data : trees of arrays that share their leading axis. Floats take the dtype
        of x0. Memory-mapped arrays and Parquet files (a path, or `untuned.parquet`) stay on disk
        where a batch size is given (docs/scale.md).
    batch_size : rows per step; None for all, a number, or a pair (inner, outer).
    max_steps, max_seconds : budget of steps, and of this call's time without compilation.
    tol : stop when the hypergradient norm is at most tol times its first value.
    constraint : the set of x: "simplex", "nonnegative", (low, high), or a function that projects.
    seed : of the rows' order.
    eval_every : steps between records; None for about 100 records in all, or for one at every step
        of a method that solves for y and v as exactly as it needs.
    callback : called with a `Snapshot` at every record; returning True stops the run.
    progress : True for a live bar.
    checkpoint : a path to save to as the run goes; an existing one is resumed from. Only one run
        at a time may use it.
    group : a process group of `torch.distributed`, each of whose processes calls `minimize` with
        its own rows as data and the same other arguments (docs/scale.md). On JAX give sharded
        arrays.
    sharded : with `group`, which leaves of x0 belong to a process's own rows: True for all, or a
        tree of True and False.

    Returns
    -------
    Result : the point found, `status`, `message`, `history` and `counts`. Ctrl-C once saves and
        ends the run with the status "interrupted"; twice, it raises KeyboardInterrupt at once.

    Example
    -------
    >>> import numpy as np, untuned
    >>> f = lambda x, y: ((y - 1.0) ** 2).sum()   # wants y at 1
    >>> g = lambda x, y: ((y - x) ** 2).sum()     # y follows x
    >>> result = untuned.minimize(f, g, np.zeros(2), np.zeros(2), tol=1e-3)
    >>> result.status
    'converged'
    """
    solver = solvers.get(method)() if isinstance(method, str) else method
    check_settings(solver, max_steps, max_seconds, tol, seed, eval_every, callback)
    max_steps, seed = int(max_steps), int(seed)  # NumPy's whole numbers are welcome too
    path = _checkpoint_path(checkpoint)
    began = time.perf_counter()
    problem = build(
        outer, inner, x0, y0, outer_data, inner_data, batch_size=batch_size,
        constraint=constraint, processes=Processes(group, sharded),
    )  # fmt: skip
    _check_on_disk(solver, problem.on_disk)
    solver = solver.for_run(problem.rows, problem.batch_sizes, max_steps)
    with problem.precision():
        solver = solver.for_problem(problem.oracles, problem.x0, problem.y0, problem.sample)
        problem = backend.chosen(problem, solver, seed)
    limits = {
        "max_steps": max_steps,
        "max_seconds": None if max_seconds is None else float(max_seconds),
        "tol": None if tol is None else float(tol),
    }
    if eval_every is None:
        eval_every = records_every(solver, max_steps)
    if problem.grouped:
        resume.check_alike(problem, solver, seed, limits, int(eval_every))
    is_main = problem.ops.is_main_process(problem.y0)  # of several processes one shows and writes
    with (
        problem.precision(),
        _threads(problem),
        resume.only_user(path) if path and is_main else nullcontext() as private,
        interrupts.counted() as interrupted,
        _bar(max_steps, solver.name) if progress and is_main else nullcontext() as bar,
    ):
        if problem.ops.name == "jax":  # imports and traces so far: a part of its compilation
            began = time.perf_counter()
        settings = (problem, solver, limits, int(eval_every), seed, began)
        if path is None and problem.full_batch and not problem.ops.compiles:
            run = Run(*settings)
            return run.result(run.loop(callback, interrupted, bar))
        run = Loop(*settings, path, private)
        try:
            return run.result(run.loop(callback, interrupted, bar))
        finally:
            run.feeder.close()


def _bar(steps: int, title: str) -> Any:
    from untuned.util.progress import Bar

    return Bar(steps, title)


def _threads(problem: Problem) -> AbstractContextManager:
    """The threads of BLAS and OpenMP; XLA has threads of its own, which wait without spinning."""
    if backend.evaluates_in_numpy(problem):
        return threads.limited(0)  # as little work as is given to NumPy there
    if problem.ops.name != "numpy":  # what a user's function is worth cannot be told
        return threads.limited(math.inf)
    o, x, y = problem.oracles, problem.x0, problem.y0
    return threads.limited_by_time(lambda: o.inner_grad(x, y, None))


def check_settings(
    solver: Any, max_steps: Any, max_seconds: Any, tol: Any, seed: Any, eval_every: Any,
    callback: Any,
) -> None:  # fmt: skip
    """Refuse settings that make no sense, each in one sentence."""
    if not isinstance(solver, solvers.Solver):
        raise ValueError(
            f"method={brief(solver)} is not a method; expected a name such as 'd-tfbo', or a "
            "solver such as untuned.solvers.DTFBO()."
        )
    _check_whole("max_steps", max_steps, 1)
    _check_whole("seed", seed, 0)
    if eval_every is not None:
        _check_whole("eval_every", eval_every, 1)
    for name, value, example in (("max_seconds", max_seconds, 60.0), ("tol", tol, 1e-3)):
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 < float(value) < float("inf")):
            raise ValueError(
                f"{name}={brief(value)} is not usable; expected a number above zero, for example "
                f"{name}={example}, or None."
            )
    if callback is not None and not callable(callback):
        raise ValueError(
            f"callback is a {type(callback).__name__}; expected a function of one snapshot."
        )


def _check_on_disk(solver: Any, on_disk: tuple) -> None:
    """Refuse methods that need more than the rows of a batch where rows are on disk."""
    needs_more = solver.needs_blocks or solver.needs_all_rows
    if needs_more and any(side is not None for side in on_disk):
        why = "fixed blocks of rows" if solver.needs_blocks else "all rows from time to time"
        raise ValueError(
            f"{solver.name} needs {why}, and rows on disk are read batch by batch; use 'auto' or "
            "another method, or give arrays in memory."
        )


def _check_whole(name: str, value: Any, least: int) -> None:
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(
            f"{name}={brief(value)} is not usable; expected a whole number from {least} up, for "
            f"example {name}={max(least, 10)}."
        )


def _checkpoint_path(checkpoint: Any) -> Path | None:
    """Where to save, or None; the folder must be there."""
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(
            f"checkpoint={brief(checkpoint)} is not a path; expected the path of a "
            "file in an existing folder."
        )
    path = Path(checkpoint)
    if path.is_symlink():  # what is saved is what it leads to, and not the link
        path = Path(os.path.realpath(path))
    if path.is_dir():
        what = "is a folder"
    elif path.is_symlink():
        what = "is a link that leads in a circle"
    elif path.exists() and not path.is_file():
        what = "is no plain file"
    elif not path.parent.is_dir():
        what = f"lies in {path.parent}, which is not an existing folder"
    elif not os.access(path.parent, os.W_OK):
        what = f"lies in {path.parent}, where nothing can be written"
    else:
        return path
    raise ValueError(
        f"checkpoint={str(path)!r} {what}; expected the path of a file in an existing folder."
    )
