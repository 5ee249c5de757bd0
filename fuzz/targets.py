"""What is done with the files the package reads, given any bytes: a result, or a ValueError of one
sentence. Anything else that comes out of a target is a defect.

Shared by `run.py`, which lets atheris look for such bytes, and by tests/tables/test_bad_files.py.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, save_npz

import untuned
from untuned.commands import job, record, sources
from untuned.report import run_page
from untuned.run.checkpoint import storage
from untuned.run.result import COLUMNS, History, Result
from untuned.tables import columns, decisions, files, group_files, images, labels, row_files
from untuned_paper import datasets
from untuned_paper.comparison import records

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


def read_checkpoint(path: Path) -> None:
    storage.load(path)


def read_table(path: Path, takes: columns.Takes = columns.DENSE) -> None:
    """Read a table and make numbers of it, the last column being the label."""
    label = str(files.read(path).frame.columns[-1])
    ready = job.make_ready(path, label, None, takes)
    assert np.isfinite(_values(ready.X)).all()
    assert ready.seen is not None


def read_texts(path: Path) -> None:
    """A table that may have columns of texts, the last column being the label."""
    read_table(path, sources.TAKES)


def _values(found: Any) -> np.ndarray:
    return found.data if hasattr(found, "toarray") else found


def _train(path: Path) -> Path:
    """A table that is right, beside the file."""
    sample_table().to_csv(path.parent / "train.csv", index=False)
    return path.parent / "train.csv"


def read_trusted(path: Path) -> None:
    """Read trusted rows beside a table that is right."""
    ready = job.make_ready(_train(path), "label", "classes")
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


def read_run_file(path: Path) -> None:
    """Write the page of a run of which one file is given."""
    run, out = path.parent / "run", path.parent / "out"
    run.mkdir(exist_ok=True)
    out.mkdir(exist_ok=True)
    if not (run / "whole").exists():
        sample_run(run)
        shutil.copytree(run, run / "whole")
    for file in (run / "whole").iterdir():
        shutil.copy(file, run / file.name)
    shutil.copy(path, run / path.name)
    try:
        run_page.write(run, out)
    finally:
        left = {each.name for each in out.iterdir()}
        assert left <= {"report.html"}, left


def read_record(path: Path) -> None:
    """A record that is not whole is none; it never raises."""
    shutil.copy(path, records.path(path.parent, RUN))
    try:
        records.read(path.parent, RUN)
    except (ValueError, OSError) as error:
        raise AssertionError("a record raised") from error


def read_data_set(path: Path) -> None:
    datasets._read(path, ("X", "y"))


def read_features(path: Path) -> None:
    """Embeddings of a table's rows, dense or sparse."""
    found = row_files.features(path, len(sample_table()), _train(path))
    assert np.isfinite(_values(found)).all()
    assert found.shape[0] == len(sample_table())


def read_probabilities(path: Path) -> None:
    """Probabilities of a table's rows, as an array or as a table."""
    classes = np.array(["no", "yes"])
    found = row_files.probabilities(path, len(sample_table()), _train(path), classes)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    assert found.shape[0] == len(sample_table())


def read_decisions(path: Path) -> None:
    """What people decided about the rows of a table."""
    of = _train(path)
    table = files.read(of)
    given = labels.read(table, "label", "classes")
    found = decisions.read(path, table.frame, given, of, ("linear", "trees"))
    assert len(found.settled) == len(found.values)
    assert np.isin(found.values, ["yes", "no"]).all()


def read_groups(path: Path) -> None:
    """Which columns of a table share a strength."""
    of = _train(path)
    ready = job.make_ready(of, "label", None)
    found = group_files.read(path, ready.columns, of)
    assert set(found) == {each.name for each in ready.columns if each.kind != "left out"}


def read_matrix(path: Path) -> None:
    """A matrix without a table, with its labels in it."""
    found, table, _ = row_files.matrix(path, "topic")
    assert found.shape[0] == len(table.frame)


