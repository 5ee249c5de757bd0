"""Reading a table from CSV or Parquet; what cannot be read is refused with one sentence."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

import numpy as np

from untuned.tables.records import (
    AS_WRITTEN,
    CsvRecords,
    ParquetRecords,
    Records,
    Selection,
    record_starts,
)
from untuned.util import damage, memory
from untuned.util.wording import brief, reason

if TYPE_CHECKING:
    import pandas

SEPARATORS = ",;\t|"
MAGIC = b"PAR1"  # the first bytes of a Parquet file
# What else people have, by its first bytes, and what to do with it.
TO_CSV = "save its sheet as CSV in UTF-8"
OTHERS = {
    codecs.BOM_UTF16_LE: "text in UTF-16; save it as CSV in UTF-8",
    codecs.BOM_UTF16_BE: "text in UTF-16; save it as CSV in UTF-8",
    b"PK\x03\x04": f"a workbook, as of Excel, or another zip file; {TO_CSV}, or unpack it",
    b"\xd0\xcf\x11\xe0": f"an old workbook, as of Excel; {TO_CSV}",
    b"\x1f\x8b": "compressed by gzip; unpack it",
}
SAMPLE_BYTES = 2**20
LONGEST_LINE = 2**26  # bytes: names of some million columns

UNSURE = 2**53  # from here on a float does not tell neighbouring whole numbers apart

EXPECTED = "expected the folder as untuned wrote it."

Format = Literal["csv", "parquet"]


class Table(NamedTuple):
    """A file's rows and columns."""

    path: Path
    format: Format
    frame: pandas.DataFrame  # for models and pages: pandas has guessed types from cells
    records: Records  # what is written again


def read(path: Path, as_text: bool = False) -> Table:
    """The table in a file; its first bytes, not its name, say which format it is in.

    With `as_text` the cells of a CSV file are taken as they are written, and none is missing.
    """
    check_regular(path)
    with path.open("rb") as opened:
        head = opened.read(len(MAGIC))
        if head != MAGIC:
            head += _lines(opened)
    if not head.strip():
        raise ValueError(f"{path} is empty; expected a CSV or Parquet file with rows.")
    kind: Format = "parquet" if head == MAGIC else "csv"

    def sentence(error: Exception) -> str:
        why = reason(error, after="Error tokenizing data. C error: ")  # as pandas begins
        return f"{path} could not be read as {kind.upper()}: {why}."

    with damage.told(sentence, own=str(path)):
        table = _read_parquet(path) if kind == "parquet" else _read_csv(path, head, as_text)
    if table.frame.empty:
        raise ValueError(f"{path} has no rows; expected a header and at least one row below it.")
    return table


def check_regular(path: Path) -> None:
    """Refuse what is no file of a known size: a pipe waits for ever, and a device never ends."""
    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name, or the folder you are in.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected a file.")
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or a device; expected a file, so save it first.")


def of_rows(table: Table, rows: np.ndarray) -> pandas.DataFrame:
    """Some rows, with the types that pandas would have found had these alone been in the file.

    A footer or a row of units makes text of a column of numbers, and a missing cell makes floats of
    whole numbers.
    """
    import pandas

    used = table.frame.iloc[rows]
    if table.format != "csv" or len(used) == len(table.frame):
        return used
    found = {}
    for name in used.columns:
        values = used[name]
        if values.isna().all():
            continue
        if values.map(lambda value: isinstance(value, str) or value != value).all():
            numbers = pandas.to_numeric(values, errors="coerce")
            if (numbers.notna() == values.notna()).all():
                found[name] = numbers
        elif values.dtype.kind == "f":
            are_whole = (values == values.round()) & (values.abs() < UNSURE)
            if are_whole.all():
                found[name] = values.astype(np.int64)
    return used.assign(**found)


def made(path: Path, frame: pandas.DataFrame) -> Table:
    """A table that is in no file: of images in folders, or of labels beside a matrix."""
    # A line of blanks alone would be no record.
    quoting: Any = csv.QUOTE_MINIMAL if frame.shape[1] > 1 else csv.QUOTE_ALL
    content = frame.to_csv(index=False, quoting=quoting, lineterminator="\n")
    return Table(path, "csv", frame, CsvRecords(content.encode(), ","))


def write(table: pandas.DataFrame | Selection, folder: Path, name: str, kind: Format) -> str:
    """Write a table in the format of the user's own; returns the file's name."""
    file = f"{name}.{kind}"
    if isinstance(table, Selection):
        table.write(folder / file)
    elif kind == "parquet":
        table.to_parquet(folder / file, index=False)
    else:
        table.to_csv(folder / file, index=False)
    return file


def read_own(
    folder: Path, name: str, as_text: bool = False, names: Sequence[int] = ()
) -> pandas.DataFrame:
    """A table that `write` wrote into a folder; `name` comes from a file and may be anything.

    The columns at the places `names` hold names of classes or columns, which stay as they are
    written: 001 is no number, and "None" is not missing. `as_text` says so of all columns.
    """
    import pandas

    path = folder / name
    # Neither `../` nor a link may lead out of the folder.
    if name != path.name or path.resolve().parent != folder.resolve():
        raise ValueError(f"{brief(name)} is not the name of a file in {folder}; {EXPECTED}")
    if not path.is_file():
        raise ValueError(f"{path} is missing; {EXPECTED}")

    def sentence(error: Exception) -> str:
        return f"{path} cannot be read ({reason(error, 80)}); {EXPECTED}"

    with damage.told(sentence, own=str(path)):
        if path.suffix == ".parquet":
            return _read_parquet(path).frame
        memory.check(path, path.stat().st_size)
        separator = _separator_of_own(path)
        if as_text:
            return pandas.read_csv(path, sep=separator, **AS_WRITTEN)
        frame = pandas.read_csv(path, sep=separator, low_memory=False)
        if names:
            texts = pandas.read_csv(path, sep=separator, usecols=list(names), **AS_WRITTEN)
            frame[texts.columns] = texts
        return frame


