"""What is done with the files the package reads, given any bytes: a result, or a ValueError of one
sentence. Anything else that comes out of a target is a defect.

Shared by `run.py`, which lets atheris look for such bytes, and by tests/tables/test_bad_files.py.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from untuned.commands import job, record
from untuned.experiments import datasets
from untuned.experiments.comparison import records
from untuned.report import run_page
from untuned.run.checkpoint import storage
from untuned.run.result import COLUMNS, History, Result

RUN = records.ComparedRun("digits-cleaning", "soba", "tuned", 0, None, 64, 1.0, True)


class NotOneSentenceError(AssertionError):
    """An error whose text would not help the person who reads it."""


@contextmanager
def sentence_or_result():
    """Let a ValueError of one sentence pass, and warnings of the libraries below."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ValueError, OSError) as error:
            if not is_one_sentence(str(error)):
                raise NotOneSentenceError(str(error)) from error


def is_one_sentence(text: str) -> bool:
    """On one line, not long, and with an end."""
    return text.isprintable() and len(text) < 600 and bool(re.search(r"[.:]|\w$", text))


def sample_table() -> pd.DataFrame:
    """A table with a column of every kind."""
    rng = np.random.default_rng(0)
    rows = 24
    return pd.DataFrame(
        {
            "age": rng.normal(40, 9, rows).round(2),
            "city": rng.choice(["Oslo", "Bonn", "Rome"], rows),
            "when": [f"2020-01-{day + 1:02d}" for day in range(rows)],
            "member": rng.random(rows) < 0.5,
            "holes": np.where(rng.random(rows) < 0.3, np.nan, rng.normal(size=rows)),
            "label": rng.choice(["yes", "no"], rows),
        }
    )


def read_checkpoint(folder: Path, content: bytes) -> None:
    path = folder / "run"
    path.write_bytes(content)
    with sentence_or_result():
        storage.load(path)


def read_table(folder: Path, content: bytes) -> None:
    """Read a table and make numbers of it, the last column being the label."""
    path = folder / "train"
    path.write_bytes(content)
    with sentence_or_result():
        from untuned.tables import files

        label = str(files.read(path).frame.columns[-1])
        ready = job.make_ready(path, label, None)
        assert np.isfinite(ready.X).all()
        assert ready.seen is not None


def read_trusted(folder: Path, content: bytes) -> None:
    """Read trusted rows beside a table that is right."""
    sample_table().to_csv(folder / "train.csv", index=False)
    path = folder / "trusted"
    path.write_bytes(content)
    with sentence_or_result():
        ready = job.make_ready(folder / "train.csv", "label", "classes")
        X, _ = job.make_trusted_ready(path, "label", ready)
        assert np.isfinite(X).all()


def sample_run(folder: Path, kind: str = "csv") -> None:
    """The folder of a run of `untuned regularize`, as its command writes it."""
    path = folder.parent / f"table.{kind}"
    table = sample_table()
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    history = History()
    for step in range(1, 4):
        history.append(dict.fromkeys(COLUMNS, step))
    result = Result(None, None, None, "converged", "Done.", 3, 0.5, 1.5, {}, history, None)
    told = job.Job("regularize", path, "label", folder, "auto", 0, None, False)
    names = ["age", "city"]
    record.write(
        folder, told, job.make_ready(path, "label", None), result,
        summary={
            "rows": 24, "features": 2, "strengths": 2, "smallest_strength": 0.5,
            "largest_strength": 2.0, "outer_loss_first": 1.0, "outer_loss_last": 0.5,
        },
        tables={
            "strengths": pd.DataFrame(
                {"feature": names, "strength": [0.5, 2.0], "largest_coefficient": [1.0, 0.1]}
            ),
            "coefficients": pd.DataFrame({"_feature": names, "yes": [1.0, 0.1]}),
            "path": pd.DataFrame(
                {"strength": [2.0, 0.5], "loss": [1.0, 0.5], "standard_error": [0.1, 0.1]}
            ),
            "lines": pd.DataFrame(
                {"feature": names, "strength": [2.0, 0.5], "coefficient": [0.0, 1.0]}
            ),
            "entered": pd.DataFrame({"feature": names, "strength": [2.0, 0.5]}),
            "search": pd.DataFrame({"feature": names, "step": [0, 1], "strength": [1.0, 0.5]}),
        },
        settings={"penalty": "feature"},
    )  # fmt: skip


def _report_with(folder: Path, name: str, content: bytes) -> None:
    """Write the page of a run of which one file is `content`."""
    run, out = folder / "run", folder / "out"
    run.mkdir(exist_ok=True)
    out.mkdir(exist_ok=True)
    if not (run / "whole").exists():
        sample_run(run)
        shutil.copytree(run, run / "whole")
    for file in (run / "whole").iterdir():
        shutil.copy(file, run / file.name)
    (run / name).write_bytes(content)
    with sentence_or_result():
        run_page.write(run, out)
    left = {path.name for path in out.iterdir()}
    assert left <= {"report.html"}, left


def read_result(folder: Path, content: bytes) -> None:
    _report_with(folder, "result.json", content)


def read_run_table(folder: Path, content: bytes) -> None:
    _report_with(folder, "strengths.csv", content)


def read_history(folder: Path, content: bytes) -> None:
    _report_with(folder, "history.csv", content)


def read_record(folder: Path, content: bytes) -> None:
    """A record that is not whole is none; it never raises."""
    records.path(folder, RUN).write_bytes(content)
    records.read(folder, RUN)


def read_data_set(folder: Path, content: bytes) -> None:
    path = folder / "covtype.npz"
    path.write_bytes(content)
    with sentence_or_result():
        datasets._read(path, ("X", "y"))


TARGETS: dict[str, Callable[[Path, bytes], None]] = {
    "checkpoint": read_checkpoint,
    "table": read_table,
    "trusted": read_trusted,
    "result": read_result,
    "run-table": read_run_table,
    "history": read_history,
    "record": read_record,
    "data-set": read_data_set,
}


def seeds(name: str, folder: Path) -> list[bytes]:
    """Good files of a kind, from which bad ones are made."""
    table = sample_table()
    csv = table.to_csv(index=False).encode()
    parquet = folder / "seed.parquet"
    table.to_parquet(parquet)
    if name in ("table", "trusted"):
        other = csv.decode().replace(",", ";").encode("utf-8-sig")
        return [csv, parquet.read_bytes(), other, b"a,b\n1,2\n", b"a\n1\n2\n"]
    if name == "checkpoint":
        path = folder / "seed"
        storage.save(path, {"a": np.arange(3), ".b": np.ones((2, 2))}, {"run": {}, "steps": 3})
        return [path.read_bytes()]
    if name in ("result", "run-table", "history"):
        run = folder / "seed run"
        run.mkdir(exist_ok=True)
        sample_run(run)
        file = {"result": "result.json", "run-table": "strengths.csv", "history": "history.csv"}
        content = (run / file[name]).read_bytes()
        small = json.dumps(json.loads(content)).encode() if name == "result" else content
        return [content, small, b"{}", b""]
    if name == "record":
        records.write(folder, RUN, pd.DataFrame({"value": [2.0, 1.0], "status": ["a", "b"]}))
        return [records.path(folder, RUN).read_bytes()]
    path = folder / "seed.npz"
    np.savez(path, X=np.ones((3, 2)), y=np.arange(3))
    return [path.read_bytes()]
