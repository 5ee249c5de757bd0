"""Odd tables through the commands, in this process: `python fuzz/tables.py`.

Exit code 0, or 2 with one sentence; every cell that was not corrected comes back as it was given;
cleaned and suspects hold all rows; and nothing else in the folder is touched. Three of four runs
have estimators that fit in no time (tests/standins.py).
"""

from __future__ import annotations

import csv
import io
import os
import re
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hunt
from hunt import expect

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import standins
from untuned import cli

SLOWEST = 120
OUT = "out"
COLUMNS: dict[str, Any] = {
    "number": lambda rng: f"{rng.normal(40, 9):.2f}",
    "trailing zeros": lambda rng: f"{rng.integers(1, 99)}.500",
    "zip": lambda rng: f"{rng.integers(1, 99999):05d}",
    "long id": lambda rng: str(rng.integers(10**16, 9 * 10**17)),
    "exponent": lambda rng: f"{rng.normal():.1E}",
    "plus": lambda rng: f"{rng.integers(-9, 9):+d}",
    "country": lambda rng: rng.choice(["NA", "DE", "FR", "None", "null", "N/A", "nan"]),
    "truth": lambda rng: rng.choice(["TRUE", "FALSE"]),
    "mixed truth": lambda rng: rng.choice(["True", "false", "yes", "1"]),
    "date": lambda rng: f"2020-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
    "money": lambda rng: f"${rng.integers(1, 9)},{rng.integers(0, 999):03d}.50",
    "comma": lambda rng: f"{rng.integers(1, 99)},{rng.integers(0, 99):02d}",
    "blanks around": lambda rng: f" {rng.choice(['a', 'b'])}  ",
    "no-break": lambda rng: f"{rng.integers(1, 9)}\u00a0{rng.integers(100, 999)}",
    "arabic": lambda rng: "".join(chr(0x660 + int(d)) for d in str(rng.integers(10, 999))),
    "formula": lambda rng: rng.choice(["=1+1", "+1", "-1", "@SUM(A1)", "\t=2"]),
    "emoji": lambda rng: rng.choice(["\U0001f600", "e\u0301", "\u2028", "\ufeffx", "ß"]),
    "quotes": lambda rng: rng.choice(['say "no"', "it's", "a,b;c\td|e", '"']),
    "lines": lambda rng: rng.choice(["one\ntwo", "one\r\ntwo", "one"]),
    "long": lambda rng: "x" * int(rng.choice([3, 70_000], p=[0.99, 0.01])),
    "prose": lambda rng: " ".join(rng.choice(["the", "cat", "sat", "on", "mat"], 9)),
    "constant": lambda rng: "7",
    "empty": lambda rng: "",
    "mixed": lambda rng: rng.choice(["1", "2.0", "x", "-", "?"]),
    "inf": lambda rng: rng.choice(["1", "2", "inf", "-Infinity"], p=[0.49, 0.49, 0.01, 0.01]),
}
LABELS = [
    ["yes", "no"], ["001", "002"], ["1", "2", "3"], ["None", "some", "all"], ["NA", "EU"],
    ["null", "0"], ["TRUE", "FALSE"], ["true", "false"], ["a", "A"], ["a", "b", " b"], ["1", "1.0"],
    ["1.0", "2.0"], ["=1+1", "x"], ["\U0001f600", "\u00e9"], ["nan", "b"], ["a,b", 'c"d', "e\nf"],
    ["2020-01-01", "2021-01-01"], ["9007199254740993", "9007199254740992"], ["1e3", "1000"],
]  # fmt: skip
NAMES = ["a", "b", "", " ", "a", "row", "_row", "x,y", "n\nm", "<i>", "é", "Unnamed: 0", "1", "NA"]


class File(NamedTuple):
    """A text file, and what its cells are."""

    content: bytes
    names: list[str]
    rows: list[list[str]]  # the cells of each record below the header
    separator: str
    encoding: str


