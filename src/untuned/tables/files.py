"""Reading a table from CSV or Parquet; what cannot be read is refused with one sentence."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple

import numpy as np

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

AS_WRITTEN: dict = {"dtype": str, "keep_default_na": False}  # cells, by pandas.read_csv

EXPECTED = "expected the folder as untuned wrote it."

Format = Literal["csv", "parquet"]


class Table(NamedTuple):
    """A file's rows and columns."""

    path: Path
    format: Format
    frame: pandas.DataFrame


def read(path: Path, as_text: bool = False) -> Table:
    """The table in a file; its first bytes, not its name, say which format it is in.

    With `as_text` the cells of a CSV file are taken as they are written, and none is missing.
    """
    if not path.exists():
        raise ValueError(f"There is no file {path}; check the name, or the folder you are in.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected a CSV or Parquet file.")
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
        frame = _read_parquet(path) if kind == "parquet" else _read_csv(path, head, as_text)
    if frame.empty:
        raise ValueError(f"{path} has no rows; expected a header and at least one row below it.")
    return Table(path, kind, frame)


def write(frame: pandas.DataFrame, folder: Path, name: str, kind: Format) -> str:
    """Write a table in the format of the user's own; returns the file's name."""
    file = f"{name}.{kind}"
    if kind == "parquet":
        frame.to_parquet(folder / file, index=False)
    else:
        frame.to_csv(folder / file, index=False)
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
    with damage.told(lambda error: f"{path} cannot be read ({reason(error, 80)}); {EXPECTED}"):
        if path.suffix == ".parquet":
            return pandas.read_parquet(path)
        if as_text:
            return pandas.read_csv(path, **AS_WRITTEN)
        frame = pandas.read_csv(path, low_memory=False)
        if names:
            texts = pandas.read_csv(path, usecols=list(names), **AS_WRITTEN)
            frame[texts.columns] = texts
        return frame


def _read_parquet(path: Path) -> pandas.DataFrame:
    import pandas
    import pyarrow
    from pyarrow import parquet

    about = parquet.read_metadata(path)
    kinds = {about.schema.column(number).physical_type for number in range(about.num_columns)}
    # A number takes 8 bytes however well the file packs it; a text takes its length and a pointer.
    # Lengths are those of whole groups: asked about one column, pyarrow may end the process.
    lengths = [about.row_group(number).total_byte_size for number in range(about.num_row_groups)]
    memory.check(
        path,
        8 * about.num_rows * about.num_columns + ("BYTE_ARRAY" in kinds) * sum(lengths),
    )
    schema = parquet.read_schema(path)
    _check_names(path, schema.names)
    frame = pandas.read_parquet(path)
    # Exact decimals, as databases keep money in, are objects to pandas, and no numbers.
    for field in schema:
        if pyarrow.types.is_decimal(field.type) and field.name in frame:
            frame[field.name] = frame[field.name].astype(np.float64)
    frame.columns = frame.columns.map(str)
    frame = frame.reset_index(drop=True)
    # scikit-learn's imputers know pandas.NA, its encoders do not.
    for name in frame.select_dtypes(["string", "boolean"]):
        values = frame[name]
        if values.hasnans and getattr(values.dtype, "na_value", None) is pandas.NA:
            frame[name] = values.astype(object).where(values.notna(), float("nan"))
    return frame


def _read_csv(path: Path, head: bytes, as_text: bool) -> pandas.DataFrame:
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
    ends = _record_ends(text)
    first = next((text[:end] for end in ends if text[:end].strip()), text).lstrip("\r\n")
    unquoted = re.sub('"[^"]*"', "", first)
    separator = max(SEPARATORS, key=unquoted.count)
    _check_names(path, next(csv.reader(io.StringIO(first, newline=""), delimiter=separator)))
    if not is_whole:
        sample = text[: max(ends, default=0)]
        few = None
        if sample:
            few = pandas.read_csv(io.StringIO(sample), sep=separator, low_memory=False)
        # Where no row is seen whole, a table is taken for as large as its file.
        per_byte = 1.0
        if few is not None:
            per_byte = few.memory_usage(deep=True).sum() / len(sample.encode())
        memory.check(path, per_byte * path.stat().st_size)
    with warnings.catch_warnings():
        # A warning here is a loss of data: rows with more cells than the header has names.
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            # pandas' own way of reading, so that a saved model meets the same types again.
            how = AS_WRITTEN if as_text else {}
            return pandas.read_csv(path, sep=separator, index_col=False, low_memory=False, **how)
        except pandas.errors.ParserWarning as error:
            raise ValueError(
                f"{path} has rows with more cells than its first line has names; give every "
                "column a name, and quote text that holds the separator."
            ) from error


def _lines(opened: BinaryIO) -> bytes:
    """The first line, a sample of those after it, and the rest of the last of them."""
    first = opened.readline(LONGEST_LINE)
    return first + opened.read(SAMPLE_BYTES) + opened.readline(LONGEST_LINE)


def _record_ends(text: str) -> Iterator[int]:
    """Where lines end outside of quotes: a quoted text may go over many lines."""
    end, quotes = 0, 0
    for line in io.StringIO(text, newline=""):
        end, quotes = end + len(line), quotes + line.count('"')
        if quotes % 2 == 0:
            yield end


def _check_names(path: Path, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{path} has more than one column named {brief(twice[0])}; give every column its own "
            "name in the first line."
        )
