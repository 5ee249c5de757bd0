"""The user's clock: fresh processes from their start to the result, compilation in it.

`auto` on JAX (a first process, and a second one that finds the first one's programs on disk) and on
torch, the expert's lines (expert.py), and SOBA and FSLA at the best of a grid of step sizes that is
searched here and not on the bill. One strength per feature, float64, one core. Phi is taken by the
expert's Newton method to a gradient of 1e-9, outside of all processes that are timed.

Phi has several minima in x, so who ends lowest is partly luck, and no side can be asked to find
another one's. So there are two questions. When is a side as good as the expert's answer: 0.1 % of
the way from Phi(x0) to where the expert ends are left? And when is it near the best that any side
found: 1 % of the way to that are left? The ends themselves are printed beside.
Seconds are those of the processor, since those by the clock tell how busy a machine is. All sides
find their modules as bytecode, as an installed package has them. What a side did is kept in a
folder (`--keep`) and not done again. Prints Markdown: a line for each side, and at the end what was
asked for (issue 18) and whether it held.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

import expert
import untuned
from clock_verdicts import EXPERT, FIRST, SECOND, TORCH, TUNED, Compared, short, verdicts

HERE = Path(__file__).parent
GRID = [(s, r) for s in (1.0, 0.1, 0.01) for r in (1.0, 0.1, 0.01)]
GRID_SHARE = 8  # a point of the grid gets one part in so many of a run's time
STRENGTHS = (-200.0, 60.0)
SOLVED = 1e-6  # the gradient that may be left of g where Phi is taken; most often it is 1e-9
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def _split(kind: str, X: np.ndarray, t: np.ndarray, seed: int) -> dict[str, Any]:
    """70 % of the rows for g, 30 % for f."""
    order = np.random.default_rng(seed).permutation(len(X))
    train, validation = np.split(order, [int(0.7 * len(X))])
    X = np.ascontiguousarray(X, float)
    y0 = np.zeros((X.shape[1], t.max() + 1)) if kind == "softmax" else np.zeros(X.shape[1])
    return {
        "kind": kind, "X": X[train], "t": t[train], "X_val": X[validation], "t_val": t[validation],
        "x0": np.full(X.shape[1], -2.0), "y0": y0,
    }  # fmt: skip


def _standard(X: np.ndarray) -> np.ndarray:
    spread = X.std(0)
    return (X - X.mean(0)) / np.where(spread > 0, spread, 1)


def _labels(z: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.where(random.random(len(z)) < 1 / (1 + np.exp(-z)), 1.0, -1.0)


def breast_cancer() -> dict[str, Any]:
    """569 x 30, real."""
    X, t = datasets.load_breast_cancer(return_X_y=True)
    return _split("logistic", _standard(X), np.where(t == 1, 1.0, -1.0), 1)


def diabetes() -> dict[str, Any]:
    """442 x 10, real, least squares."""
    X, t = datasets.load_diabetes(return_X_y=True)
    return _split("squares", _standard(X), (t - t.mean()) / t.std(), 2)


def digits() -> dict[str, Any]:
    """1,797 x 64, real, ten classes: 640 inner variables."""
    X, t = datasets.load_digits(return_X_y=True)
    return _split("softmax", _standard(X), t, 3)


def counts() -> dict[str, Any]:
    """4,601 x 57, skewed counts of which many are zero."""
    random = np.random.default_rng(4)
    X = np.exp(random.standard_normal((4601, 57))) * (random.random((4601, 57)) < 0.2)
    X = _standard(X)
    weights = random.standard_normal(57) * (random.random(57) < 0.4)
    return _split("logistic", X, _labels(X @ weights - 0.5, random), 4)


def categories() -> dict[str, Any]:
    """32,561 x 123, fourteen columns of categories as zeros and ones."""
    random = np.random.default_rng(5)
    sizes = [5, 8, 5, 16, 7, 14, 6, 5, 2, 2, 2, 5, 41, 5]
    columns = []
    for size in sizes:
        shares = random.dirichlet(np.full(size, 0.5))
        columns.append(np.eye(size)[random.choice(size, 32561, p=shares)])
    X = np.hstack(columns)
    z = X @ random.standard_normal(123)
    return _split("logistic", X, _labels(z - np.quantile(z, 0.8), random), 5)


def rare_words() -> dict[str, Any]:
    """49,749 x 300, zeros and ones, most of them rare, 3 % of the labels positive."""
    random = np.random.default_rng(6)
    shares = np.exp(random.uniform(np.log(0.002), np.log(0.2), 300))
    X = (random.random((49749, 300)) < shares).astype(float)
    z = X @ (2 * random.standard_normal(300) * (random.random(300) < 0.3))
    return _split("logistic", X, _labels(2 * (z - np.quantile(z, 0.98)), random), 6)


def classes() -> dict[str, Any]:
    """12,000 x 20, five classes."""
    random = np.random.default_rng(7)
    X = random.standard_normal((12000, 20)) @ random.standard_normal((20, 20)) / 4
    z = X @ (random.standard_normal((20, 5)) * (random.random((20, 1)) < 0.5))
    t = np.argmax(z + random.gumbel(size=z.shape), 1)
    return _split("softmax", X, t, 7)


def squares() -> dict[str, Any]:
    """20,000 x 150, least squares, few features matter."""
    random = np.random.default_rng(8)
    X = random.standard_normal((20000, 150)) @ (np.eye(150) + 0.1)
    t = X @ (random.standard_normal(150) * (random.random(150) < 0.1))
    return _split("squares", X, t + 3 * random.standard_normal(20000), 8)


def badly_scaled() -> dict[str, Any]:
    """5,000 x 40, columns whose sizes go from 1e-3 to 1e3."""
    random = np.random.default_rng(9)
    X = _standard(random.standard_normal((5000, 40)) @ random.standard_normal((40, 40)))
    t = _labels(X @ random.standard_normal(40), random)
    return _split("logistic", X * 10.0 ** random.uniform(-3, 3, 40), t, 9)


def ijcnn1() -> dict[str, Any]:
    """49,990 x 22, real (needs UNTUNED_DATA)."""
    from untuned_paper.datasets import load

    data = load("ijcnn1")
    t = np.where(data["y_train"] > 0, 1.0, -1.0)
    return _split("logistic", data["X_train"], t, 10)


PROBLEMS: dict[str, Callable[[], dict[str, Any]]] = {
    "breast-cancer 569x30": breast_cancer,
    "diabetes 442x10": diabetes,
    "digits 1,797x64x10": digits,
    "counts 4,601x57": counts,
    "badly scaled 5,000x40": badly_scaled,
    "classes 12,000x20x5": classes,
    "squares 20,000x150": squares,
    "categories 32,561x123": categories,
    "rare words 49,749x300": rare_words,
    "ijcnn1 49,990x22": ijcnn1,
}
QUICK = ("breast-cancer 569x30", "counts 4,601x57", "diabetes 442x10", "badly scaled 5,000x40")


def side(name: str, path: Path, cache: str, seconds: float, **options: Any) -> dict[str, Any]:
    """What one side did in a process of its own; `cache` is the folder where JAX keeps programs.

    A side whose name and options are known from before is not run again.
    """
    words = " ".join([path.stem, cache, name, *options])
    known = path.parent / f"{words.replace(' ', '_')}.json"
    if not known.exists():
        found = _run(name, path, path.parent / cache / path.stem, {"seconds": seconds} | options)
        known.write_text(json.dumps(found))
    return json.loads(known.read_text())


def _run(name: str, path: Path, cache: Path, options: dict[str, Any]) -> dict[str, Any]:
    words = [sys.executable, str(HERE / "clock_side.py"), name, str(path)]
    environment = os.environ | ONE_THREAD | {"XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [*words, json.dumps(options)], env=environment, text=True, capture_output=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} failed on {path.stem}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


class Judge:
    """Phi, by Newton's method on all rows, from y0 each time: no value depends on another."""

    def __init__(self, problem: dict[str, Any]):
        self.kind, self.y0 = problem["kind"], problem["y0"]
        self.rows = (problem["X"], problem["t"]), (problem["X_val"], problem["t_val"])
        self.known: dict[bytes, float] = {}

    def __call__(self, x: Any) -> float:
        x = np.asarray(x, float)
        if not np.isfinite(x).all():
            return math.inf
        # A strength beyond these makes no y larger or smaller that anyone could see.
        x = np.clip(x, *STRENGTHS)
        if x.tobytes() not in self.known:
            value, left = expert.phi(self.kind, *self.rows, x, self.y0)
            if not (math.isfinite(value) and left <= SOLVED):
                print(f"No y* to a gradient of {SOLVED:g}: {left:g} is left.", file=sys.stderr)
                value = math.inf
            self.known[x.tobytes()] = value
        return self.known[x.tobytes()]

    def reached(self, done: dict[str, Any], target: float) -> float:
        """When a side was at `target` and stayed there, by halving: sides go down."""
        points = done["points"]
        if self(points[-1][2]) > target:
            return math.inf
        low, high = -1, len(points) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self(points[middle][2]) <= target else (middle, high)
        return points[high][0]


