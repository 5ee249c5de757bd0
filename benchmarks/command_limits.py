"""What `--max-seconds` asks of the commands and what they take, from start to end.

Each runs on three tables in a process of its own: two made ones, and rows of Covertype. Seconds of
the processor are shown beside those of the clock: on a busy machine the second say who else is
busy. Prints Markdown. `kept` says whether a sentence at the start told of a longer time, or the
command ended within 10 % or a second of the limit, by the clock and by the processor.
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

COMMANDS = (["clean"], ["regularize"], ["coreset", "--size", "50"])
SHAPES = ((150, 4), (2_000, 20), (20_000, 54))


def table(rows: int, columns: int) -> pd.DataFrame:
    """Two classes, one label in ten wrong; or rows of Covertype, where they have its width."""
    rng = np.random.default_rng(0)
    names = [f"a{place}" for place in range(columns)]
    if columns == 54:
        covtype = np.load(Path(os.environ["UNTUNED_DATA"], "covtype.npz"))
        some = rng.permutation(len(covtype["y"]))[:rows]
        return pd.DataFrame(covtype["X"][some], columns=names).assign(y=covtype["y"][some])
    X = rng.standard_normal((rows, columns)).round(4)
    wrong = rng.random(rows) < 0.1
    return pd.DataFrame(X, columns=names).assign(y=(X[:, :2].sum(axis=1) > 0) != wrong)


def run(command: list[str], path: Path, seconds: float) -> str:
    """A line of the table."""
    line = [sys.executable, "-c", "from untuned.cli import main; main()", *command]
    line += [str(path), "--label", "y", "--max-seconds", str(seconds)]
    line += ["--out", str(path.with_name("out")), "--overwrite"]
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    took, after = time.perf_counter() - start, os.times()
    worked = after.children_user - before.children_user
    worked += after.children_system - before.children_system
    said = "--max-seconds" in done.stderr
    kept = ["yes" if said or t <= seconds + max(1, 0.1 * seconds) else "no" for t in (took, worked)]
    shown = f"{seconds:g} s | {took:.1f} s | {worked:.1f} s | {'yes' if said else ''}"
    return " | ".join([shown, *kept])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1, 3, 10])
    options = parser.parse_args()
    print(
        "| table | command | asked | clock | processor | said | kept (clock) | kept (processor) |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        for shape in SHAPES:
            table(*shape).to_csv(path, index=False)
            for command in COMMANDS:
                for seconds in options.seconds:
                    name = f"{shape[0]:,} x {shape[1]}"
                    line = run(command, path, seconds)
                    print(f"| {name} | {command[0]} | {line} |", flush=True)


if __name__ == "__main__":
    main()