def _separator_of_own(path: Path) -> str:
    """The user's, where their records are in the file: it follows our first column, `_row`."""
    with path.open("rb") as opened:
        found = re.match(rb"(?:\xef\xbb\xbf)?\s*_+row([,;\t|])", opened.read(100))
    return found[1].decode() if found else ","


def _read_parquet(path: Path) -> Table:
    import pandas
    from pyarrow import compute, parquet, types

    about = parquet.read_metadata(path)
    kinds = {about.schema.column(number).physical_type for number in range(about.num_columns)}
    # A number takes 8 bytes however well the file packs it; a text takes its length and a pointer.
    # Lengths are those of whole groups: asked about one column, pyarrow may end the process.
    lengths = [about.row_group(number).total_byte_size for number in range(about.num_row_groups)]
    packed = 8 * about.num_rows * about.num_columns + ("BYTE_ARRAY" in kinds) * sum(lengths)
    memory.check(path, packed)
    schema = parquet.read_schema(path)
    _check_names(path, schema.names)
    # A long text that many rows share is in the file once, and would be in memory many times.
    are_texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    texts = [each.name for each in schema if any(is_one(each.type) for is_one in are_texts)]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        table = file.read()
    unpacked = 0
    for name in texts:
        for chunk in table.column(name).chunks:
            sizes = compute.binary_length(chunk.dictionary).take(chunk.indices)
            unpacked += compute.sum(sizes).as_py() or 0
    memory.check(path, packed + unpacked)
    table = table.cast(schema)
    frame = table.to_pandas()
    # Exact decimals, as databases keep money in, are objects to pandas, and no numbers.
    for field in schema:
        if types.is_decimal(field.type) and field.name in frame:
            frame[field.name] = frame[field.name].astype(np.float64)
    frame.columns = frame.columns.map(str)
    frame = frame.reset_index(drop=True)
    # scikit-learn's imputers know pandas.NA, its encoders do not.
    for name in frame.select_dtypes(["string", "boolean"]):
        values = frame[name]
        if values.hasnans and getattr(values.dtype, "na_value", None) is pandas.NA:
            frame[name] = values.astype(object).where(values.notna(), float("nan"))
    return Table(path, "parquet", frame, ParquetRecords(table))


def _read_csv(path: Path, head: bytes, as_text: bool) -> Table:
    import pandas

    if path.suffix.lower() in (".npy", ".npz"):
        raise ValueError(
            f"{path} holds arrays; expected a table, CSV or Parquet, so give one with the labels, "
            "and the arrays beside it with --features."
        )
    for start, what in OTHERS.items():
        if head.startswith(start):
            raise ValueError(f"{path} is {what}.")
    if b"\0" in head:
        raise ValueError(f"{path} is neither CSV nor Parquet; expected one of them, uncompressed.")
    is_whole = len(head) == path.stat().st_size
    try:
        # A sample may end in the middle of a letter, where a line has no end.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=is_whole)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8."
        ) from error
    first = re.match(r'\s*((?:"[^"]*"|[^"\r\n])*)', text)[1]  # type: ignore[index]
    unquoted = re.sub('"[^"]*"', "", first)
    separator = max(SEPARATORS, key=unquoted.count)
    _check_names(path, next(csv.reader(io.StringIO(first, newline=""), delimiter=separator)))
    how: dict = {"sep": separator, "index_col": False, "low_memory": False}
    how |= AS_WRITTEN if as_text else {}
    if not is_whole:
        starts = record_starts(head, separator)
        sample = head[: starts[-1]] if len(starts) > 1 else b""
        # Where no row is seen whole, a table is taken for as large as its file.
        per_byte = 1.0
        if sample:
            few = pandas.read_csv(io.BytesIO(sample), **how)
            per_byte = few.memory_usage(deep=True).sum() / len(sample)
        memory.check(path, per_byte * path.stat().st_size)
    content = path.read_bytes()
    with warnings.catch_warnings():
        # A warning here is a loss of data: rows with more cells than the header has names.
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            # pandas' own way of reading, so that a saved model meets the same types again.
            # A copy has one block for each type, which a table of many columns is quicker with.
            frame = pandas.read_csv(io.BytesIO(content), **how).copy()
        except pandas.errors.ParserWarning as error:
            raise ValueError(
                f"{path} has rows with more cells than its first line has names; give every "
                "column a name, and quote text that holds the separator."
            ) from error
    records = CsvRecords(content, separator)
    if len(records) != len(frame):
        raise ValueError(
            f"{path} could not be cut into its {len(frame):,} records; expected lines that end "
            "alike, and quotes only around whole cells."
        )
    return Table(path, "csv", frame, records)


def _lines(opened: BinaryIO) -> bytes:
    """The first line, a sample of those after it, and the rest of the last of them."""
    first = opened.readline(LONGEST_LINE)
    return first + opened.read(SAMPLE_BYTES) + opened.readline(LONGEST_LINE)


def _check_names(path: Path, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{path} has more than one column named {brief(twice[0])}; give every column its own "
            "name in the first line."
        )
