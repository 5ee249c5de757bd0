"""Rows on disk against rows in memory: steps per second, and the memory it takes.

    python benchmarks/out_of_core.py --gigabytes 20 --memory 4 --folder /tmp

Makes a file of so many gigabytes of random rows, runs on it with at most so much memory (of the
process itself: RLIMIT_DATA; start it in a control group to bound the page cache too), and runs on
the part of it that `--in-memory` holds. With `--parquet` also on the same rows as a Parquet file, a
column per feature, as pyarrow writes it by default. The files are deleted at the end. All sides
take turns, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

GIGABYTE = 10**9
PIECE = 2**26  # bytes written at a time
ROW_GROUP = 2**16  # rows of a Parquet file's groups


def make(path: Path, gigabytes: float, features: int) -> int:
    """A file of rows, the last column a label; how many there are.

    Random rows are made once and written over and over: making them would take longer than
    writing, and no step is faster for it.
    """
    rng = np.random.default_rng(0)
    truth = (rng.standard_normal(features) / features**0.5).astype(np.float32)
    block = rng.standard_normal((PIECE // (4 * (features + 1)), features + 1), dtype=np.float32)
    block[:, -1] = np.sign(block[:, :-1] @ truth + 0.3 * block[:, -1])
    rows = int(gigabytes * GIGABYTE / (4 * (features + 1)))
    with path.open("wb") as file:
        for written in range(0, rows, len(block)):
            block[: rows - written].tofile(file)
    return rows


def make_parquet(path: Path, raw: Path, rows: int, features: int) -> None:
    """The same rows in columns."""
    import pyarrow
    from pyarrow import parquet

    data = np.memmap(raw, np.float32, "r", shape=(rows, features + 1))
    schema = pyarrow.schema([(name, pyarrow.float32()) for name in names(features)])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, ROW_GROUP):
            block = np.ascontiguousarray(data[start : start + ROW_GROUP].T)
            writer.write_table(pyarrow.table(list(block), schema=schema))


def names(features: int) -> list[str]:
    """What the columns are called."""
    return [f"feature {k}" for k in range(features)] + ["label"]


def functions(features: int) -> tuple:
    """Logistic regression with a penalty per feature."""
    import jax
    import jax.numpy as jnp

    def outer(x: Any, y: Any, batch: Any) -> Any:
        rows = batch["rows"]
        return jax.nn.softplus(-rows[:, -1] * (rows[:, :-1] @ y)).mean()

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return outer(x, y, batch) + 0.5 * (jnp.exp(x) * y**2).sum()

    zeros = np.zeros(features, np.float32)
    return outer, inner, zeros - 4, zeros


def side(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """One measured run; what it took."""
    import untuned

    rows = int(options.rows)
    shape = (rows, options.features + 1)
    data: Any = np.memmap(options.file, np.float32, "r", shape=shape)
    held_out = np.array(data[:10_000])
    if kind == "memory":
        data = np.array(data[: int(options.in_memory * GIGABYTE / data.strides[0])])
    given: Any = {"rows": data}
    if kind == "parquet":
        given = untuned.parquet(options.file + ".parquet", {"rows": names(options.features)})
    if kind != "memory":
        limit = int(options.memory * GIGABYTE)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    marks: list[tuple[int, float, float, float]] = []

    def callback(snapshot: Any) -> bool:
        marks.append((snapshot.step, time.perf_counter(), time.process_time(), time.thread_time()))
        return marks[-1][1] - marks[0][1] > options.seconds

    untuned.minimize(
        *functions(options.features), inner_data=given, outer_data={"rows": held_out},
        method="s-tfbo", batch_size=options.batch, max_steps=10**9, eval_every=500,
        callback=callback,
    )  # fmt: skip
    # What is read before the first record fills buffers: not a rate that lasts.
    first, last = marks[len(marks) // 4], marks[-1]
    steps = last[0] - first[0]
    status = Path("/proc/self/status").read_text().splitlines()
    kilobytes = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("Vm")}
    return {
        "us per step": 1e6 * (last[1] - first[1]) / steps,
        "processor us per step": 1e6 * (last[2] - first[2]) / steps,
        "of which the steps' own thread": 1e6 * (last[3] - first[3]) / steps,
        "peak memory GB": int(kilobytes["VmHWM"]) / 1e6,
        "read GB": steps * options.batch * shape[1] * 4 / GIGABYTE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--memory", type=float, default=4.0)
    parser.add_argument("--in-memory", type=float, default=1.0)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parquet", action="store_true", help="measure Parquet as well")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(side(options.side, options)))
        return
    file = options.folder / "out_of_core.rows"
    in_columns = Path(f"{file}.parquet")
    kinds = ["memory", "disk"] + options.parquet * ["parquet"]
    try:
        rows = make(file, options.gigabytes, options.features)
        if options.parquet:
            make_parquet(in_columns, file, rows, options.features)
        ratios: dict[str, list[float]] = {kind: [] for kind in kinds[1:]}
        for _ in range(options.rounds):
            found = {}
            for kind in kinds:
                command = [sys.executable, __file__, *sys.argv[1:], "--side", kind]
                command += ["--file", str(file), "--rows", str(rows)]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found[kind] = json.loads(output.splitlines()[-1])
                print(kind, {name: round(value, 2) for name, value in found[kind].items()})
            for kind, seen in ratios.items():
                seen.append(found["memory"]["us per step"] / found[kind]["us per step"])
        for kind, seen in ratios.items():
            print(f"speed, {kind} / memory: {np.median(seen):.2f} (rounds: {np.round(seen, 2)})")
    finally:
        for path in (file, in_columns):
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
