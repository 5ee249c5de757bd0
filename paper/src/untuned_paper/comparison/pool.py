"""Runs that are not yet on record are made by worker processes, each pinned to one core.

A core of its own keeps a run's clock fair: no two runs share one, and an array library that sees
one core starts one thread. A worker writes a record only when its run is over, and ends when the
command that started it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untuned.util.progress import Jobs
from untuned_paper.comparison import measurement, records
from untuned_paper.comparison.records import ComparedRun

if TYPE_CHECKING:
    import pandas

Make = Callable[[Any], "pandas.DataFrame"]

REFERENCE = "l-bfgs"  # not a method of the comparison: the search for the least Phi


def cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # only Linux has it
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def finish(
    runs: Sequence[Any], folder: Path, title: str, make: Make | None = None
) -> pandas.DataFrame:
    """Make the runs that have no record yet, and return the records of all.

    `make` turns a run into its record: a module's function, since worker processes call it. None
    for the comparison's own.
    """
    import pandas

    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if records.read(folder, run) is None]
    if missing:
        _make(missing, folder, title, len(runs), make or compared)
    frames = [records.read(folder, run) for run in runs]
    return pandas.concat([frame for frame in frames if frame is not None], ignore_index=True)


def _make(missing: list[Any], folder: Path, title: str, total: int, make: Make) -> None:
    context = multiprocessing.get_context("spawn")  # forking a process with threads may hang
    free = context.SimpleQueue()
    for core in cores():
        free.put(core)
    workers = min(len(cores()), len(missing))
    with (
        Jobs(title, total, total - len(missing)) as bar,
        ProcessPoolExecutor(workers, context, _begin, (free,)) as pool,
    ):
        waiting = {pool.submit(_make_one, run, folder, make): run for run in missing}
        try:
            for done in as_completed(waiting):
                done.result()
                run = waiting[done]
                bar.advance(f"{run.problem} {run.method} {run.setting}")
        except BrokenProcessPool:
            raise ValueError(
                f"A worker process ended before its run was over, perhaps for lack of memory; the "
                f"finished runs are on record in {folder}, so start the command again to continue."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(free: Any) -> None:
    """The first thing a worker does, before any array library counts the cores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once and without a word
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {free.get()})
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _make_one(run: Any, folder: Path, make: Make) -> None:
    records.write(folder, run, make(run))


def compared(run: ComparedRun) -> pandas.DataFrame:
    """One run of the comparison: a method, measured, or the search for the least Phi."""
    if run.method == REFERENCE:
        return _reference(run)
    experiment = measurement.experiment(run.problem, run.rows)
    return measurement.measured(
        experiment, run.method, run.setting, run.batch_size, run.max_seconds, run.seed, run.curve
    )


def _reference(run: ComparedRun) -> pandas.DataFrame:
    """The least Phi that L-BFGS with exact hypergradients finds; the setting says how long."""
    import pandas

    problem = measurement.experiment(run.problem, run.rows)
    iterations = int(run.setting.removeprefix("iterations="))
    least, _ = problem.exact.least(problem.x0, iterations)
    first = problem.value(problem.x0, problem.y0)
    return pandas.DataFrame({"value": [first, least], "step": [0, iterations], "status": "running"})
