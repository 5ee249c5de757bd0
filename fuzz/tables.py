"""Odd tables through the commands, in this process: `python fuzz/tables.py`.

Exit code 0, or 2 with one sentence; every cell that was not corrected comes back as it was given,
and what --decisions corrected as decided; cleaned and suspects hold all rows; and nothing else in
the folder is touched. Three of four runs have estimators that fit in no time (tests/standins.py).
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
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hunt
from hunt import FoundError, expect, first_line

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import standins
from untuned import cli
from untuned.tables import decisions, files, labels

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


class Given(NamedTuple):
    """A table as it was given. Text has a separator, and Parquet none."""

    content: bytes
    separator: str = ""
    encoding: str = "utf-8"

    def cells(self, content: bytes) -> tuple[list[str], list[list[Any]]]:
        """The names (of Parquet with their types) and the rows of a file of this kind."""
        if not self.separator:
            table = pq.read_table(io.BytesIO(content))
            return [f"{each.name}: {each.type}" for each in table.schema], [
                list(row.values()) for row in table.to_pylist()
            ]
        text = io.StringIO(content.decode(self.encoding), newline="")
        names, *rows = [row for row in csv.reader(text, delimiter=self.separator) if row]
        return names, [row + [""] * (len(names) - len(row)) for row in rows]

    def told(self) -> str:
        return f"{self.encoding} {self.separator!r} {self.cells(self.content)[0]}"[:250]


def text_file(rng: np.random.Generator) -> Given:
    """An odd CSV file."""
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
    return Given(text.encode(encoding, errors="replace"), separator, encoding)


def parquet_file(rng: np.random.Generator) -> Given:
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
    if rng.random() < 0.5:
        table = table.replace_schema_metadata({"made": "by hand"})
    written = io.BytesIO()
    pq.write_table(table, written)
    return Given(written.getvalue())


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
    raise FoundError("the command did not exit")


def check(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    name = str(rng.choice(["clean", "clean", "regularize", "coreset"]))
    given = parquet_file(rng) if rng.random() < 0.25 else text_file(rng)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        train = folder / ("table.csv" if given.separator else "table.parquet")
        train.write_bytes(given.content)
        arguments = [name, train.name, "--label", "label", "--out", OUT, "--max-seconds", "5"]
        arguments += ["--size", str(rng.integers(2, 20))] if name == "coreset" else []
        if name == "clean" and rng.random() < 0.15:
            arguments += ["--trusted", train.name]
        is_quick = rng.random() < 0.75
        try:
            if _made(given, arguments, folder, is_quick, {}) == 0 and name == "clean":
                arguments += ["--decisions", "decisions.csv", "--overwrite"]
                decided = decide(given, train, rng)
                _made(given, arguments, folder, is_quick, decided)
        except Exception as error:
            words = f"{error} | {' '.join(arguments)} {given.told()}"
            if not isinstance(error, FoundError):
                words = f"left main(): {type(error).__name__} {words}"
            raise FoundError(words) from error


def decide(given: Given, train: Path, rng: np.random.Generator) -> dict[int, set]:
    """Write decisions on some rows; the cells that each of these labels may have after that."""
    frame = files.read(train).frame
    found = labels.read(files.read(train), "label", "classes")
    places = rng.choice(len(found.rows), int(rng.integers(1, 7)), replace=False)
    rows, values = found.rows[places], rng.choice(found.values, len(places))
    kinds = rng.choice(decisions.KINDS, len(places))
    pd.DataFrame(
        {
            "row": rows, "digest": decisions.digests(frame.iloc[rows]),
            "given": found.values[places], "decision": kinds,
            "label": [str(each) for each in values],
        }
    ).to_csv(train.parent / "decisions.csv", index=False)  # fmt: skip
    names, cells = given.cells(given.content)
    column = _label(names)
    may_be: dict[int, set] = {}
    for row, place, kind, value in zip(rows.tolist(), places, kinds, values, strict=True):
        is_other = kind == "change" and value != found.values[place]
        alike = found.rows[found.values == value] if is_other else [row]
        may_be[row] = {cells[each][column] for each in alike}
    return may_be


def _label(names: list[str]) -> int:
    return next(k for k, each in enumerate(names) if each.split(":")[0] == "label")


def _made(
    given: Given, arguments: list[str], folder: Path, is_quick: bool, decided: dict[int, set]
) -> int:
    """The exit code of a command whose end, files and cells are right."""
    out = folder / OUT
    beside = lambda: {path: what for path, what in contents(folder).items() if path.parts[0] != OUT}
    before, was_there = beside(), out.exists()
    code, err = command(arguments, folder, is_quick)
    expect(beside() == before, "something beside --out has changed")
    expect(code in (0, 2), f"exit code {code}")
    if code == 0:
        expect((out / "report.html").is_file(), "no report")
        expect("Traceback" not in err, "a traceback on standard error")
        compare(given, arguments[0], out, decided)
    else:
        expect(out.exists() == was_there, "a refused command left --out")
        one = err.startswith("untuned: ") and err.count("\n") == 1 and len(err) < 700
        expect(one and err.rstrip().endswith("."), f"not one sentence: {first_line(err)}")
        hunt.REFUSALS[re.sub(r"[\d,]+", "#", err)[:90].strip()] += 1
    return code


def contents(folder: Path) -> dict[Path, Any]:
    """Every path below a folder with what it is."""
    found: dict[Path, Any] = {}
    for path in folder.rglob("*"):
        what = (
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else 0
        )
        found[path.relative_to(folder)] = (what, path.lstat().st_mode)
    return found


def compare(given: Given, name: str, out: Path, decided: dict[int, set] | None = None) -> None:
    """The files that were written against the user's own: names, cells, rows, lines, metadata."""
    names, rows = given.cells(given.content)
    decided = decided or {}

    def content(stem: str) -> bytes:
        return (out / f"{stem}.{'csv' if given.separator else 'parquet'}").read_bytes()

    def numbers(stem: str) -> list[int]:
        header, found = given.cells(content(stem))
        first = len(header) - len(names)
        expect(header[first:] == names, f"{stem}: names {header}")
        at = next(k for k, each in enumerate(header) if each.split(":")[0].strip("_") == "row")
        for row in found:
            _same(rows[int(row[at])], row[first:], names, stem)
        return [int(row[at]) for row in found]

    if name == "coreset":
        numbers("kept")
    if name != "clean":
        return
    suspects = set(numbers("suspects"))
    expect(not suspects & decided.keys(), "a row that was decided on is a suspect")
    header, cleaned = given.cells(content("cleaned"))
    expect(header == names, f"cleaned: names {header}")
    rest = [place for place in range(len(rows)) if place not in suspects]
    expect(len(cleaned) == len(rest), f"cleaned has {len(cleaned)} rows of {len(rest)}")
    for row, ours in zip(rest, cleaned, strict=True):
        theirs = list(rows[row])
        if row in decided:
            column = _label(names)
            expect(ours[column] in decided[row], f"row {row}: decided {decided[row]}, is {ours}")
            theirs[column] = ours[column]
        _same(theirs, ours, names, "cleaned")
    if given.separator:
        before, after = (set(each.splitlines(True)) for each in (given.content, content("cleaned")))
        strange = after - before if not decided else ()
        expect(not strange, f"cleaned has another line: {list(strange)[:1]}")
    else:
        before, after = (
            pq.read_schema(io.BytesIO(each)).metadata or {}
            for each in (given.content, content("cleaned"))
        )
        expect(before.items() <= after.items(), "cleaned: metadata lost")


def _same(theirs: list, ours: list, names: list[str], stem: str) -> None:
    for before, after, name in zip(theirs, ours, names, strict=False):
        words = f"{stem}: {name!r} was {str(before)[:40]!r}, is {str(after)[:40]!r}"
        expect(before == after, words)
    expect(len(ours) == len(theirs), f"{stem}: {len(ours)} cells of {len(theirs)}")


if __name__ == "__main__":
    hunt.main(check, SLOWEST)
