"""`auto` against the best tuned method, problem by problem: how low, how soon, at which scale.

For each problem Phi is taken, outside the clock, at points of each run that are 1.2 times apart in
time. Phi* is the least Phi that any run found. `auto` runs on all rows. A tuned method runs
on batches of 64 (on all rows where there are none) at its published values; where none are
published, SOBA at the best of a grid of 24 pairs, searched here. The bill of a tuned method is
24 times its own run. Prints Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import untuned
from common import experiment, one_core
from untuned.solvers.auto import implicit, line_search
from untuned.solvers.numerics import lbfgs, preconditioner
from untuned_paper.comparison import grids
from untuned_paper.problems.experiment import Experiment

SUITE = (
    "quadratic-10", "quadratic-100", "quadratic-10000", "breast-cancer", "diabetes-ridge",
    "digits-cleaning", "ijcnn1", "covtype", "covtype-classes", "mnist-0.1", "mnist-0.5",
    "mnist-0.9",
)  # fmt: skip
PUBLISHED = ("soba", "fsla")  # the best two in the comparison that have published values
GRID = [(s, r) for s in (1.0, 0.1, 0.01, 0.001) for r in (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)]
APART = 1.2
SHARES = (0.1, 0.01, 0.001)
NEVER = float("inf")


class Curve(NamedTuple):
    """A run: when it was where."""

    seconds: np.ndarray
    values: np.ndarray


def run(problem: Experiment, method: Any, seconds: float, batch_size: int | None) -> list[tuple]:
    """(seconds, x, y) at points of a run that are APART in time, and at its end."""
    points = [(0.0, problem.x0, problem.y0)]

    def keep(snapshot: Any) -> None:
        if snapshot.seconds >= APART * max(points[-1][0], 1e-4):
            points.append((snapshot.seconds, np.asarray(snapshot.x), np.asarray(snapshot.y)))

    stochastic = batch_size is not None
    result = untuned.minimize(
        **problem.problem(), method=method, batch_size=batch_size, max_seconds=seconds,
        max_steps=10**9 if method != "auto" else 1000,
        eval_every=None if method == "auto" else 64 if stochastic else 8, callback=keep,
    )  # fmt: skip
    if result.status != "diverged":
        points.append((result.seconds, np.asarray(result.x), np.asarray(result.y)))
    return points


def curve(problem: Experiment, points: list[tuple]) -> Curve:
    """Phi along a run."""
    seconds, values = [], []
    for when, x, y in points:
        value = problem.value(x, y) if np.isfinite(x).all() and np.isfinite(y).all() else np.nan
        seconds.append(when)
        values.append(value)
    return Curve(np.array(seconds), np.array(values))


def reached(a: Curve, target: float) -> float:
    """When Phi was first at most `target`, between two points linearly."""
    hits = np.flatnonzero(a.values <= target)
    if not len(hits):
        return NEVER
    k = hits[0]
    if k == 0:
        return 0.0
    share = (a.values[k - 1] - target) / (a.values[k - 1] - a.values[k])
    return float(a.seconds[k - 1] + share * (a.seconds[k] - a.seconds[k - 1]))


def tuned(problem: Experiment, seconds: float) -> dict[str, Curve]:
    """The runs of tuned methods."""
    batch_size = None if problem.inner_data is None else 64
    rows = 0 if batch_size is None else 64 * 1000
    curves = {}
    for name in PUBLISHED:
        if grids.TUNED in grids.settings(name, problem.name) and batch_size:
            if problem.name == "digits-cleaning":
                continue  # borrowed from MNIST; searched below instead
            solver = grids.solver(name, grids.TUNED, problem.name, rows, 64)
            curves[name] = curve(problem, run(problem, solver, seconds, batch_size))
    if not curves:
        best: tuple[float, Any] = (NEVER, None)
        for step_size, outer_ratio in GRID:
            solver = untuned.solvers.SOBA(step_size=step_size, outer_ratio=outer_ratio)
            _, x, y = run(problem, solver, seconds / 10, batch_size)[-1]
            value = problem.value(x, y) if np.isfinite(x).all() else NEVER
            best = min(best, (value, solver), key=lambda pair: pair[0])
        curves["soba, searched"] = curve(problem, run(problem, best[1], seconds, batch_size))
    return curves


def compare(names: list[str], seconds: float) -> None:
    """One line per problem."""
    print("| problem | Phi(x0) | auto: Phi, s | best tuned: Phi | "
          + " | ".join(f"s to {share:.1%}: auto / best tuned" for share in SHARES)
          + " | with the bill, to 1 % |")  # fmt: skip
    print("|---" * (5 + len(SHARES)) + "|")
    for name in names:
        problem = experiment(name)
        ours = curve(problem, run(problem, "auto", seconds, None))
        theirs = tuned(problem, seconds)
        best = min(theirs, key=lambda key: np.nanmin(theirs[key].values))
        least = min(np.nanmin(a.values) for a in (ours, *theirs.values()))
        first = ours.values[0]
        cells, to_one = [], (NEVER, NEVER)
        for share in SHARES:
            target = least + share * (first - least)
            us, them = reached(ours, target), min(reached(a, target) for a in theirs.values())
            cells.append(f"{_short(us)} / {_short(them)}")
            if share == 0.01:
                to_one = (us, them)
        bill = 24 * seconds + min(to_one[1], seconds)
        ahead = ("" if np.isfinite(to_one[1]) else "> ") + _short(bill / max(to_one[0], 1e-9))
        ends = f"{ours.values[-1]:.6g}, {ours.seconds[-1]:.2f}"
        low = f"{np.nanmin(theirs[best].values):.6g} ({best})"
        print(f"| {name} | {first:.6g} | {ends} | {low} | {' | '.join(cells)} | {ahead} x |")


def _short(value: float) -> str:
    return "never" if not np.isfinite(value) else f"{value:.3g}"


def scaled(problem: Experiment, of_f: float, of_g: float, of_x: float) -> dict[str, Any]:
    """The same problem in other units."""

    def times(constant: float, function: Callable) -> Callable:
        return lambda x, y, batch: constant * function(x / of_x, y, batch)

    return problem.problem() | {
        "outer": times(of_f, problem.outer),
        "inner": times(of_g, problem.inner),
        "x0": np.float64(problem.x0) * of_x,
        "y0": np.float64(problem.y0),
    }


def sensitivity(name: str) -> None:
    """The spread of the final Phi over units of f, g and x, in float64."""
    problem = experiment(name)
    units = [(1.0, 1.0, 1.0)]
    units += [(c, 1.0, 1.0) for c in (1e-6, 1e-3, 1e3, 1e6)]
    units += [(1.0, c, 1.0) for c in (1e-6, 1e-3, 1e3, 1e6)]
    units += [(1.0, 1.0, c) for c in (1e-3, 1e3)]
    methods = {
        "auto": "auto",
        "d-tfbo": untuned.solvers.DTFBO(inner_steps=10, linear_steps=10),
        "s-tfbo": "s-tfbo",
        "soba": untuned.solvers.SOBA(step_size=0.1, outer_ratio=0.01),
    }
    print(f"\nFinal Phi on {name} over 11 choices of units, 500 steps\n")
    print("| method | least | largest | diverged |\n|---|---|---|---|")
    for label, method in methods.items():
        ends, lost = [], 0
        for unit in units:
            result = untuned.minimize(**scaled(problem, *unit), method=method, max_steps=500)
            lost += result.status == "diverged"
            ends.append(problem.value(np.asarray(result.x) / unit[2], np.asarray(result.y)))
        print(f"| {label} | {min(ends):.6g} | {max(ends):.6g} | {lost} |", flush=True)


def growth() -> None:
    """Time against rows on Covtype, of the processor and with compilation."""
    whole = experiment("covtype")
    count = len(whole.inner_data.labels)
    print("\nCovtype, seconds of `auto` to a share of the way, and until it ends by itself\n")
    print("| rows | first step | to 1 % | to 0.1 % | end | Phi | |\n|---|---|---|---|---|---|---|")
    for share in (0.01, 0.1, 1.0):
        part = whole.first_rows(int(share * count))
        when: list[float] = []  # the processor's clock at the start and at every record
        note = partial(_note, when)
        note(None)
        result = untuned.minimize(**part.problem(), max_seconds=600, callback=note)
        note(None)
        first, last = part.value(part.x0, part.y0), result.history["outer"][-1]
        at = [reached_at(result, last + left * (first - last)) for left in (0.01, 0.001)]
        shown = " | ".join(f"{when[k] - when[0]:.2f}" for k in (1, *(1 + k for k in at), -1))
        print(f"| {len(part.inner_data.labels):,} | {shown} | {last:.5f} | {result.status} |",
              flush=True)  # fmt: skip


def _note(when: list[float], _: Any) -> None:
    when.append(time.process_time())


def reached_at(result: Any, target: float) -> int:
    """The record from which f is at most `target`."""
    above = np.flatnonzero(result.history["outer"] > target)
    return int(above[-1] + 1) if len(above) else 0


# What `auto` is made of, each part taken away: module, constant, value.
ABLATIONS = {
    "as it is": (),
    "no preconditioner": ((preconditioner, "MOST_VARIABLES", 0),),
    "y and v to 1e-3": ((line_search, "SHARE", 1e-3), (line_search, "FIRST_SHARE", 1e-3)),
    "one pair for BFGS": ((lbfgs, "PAIRS", 1),),
    "first step 1e-3": ((implicit, "FIRST_LENGTH", 1e-3),),
}


def ablation(name: str, seconds: float) -> None:
    """What each part saves."""
    problem = experiment(name)
    runs = {}
    for label, changes in ABLATIONS.items():
        before = [(module, constant, getattr(module, constant)) for module, constant, _ in changes]
        for module, constant, value in changes:
            setattr(module, constant, value)
        runs[label] = untuned.minimize(**problem.problem(), max_seconds=seconds)
        for module, constant, value in before:
            setattr(module, constant, value)
    least = min(result.history["outer"][-1] for result in runs.values())
    first = problem.value(problem.x0, problem.y0)
    print(f"\n`auto` on {name}, parts taken away: products and seconds to 1 % and 0.1 %\n")
    print("| | to 1 % | to 0.1 % | f at the end |\n|---|---|---|---|")
    for label, result in runs.items():
        cells = []
        for share in (0.01, 0.001):
            k = reached_at(result, least + share * (first - least))
            there = k < result.history.records
            hvp, when = (result.history[column] for column in ("hvp", "seconds"))
            cells.append(f"{hvp[k]}, {when[k]:.2f} s" if there else "not reached")
        print(f"| {label} | {' | '.join(cells)} | {result.history['outer'][-1]:.6f} |", flush=True)


def main() -> None:
    """The parts asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run")
    parser.add_argument("--problem", action="append", choices=SUITE, help="only these")
    parser.add_argument("--part", choices=("compare", "sensitivity", "growth", "ablation"))
    options = parser.parse_args()
    with one_core():
        if options.part in (None, "compare"):
            compare(options.problem or list(SUITE), options.seconds)
        if options.part in (None, "sensitivity"):
            for name in ("diabetes-ridge", "digits-cleaning", "breast-cancer"):
                sensitivity(name)
        if options.part in (None, "growth"):
            growth()
        if options.part in (None, "ablation"):
            for name in ("covtype", "mnist-0.5"):
                ablation(name, 3 * options.seconds)


if __name__ == "__main__":
    main()