def text_file(rng: np.random.Generator) -> tuple[File, str]:
    """An odd CSV file, and the name of its label."""
    rows = int(rng.integers(30, 80))
    kinds = list(rng.choice(list(COLUMNS), int(rng.integers(1, 7)), replace=False))
    kinds += ["number"] * (rng.random() < 0.7)
    odd = rng.random() < 0.2
    names = [str(rng.choice(NAMES)) if odd else f"{kind} {k}" for k, kind in enumerate(kinds)]
    classes = LABELS[rng.integers(len(LABELS))]
    holes = rng.choice([0, 0, 0.1], len(kinds) + 1)
    cells = [[str(COLUMNS[kind](rng)) for kind in kinds] for _ in range(rows)]
    labels = [str(rng.choice(classes)) for _ in range(rows)]
    if rng.random() < 0.2:
        labels[rng.integers(rows)] = "alone"
    place = int(rng.integers(len(kinds) + 1))
    for row, label in zip(cells, labels, strict=True):
        row.insert(place, label)
    names.insert(place, "label")
    missing = str(rng.choice(["", "NA", "-"]))
    for row in cells:
        row[:] = [missing if rng.random() < hole else cell
                  for cell, hole in zip(row, holes, strict=True)]  # fmt: skip
    if rng.random() < 0.1:
        cells.append(["Source: census office", *[""] * (len(names) - 1)])
    if rng.random() < 0.1:
        cells.insert(0, [str(rng.choice(["kg", "m", ""])) for _ in names])
    if rng.random() < 0.05:  # a ragged line
        ragged = cells[rng.integers(len(cells))]
        ragged.append("more") if rng.random() < 0.5 else ragged.pop()
    separator = str(rng.choice([",", ",", ";", "\t", "|"]))
    encoding = str(rng.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "cp1252", "utf-16"]))
    end = str(rng.choice(["\n", "\n", "\r\n", "\r"], p=[0.5, 0.2, 0.25, 0.05]))
    written = io.StringIO(newline="")
    quoting = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC][rng.integers(3)]
    writer = csv.writer(written, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([names, *cells])
    text = written.getvalue()
    if rng.random() < 0.2:
        text = text.removesuffix(end)
    elif rng.random() < 0.1:
        text += end
    content = text.encode(encoding, errors="replace")
    cells = list(csv.reader(io.StringIO(content.decode(encoding), newline=""), delimiter=separator))
    return File(content, cells[0], [row for row in cells[1:] if row], separator, encoding), "label"


def parquet_table(rng: np.random.Generator) -> pa.Table:
    """An odd Arrow table with its own types and metadata."""
    rows = int(rng.integers(30, 80))
    hole = lambda values: [None if rng.random() < 0.1 else value for value in values]
    ints = [int(k) for k in rng.integers(2**60, 2**62, rows)]
    few = [int(k) for k in rng.integers(0, 5, rows)]
    floats = [float(k) for k in rng.standard_normal(rows)]
    columns = {
        "int": pa.array(hole(ints), pa.int64()), "uint": pa.array(hole(few), pa.uint8()),
        "decimal": pa.array(hole([Decimal(f"{k}.50") for k in few]), pa.decimal128(12, 2)),
        "date": pa.array(hole(few), pa.date32()), "truth": pa.array(hole([k > 2 for k in few])),
        "stamp": pa.array(hole(few), pa.timestamp("us", "Europe/Oslo")),
        "word": pa.array(hole([f"w{k}" for k in few])).dictionary_encode(),
        "large": pa.array([f"t{k}" for k in few], pa.large_string()),
        "list": pa.array(hole([[k] for k in few])), "float": pa.array(floats),
        "half": pa.array(np.array(floats, np.float16)), "bytes": pa.array([b"\xff\0"] * rows),
        "struct": pa.array([{"a": k} for k in few]), "null": pa.nulls(rows),
        "duration": pa.array(few, pa.duration("s")), "time": pa.array(few, pa.time32("s")),
        "single": pa.array(floats, pa.float32()), "view": pa.array(["v"] * rows, pa.string_view()),
    }  # fmt: skip
    labels = [
        pa.array(hole(few), pa.int64()), pa.array([f"00{k}" for k in few]),
        pa.array(hole([f"c{k}" for k in few])).dictionary_encode(), pa.array([k > 2 for k in few]),
        pa.array(hole(["None" if k > 2 else "x" for k in few])), pa.array(few, pa.int8()),
        pa.array([Decimal(k % 3) for k in few], pa.decimal128(5, 0)),
    ]  # fmt: skip
    chosen = list(rng.choice(list(columns), int(rng.integers(1, 6)), replace=False))
    table = pa.table({name: columns[name] for name in [*chosen, "float"]})
    table = table.append_column("label", labels[rng.integers(len(labels))])
    return table.replace_schema_metadata({"made": "by hand"}) if rng.random() < 0.5 else table


def command(arguments: list[str], folder: Path, is_quick: bool) -> tuple[int, str]:
    """The exit code, and what was printed on standard error."""
    err = io.StringIO()
    argv = sys.argv
    with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stderr(err):
        if is_quick:
            standins.install(patch)
        sys.argv = ["untuned", *arguments]
        try:
            with redirect_stdout(io.StringIO()):
                cli.main()
        except SystemExit as ended:
            return int(ended.code or 0), err.getvalue()
        finally:
            sys.argv = argv
    raise hunt.FoundError("the command did not exit")


def check(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    name = str(rng.choice(["clean", "clean", "regularize", "coreset"]))
    is_parquet = rng.random() < 0.25
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        train = folder / ("table.parquet" if is_parquet else "table.csv")
        given: Any
        if is_parquet:
            given = parquet_table(rng)
            pq.write_table(given, train)
            given = pq.read_table(train)  # Parquet does not know all of Arrow
        else:
            given, _ = text_file(rng)
            train.write_bytes(given.content)
        before = contents(folder)
        arguments = [name, train.name, "--label", "label", "--out", OUT, "--max-seconds", "5"]
        arguments += ["--size", str(rng.integers(2, 20))] if name == "coreset" else []
        if name == "clean" and rng.random() < 0.15:
            arguments += ["--trusted", train.name]
        is_quick = rng.random() < 0.75
        told = f"| {' '.join(arguments)} {_told(given)}"
        try:
            code, err = command(arguments, folder, is_quick)
            expect(
                {path: each for path, each in contents(folder).items() if path.parts[0] != OUT}
                == before, "something beside --out has changed",
            )  # fmt: skip
            _check_end(code, err, folder)
            if code == 0:
                both = check_parquet if is_parquet else check_text
                both(given, name, folder / OUT)
        except hunt.FoundError as error:
            raise hunt.FoundError(f"{error} {told}") from error
        except Exception as error:
            try:
                hunt.refusal(error)  # no error of any kind may leave main()
            except hunt.FoundError as raw:
                raise hunt.FoundError(f"{raw} {told}") from error
            raise hunt.FoundError(f"left main(): {error} {told}") from error


def _told(given: Any) -> str:
    if isinstance(given, pa.Table):
        return ", ".join(f"{field.name}: {field.type}" for field in given.schema)
    return f"{given.encoding} {given.separator!r} {given.names}"[:150]


def contents(folder: Path) -> dict[Path, Any]:
    """Every path below a folder with what it is."""
    found: dict[Path, Any] = {}
    for path in folder.rglob("*"):
        what = (
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else 0
        )
        found[path.relative_to(folder)] = (what, path.lstat().st_mode)
    return found


def _check_end(code: int, err: str, folder: Path) -> None:
    expect(code in (0, 2), f"exit code {code}")
    if code == 0:
        expect((folder / OUT / "report.html").is_file(), "no report")
        expect("Traceback" not in err, "a traceback on standard error")
        return
    expect(not (folder / OUT).exists(), "a refused command left --out")
    one = err.startswith("untuned: ") and err.count("\n") == 1 and len(err) < 700
    expect(one and err.rstrip().endswith("."), f"not one sentence: {hunt.first_line(err)}")
    hunt.REFUSALS[re.sub(r"[\d,]+", "#", err)[:90].strip()] += 1


def check_text(given: File, name: str, out: Path) -> None:
    """Cells of the files that were written, as texts, against the user's own."""
    width = len(given.names)
    rows = [row + [""] * (width - len(row)) for row in given.rows]

    def read(stem: str) -> tuple[list[str], list[list[str]]]:
        content = (out / f"{stem}.csv").read_bytes().decode(given.encoding)
        found = list(csv.reader(io.StringIO(content, newline=""), delimiter=given.separator))
        expect(bool(found), f"{stem} is empty")
        wide = len(found[0])
        return found[0], [row + [""] * (wide - len(row)) for row in found[1:] if row]

    def numbers(stem: str) -> list[int]:
        header, found = read(stem)
        expect(header[len(header) - width :] == given.names, f"{stem}: names {header}")
        at = next(k for k, each in enumerate(header) if each.strip("_") == "row")
        for row in found:
            _same(rows[int(row[at])], row[len(header) - width :], given.names, stem)
        return [int(row[at]) for row in found]

    if name == "coreset":
        numbers("kept")
    if name != "clean":
        return
    suspects = set(numbers("suspects"))
    header, cleaned = read("cleaned")
    expect(header == given.names, f"cleaned: names {header}")
    rest = [row for place, row in enumerate(rows) if place not in suspects]
    expect(len(cleaned) == len(rest), f"cleaned has {len(cleaned)} rows of {len(rest)}")
    for ours, theirs in zip(cleaned, rest, strict=True):
        _same(theirs, ours, given.names, "cleaned")
    raw = set(given.content.splitlines())
    lines = (out / "cleaned.csv").read_bytes().splitlines()
    strange = [line for line in lines if line not in raw]
    expect(not strange, f"cleaned has another line: {strange[:1]}")


def _same(theirs: list[str], ours: list[str], names: list[str], stem: str) -> None:
    for before, after, name in zip(theirs, ours, names, strict=False):
        expect(before == after, f"{stem}: {name!r} was {before[:40]!r}, is {after[:40]!r}")
    expect(len(ours) == len(theirs), f"{stem}: {len(ours)} cells of {len(theirs)}")


def check_parquet(given: pa.Table, name: str, out: Path) -> None:
    """Arrow types, metadata and values of the files that were written."""

    def read(stem: str) -> pa.Table:
        found = pq.read_table(out / f"{stem}.parquet")
        for field in given.schema:
            type_ = found.schema.field(field.name).type
            expect(type_ == field.type, f"{stem}: {field.name} was {field.type}, is {type_}")
        return found

    def numbers(stem: str) -> list[int]:
        found = read(stem)
        at = next(each for each in found.column_names if each.strip("_") == "row")
        rows = found[at].to_pylist()
        taken = given.take(pa.array(rows, pa.int64())).to_pylist()
        expect(found.select(given.column_names).to_pylist() == taken, f"{stem}: other values")
        return rows

    if name == "coreset":
        numbers("kept")
    if name != "clean":
        return
    suspects = set(numbers("suspects"))
    rest = [k for k in range(given.num_rows) if k not in suspects]
    cleaned = read("cleaned")
    expect(cleaned.num_rows == len(rest), f"cleaned has {cleaned.num_rows} rows of {len(rest)}")
    same = cleaned.to_pylist() == given.take(pa.array(rest, pa.int64())).to_pylist()
    expect(same, "cleaned: other values")
    metadata = {} if given.schema.metadata is None else given.schema.metadata
    theirs = cleaned.schema.metadata or {}
    expect(metadata.items() <= theirs.items(), "cleaned: metadata lost")


if __name__ == "__main__":
    hunt.main(check, SLOWEST)