def read_rows_on_disk(path: Path) -> None:
    """A Parquet file whose rows a run reads batch by batch."""
    zero = np.zeros(1)
    untuned.minimize(
        lambda x, y: ((y - 1) ** 2).sum(),
        lambda x, y, b: ((y - x) ** 2).sum() + (b["age"] * y).mean() ** 2,
        zero, zero, inner_data=untuned.parquet(path, {"age": "age"}), batch_size=8,
        method="s-tfbo", max_steps=2,
    )  # fmt: skip


def read_image(path: Path) -> None:
    """An image among good ones, in a folder of two classes."""
    place = path.parent / "images"
    for name in ("cats", "dogs"):
        (place / name).mkdir(parents=True, exist_ok=True)
        for number in range(2):
            (place / name / f"{number}.png").write_bytes(_png())
    shutil.copy(path, place / "cats")
    found = images.read(place, "label")
    assert len(found.frame) + len(found.damaged) == 5


def _png() -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(written, "PNG")
    return written.getvalue()


def _target(read: Callable[[Path], None], *names: str) -> Callable[[Path, bytes], None]:
    """Read the content from files of these names."""

    def target(folder: Path, content: bytes) -> None:
        for name in names:
            (folder / name).write_bytes(content)
            with sentence_or_result():
                read(folder / name)

    return target


TARGETS: dict[str, Callable[[Path, bytes], None]] = {
    "checkpoint": _target(read_checkpoint, "run"),
    "table": _target(read_table, "train"),
    "trusted": _target(read_trusted, "trusted"),
    "result": _target(read_run_file, "result.json"),
    "run-table": _target(read_run_file, "strengths.csv"),
    "history": _target(read_run_file, "history.csv"),
    "record": _target(read_record, "record"),
    "data-set": _target(read_data_set, "covtype.npz"),
    "features": _target(read_features, "rows.npy", "rows.npz"),
    "probabilities": _target(read_probabilities, "rows.npy", "rows.npz", "rows.csv"),
    "decisions": _target(read_decisions, "decisions.csv"),
    "groups": _target(read_groups, "groups.csv"),
    "matrix": _target(read_matrix, "words.npz"),
    "rows-on-disk": _target(read_rows_on_disk, "rows.parquet"),
    "texts": _target(read_texts, "train.csv"),
    "image": _target(read_image, "told.png"),
}


def seeds(name: str, folder: Path) -> list[bytes]:
    """Good files of a kind, from which bad ones are made."""
    table = sample_table()
    csv = table.to_csv(index=False).encode()
    parquet = folder / "seed.parquet"
    table.to_parquet(parquet)
    if name == "rows-on-disk":
        return [parquet.read_bytes()]
    if name == "groups":
        names = [name for name in table.columns if name != "label"]
        pairs = pd.DataFrame({"column": names, "group": ["a", "b"] * (len(names) // 2) + ["a"]})
        return [pairs.to_csv(index=False).encode(), b"column,group\n"]
    if name == "matrix":
        words = folder / "words.npz"
        np.savez(words, X=np.ones((24, 3)), topic=np.arange(24) % 2)
        return [words.read_bytes()]
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
    if name in ("features", "probabilities"):
        array = np.full((len(table), 2), 0.5)
        np.save(folder / "seed.npy", array)
        save_npz(folder / "sparse.npz", csr_matrix(array))
        named = pd.DataFrame(array, columns=["no", "yes"]).to_csv(index=False).encode()
        return [(folder / "seed.npy").read_bytes(), (folder / "sparse.npz").read_bytes(), named]
    if name == "decisions":
        told = table.iloc[[1, 4]]
        frame = pd.DataFrame(
            {
                "row": [1, 4], "digest": decisions.digests(told), "given": told["label"],
                "decision": ["keep", "change"], "label": [told["label"].iloc[0], "yes"],
                "judges": "linear+trees",
            }
        )  # fmt: skip
        return [frame.to_csv(index=False).encode(), b"row,digest,given,decision,label\n"]
    if name == "texts":
        notes = [f"person number {row} came from afar, and was asked twice" for row in range(24)]
        with_texts = table.assign(note=notes)[["note", "age", "label"]]
        return [with_texts.to_csv(index=False).encode(), csv]
    if name == "image":
        return [_png()]
    path = folder / "seed.npz"
    np.savez(path, X=np.ones((3, 2)), y=np.arange(3))
    return [path.read_bytes()]
