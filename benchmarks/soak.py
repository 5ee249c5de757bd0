"""An hour at full load: does memory stay flat, and is the last minute as quick as the first?

`python benchmarks/soak.py --minutes 60`. Two loads take turns, each in a process of its own: one
run that goes on and on with a record at every step and a checkpoint, which is what fills histories;
and short runs one after the other, which is what fills caches. Prints a line a minute, and ends
with exit code 1 where memory grew by 1 % or more or steps became slower by 10 % or more, both from
the second sixth of the time, when everything has been set up, to the last.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import untuned

MOST_GROWTH, MOST_SLOWDOWN = 0.01, 0.10
SAMPLES = 60


def resident() -> int:
    """Bytes of memory this process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def problem(library: str) -> dict[str, Any]:
    """A logistic regression with a penalty per feature, in minibatches."""
    rng = np.random.default_rng(0)
    D, t = rng.standard_normal((2000, 20)), rng.choice([-1.0, 1.0], 2000)
    if library == "torch":
        import torch

        D, t = torch.tensor(D), torch.tensor(t)  # type: ignore[assignment]
        softplus, exp, zeros = torch.nn.functional.softplus, torch.exp, torch.zeros(20).double()
    else:
        import jax

        softplus, exp, zeros = jax.nn.softplus, jax.numpy.exp, np.zeros(20)  # type: ignore[assignment]

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return softplus(-batch[1] * (batch[0] @ y)).mean()

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return outer(x, y, batch) + 0.5 * (exp(x) * y**2).mean()

    data = {"outer_data": (D[:1000], t[:1000]), "inner_data": (D[1000:], t[1000:])}
    return {"outer": outer, "inner": inner, "x0": zeros, "y0": zeros, "batch_size": 32} | data


class Watch:
    """Memory and steps per second, sampled evenly over the time given."""

    def __init__(self, name: str, seconds: float):
        self.name, self.seconds = name, seconds
        self.start = self.last = time.monotonic()
        # Speed is per second of work, not of the clock: others may use the machine too.
        self.work = time.process_time()
        self.steps = 0
        self.samples: list[tuple[int, float]] = []

    def tick(self, steps: int) -> bool:
        """Take so many more steps in; says whether the time is over."""
        self.steps += steps
        now = time.monotonic()
        if now - self.last >= self.seconds / SAMPLES:
            gc.collect()
            work = time.process_time()
            self.samples.append((resident(), self.steps / (work - self.work)))
            self.last, self.work, self.steps = now, work, 0
            memory, speed = self.samples[-1]
            said = f"{self.name} {now - self.start:7.0f} s {memory / 2**20:9.2f} MB {speed:9.0f}/s"
            print(said, flush=True)
        return now - self.start >= self.seconds

    def verdict(self) -> bool:
        """Whether it stayed flat, from the second sixth of the time to the last.

        Medians of memory are compared, and the best speeds, since others may use the machine.
        """
        sixth = len(self.samples) // 6
        parts = (self.samples[sixth : 2 * sixth], self.samples[-sixth:])
        memory = [float(np.median([bytes_held for bytes_held, _ in part])) for part in parts]
        speed = [max(speed for _, speed in part) for part in parts]
        growth, slowdown = memory[1] / memory[0] - 1, 1 - speed[1] / speed[0]
        flat = growth < MOST_GROWTH and slowdown < MOST_SLOWDOWN
        print(
            f"{self.name}: memory {memory[0] / 2**20:.1f} -> {memory[1] / 2**20:.1f} MB "
            f"({growth:+.2%}), {speed[0]:.0f} -> {speed[1]:.0f} steps per second of work "
            f"({-slowdown:+.1%}): {'flat' if flat else 'NOT FLAT'}",
            flush=True,
        )
        return flat


def long_run(library: str, watch: Watch) -> None:
    """One run with a record at every step, saved as it goes."""
    with tempfile.TemporaryDirectory() as folder:
        untuned.minimize(
            **problem(library), method="s-tfbo", max_steps=10**9, eval_every=1,
            checkpoint=Path(folder) / "run", callback=lambda snapshot: watch.tick(1),
        )  # fmt: skip


def short_runs(library: str, watch: Watch) -> None:
    """Runs from the beginning, again and again."""
    given = problem(library)
    while not watch.tick(200):
        untuned.minimize(**given, method="s-tfbo", max_steps=200)


LOADS = {"long-run": long_run, "short-runs": short_runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--load", choices=LOADS)
    parser.add_argument("--library", choices=("jax", "torch"))
    asked = parser.parse_args()
    if asked.load and asked.library:
        watch = Watch(f"{asked.load} on {asked.library}", 60 * asked.minutes)
        LOADS[asked.load](asked.library, watch)
        sys.exit(not watch.verdict())
    loads = [(load, library) for load in LOADS for library in ("jax", "torch")]
    codes = [
        subprocess.run(
            [sys.executable, __file__, "--load", load, "--library", library,
             "--minutes", str(asked.minutes / len(loads))]
        ).returncode
        for load, library in loads
    ]  # fmt: skip
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