def tuned(name: str, path: Path, seconds: float, judge: Judge) -> dict[str, Any]:
    """A tuned method, at the best of the grid."""
    grid = side(name, path, "grid", seconds / GRID_SHARE, grid=GRID)
    values = [judge(x) for x in grid["ends"]]
    step_size, outer_ratio = chosen = GRID[int(np.argmin(values))]
    done = side(name, path, "first", seconds, step_size=step_size, outer_ratio=outer_ratio)
    return done | {"chosen": chosen, "tuning": grid["spent"]}


def compare(name: str, folder: Path, seconds: float, with_tuned: bool) -> Compared:
    """The lines of one problem, printed, and what they are judged by."""
    problem = PROBLEMS[name]()
    path = folder / f"{PROBLEMS[name].__name__}.npz"
    np.savez(path, **problem)
    judge = Judge(problem)
    done = {FIRST: side("jax auto", path, "first", seconds)}
    done[SECOND] = side("jax auto", path, "first", seconds, process=2)
    done[TORCH] = side("torch auto", path, "first", seconds)
    done[EXPERT] = side("expert", path, "first", seconds)
    if with_tuned:
        for method in TUNED:
            done[method] = tuned(f"jax {method}", path, seconds, judge)
    ends = {key: judge(one["points"][-1][2]) for key, one in done.items()}
    first, best = judge(problem["x0"]), min(ends.values())

    def times(goal: float, share: float) -> dict[str, float]:
        target = goal + share * (first - goal)
        return {key: judge.reached(one, target) for key, one in done.items()}

    near_best, as_expert = times(best, 0.01), times(ends[EXPERT], 0.001)
    firsts = {key: one["points"][0][0] for key, one in done.items()}
    lasts = {key: one["points"][-1][0] for key, one in done.items()}
    rows = len(problem["X"]) + len(problem["X_val"])
    compared = Compared(name, rows, as_expert, near_best, firsts, lasts)
    for key, one in done.items():
        own = f"{one['run']:.2f}, {one['compiling']:.2f}" if "run" in one else ""
        within = "yes" if compared.is_within(key) else "no"
        label = key
        if "tuning" in one:
            label += f" {one['chosen']}, tuned in {one['tuning']:.0f} s"
        cells = [
            name, label, f"{ends[key]:.6f}", f"{one['points'][-1][0]:.2f}",
            short(as_expert[key]), within, short(near_best[key]), own,
            str(one.get("steps", len(one["points"]))),
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    return compared


def main() -> None:
    """All problems, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small problems, no tuned methods")
    parser.add_argument("--no-tuned", action="store_true", help="without SOBA and FSLA")
    parser.add_argument("--problem", action="append", choices=PROBLEMS, help="only these")
    parser.add_argument("--keep", help="a folder for what sides did, to go on from")
    parser.add_argument("--seconds", type=float, default=60.0, help="most, of a run")
    options = parser.parse_args()
    for folder in (HERE, Path(untuned.__file__).parent):
        compileall.compile_dir(folder, quiet=1)
    names = options.problem or (QUICK if options.quick else list(PROBLEMS))
    print("| problem | side | Phi at the end | s to the end | as good as the expert | within 1.5 x "
          "+ 2 s | near the best | run, compiling | steps |")  # fmt: skip
    print("|---" * 9 + "|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        seen = []
        for name in names:
            with_tuned = not (options.quick or options.no_tuned)
            seen.append(compare(name, folder, options.seconds, with_tuned))
    verdicts(seen)


if __name__ == "__main__":
    main()
