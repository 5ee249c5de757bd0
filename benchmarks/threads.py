"""What BLAS threads cost a fit: processor time beside two busy neighbours, and seconds alone.

`untuned clean` on a made table of 8,000 x 86, each time in a fresh process: with the threads that
untuned chooses, and with one thread by OMP_NUM_THREADS. `--default` also measures what BLAS does
when left alone (UNTUNED is told nothing), which under load takes minutes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from common import Row, table

ROWS, COLUMNS = 8000, 86
UNLIMITED = """
import untuned.util.threads as threads
threads.suited_to = lambda entries: 10**6
"""
CLEAN = """
import sys
from untuned.cli import main
sys.argv = ["untuned", "clean", sys.argv[1], "--label", "label", "--out", sys.argv[2]]
main()
"""


def write_table(path: Path, rows: int) -> None:
    """A linear problem with a tenth of the labels wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, COLUMNS))
    labels = (X @ rng.normal(size=COLUMNS) + rng.normal(size=rows) > 0) ^ (rng.random(rows) < 0.1)
    names = ",".join([*(f"c{k}" for k in range(COLUMNS)), "label"])
    np.savetxt(path, np.column_stack([X, labels]), fmt="%.5g", delimiter=",", header=names,
               comments="")  # fmt: skip


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Inside, so many processes do nothing but compute."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure(data: Path, threads: str | None, script: str) -> tuple[float, float]:
    """Seconds by the clock and of the processor of one fresh `untuned clean`."""
    environment = {key: value for key, value in os.environ.items() if "NUM_THREADS" not in key}
    if threads:
        environment["OMP_NUM_THREADS"] = threads
    with tempfile.TemporaryDirectory() as folder:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-c", script, str(data), f"{folder}/out"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, processor


def main() -> None:
    """Alone and beside two busy neighbours; minima over rounds, since others only add time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--default", action="store_true", help="BLAS left alone as well")
    options = parser.parse_args()
    sides = {"chosen": (None, CLEAN), "one": ("1", CLEAN)}
    if options.default:
        sides["left alone"] = (None, UNLIMITED + CLEAN)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "table.csv"
        write_table(data, options.rows)
        for count, name, part in (
            (2, "processor time beside two busy neighbours / one thread", 1),
            (0, "seconds alone / one thread", 0),
        ):
            taken: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
            with neighbours(count):
                for _ in range(options.rounds):
                    for side, how in sides.items():
                        taken[side].append(measure(data, *how))
            least = {side: min(times[part] for times in values) for side, values in taken.items()}
            for side in list(sides)[::2]:
                target = (1.2 if count else 1.05) if side == "chosen" else None
                detail = f"{least[side]:.2f} s / {least['one']:.2f} s"
                rows.append(Row(f"{side}: {name}", target, least[side] / least["one"], "", detail))
    print(table(rows))


if __name__ == "__main__":
    main()
