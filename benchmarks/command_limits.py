"""What `--max-seconds` asks of the commands and what they take, from start to end.

Each runs on a made table in a process of its own. Seconds of the processor are shown beside those
of the clock: on a busy machine the second say who else is busy. Prints Markdown; `no` where the
clock is beyond the limit by more than 10 % and by more than a second, and nothing was said.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

COMMANDS = (["clean"], ["regularize"], ["coreset", "--size", "200"])


def made(path: Path, rows: int, columns: int) -> None:
    """A table of two classes, one label in ten wrong."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns)).round(4)
    wrong = rng.random(rows) < 0.1
    frame = pd.DataFrame(X, columns=[f"a{place}" for place in range(columns)])
    frame.assign(y=(X[:, :5].sum(axis=1) > 0) != wrong).to_csv(path, index=False)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1, 5, 20])
    options = parser.parse_args()
    print("| command | asked | clock | processor | said | kept |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        made(path, options.rows, options.columns)
        for command in COMMANDS:
            for seconds in options.seconds:
                line = [sys.executable, "-c", "from untuned.cli import main; main()", *command]
                line += [str(path), "--label", "y", "--max-seconds", str(seconds)]
                line += ["--out", str(Path(folder, "out")), "--overwrite"]
                start, before = time.perf_counter(), os.times()
                done = subprocess.run(line, capture_output=True, text=True, check=True)
                took, after = time.perf_counter() - start, os.times()
                worked = after.children_user - before.children_user
                worked += after.children_system - before.children_system
                said = "--max-seconds" in done.stderr
                kept = said or took <= seconds + max(1, 0.1 * seconds)
                print(
                    f"| {command[0]} | {seconds:g} s | {took:.1f} s | {worked:.1f} s | "
                    f"{'yes' if said else ''} | {'yes' if kept else 'no'} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
