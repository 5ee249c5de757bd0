"""What the benchmarks share: data files, interleaved timing, rows and how they are printed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import untuned
from untuned_paper.problems import registry
from untuned_paper.problems.experiment import Experiment

WARM_UP = 2  # rounds that do not count: caches fill, and chunks of a run grow to their length


class Row(NamedTuple):
    """One line of the table; the target is an upper bound, None where a row only informs."""

    name: str
    target: float | None
    measured: float
    unit: str = ""
    detail: str = ""

    @property
    def met(self) -> str:
        if self.target is None:
            return ""
        return "met" if self.measured <= self.target else "MISSED"


class Problem(NamedTuple):
    """A bilevel problem, in the names `untuned.minimize` uses."""

    outer: Callable
    inner: Callable
    x0: Any
    y0: Any
    outer_data: Any
    inner_data: Any


def experiment(name: str) -> Experiment:
    """A problem of the package on real data, or one sentence and exit code 2."""
    try:
        return registry.get(name)
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


@contextmanager
def one_core() -> Iterator[None]:
    """Inside, this process sees one core, so an array library that starts takes one thread.

    On a shared machine several threads wait for each other, on both sides of a ratio, longer
    than the work lasts that the ratio is about.
    """
    if not hasattr(os, "sched_setaffinity"):  # only Linux has it
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def seconds_of(run: Callable[[], Any]) -> float:
    """How long one call takes; `run` must wait for its own result."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def alternate(
    sides: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = WARM_UP
) -> dict[str, np.ndarray]:
    """What each side measures, all sides taking turns so that a noisy machine slows all alike."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(warm_up + rounds):
        for name, side in sides.items():
            measured[name].append(side())
    return {name: np.array(values[warm_up:]) for name, values in measured.items()}


def beside(
    problem: Problem,
    method: Any,
    others: Mapping[str, Callable[[], Any]],
    steps: int,
    rounds: int,
    **settings: Any,
) -> dict[str, np.ndarray]:
    """Seconds per step of a method ("ours") and of each other side, taking turns in one run.

    The clock of a run stands still in its callback, so the other sides are timed there; each of
    their calls must make `steps` steps. Under "ours CPU" and the like is the processor time of
    all threads, which a loaded machine disturbs less; ours then has in it what a clock does not
    show: records, and rows that are drawn while the device works.
    """
    names = [f"{name}{kind}" for name in ("ours", *others) for kind in ("", " CPU")]
    times: dict[str, list[float]] = {name: [] for name in names}
    before, cpu_before = 0.0, time.process_time()

    def time_others(snapshot: untuned.Snapshot) -> None:
        nonlocal before, cpu_before
        times["ours"].append((snapshot.seconds - before) / steps)
        times["ours CPU"].append((time.process_time() - cpu_before) / steps)
        before = snapshot.seconds
        for name, run in others.items():
            start = time.process_time()
            times[name].append(seconds_of(run) / steps)
            times[f"{name} CPU"].append((time.process_time() - start) / steps)
        cpu_before = time.process_time()

    result = untuned.minimize(
        **problem._asdict(), method=method, callback=time_others,
        max_steps=(WARM_UP + rounds) * steps, eval_every=steps, **settings,
    )  # fmt: skip
    if result.status != "max_steps":
        raise RuntimeError(f"The measured run ended early: {result.message}")
    return {name: np.array(values[WARM_UP:]) for name, values in times.items()}


def ratio_row(
    name: str, target: float | None, ours: np.ndarray, base: np.ndarray, unit: str = "s"
) -> Row:
    """The median over rounds of the ratio; beside it its quartiles, and the ratio of minima."""
    low, middle, high = np.quantile(ours / base, [0.25, 0.5, 0.75])
    detail = (
        f"quartiles {low:.3f} to {high:.3f}; of minima {ours.min() / base.min():.3f}; "
        f"medians {_quantity(np.median(ours), unit)} / {_quantity(np.median(base), unit)}"
    )
    return Row(name, target, float(middle), detail=detail)


def _quantity(value: float, unit: str) -> str:
    if unit == "s" and value < 1:
        value, unit = (1e3 * value, "ms") if value >= 1e-3 else (1e6 * value, "us")
    return f"{value:.3g} {unit}"


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| measurement | target | measured | | detail |", "|---|---|---|---|---|"]
    for row in rows:
        target = "" if row.target is None else f"<= {row.target:g}{row.unit}"
        measured = f"{row.measured:.3f}{row.unit}"
        lines.append(f"| {row.name} | {target} | {measured} | {row.met} | {row.detail} |")
    return "\n".join(lines)


def main(measure: Callable[[bool], list[Row]]) -> None:
    """The command line of a benchmark: measure, then print a table or JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="rows as JSON, for run_all.py")
    options = parser.parse_args()
    rows = measure(options.quick)
    print(json.dumps(rows) if options.json else table(rows))
