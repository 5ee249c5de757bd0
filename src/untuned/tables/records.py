"""The records of a user's file, which come back as they were.

A record of a CSV file is a slice of the file's own bytes. A row of a Parquet file keeps its Arrow
types and the file's metadata. Neither passes through pandas, which guesses types from cells.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    import pandas

# How pandas gives the cells of a CSV file as they are written.
AS_WRITTEN: dict = {"dtype": str, "keep_default_na": False}
BOM = b"\xef\xbb\xbf"
QUOTED = rb'"[^"]*+(?:""[^"]*+)*+"?+'


class Corrections(NamedTuple):
    """New cells of the label column, by the rows they belong to."""

    column: int  # the place of the label column
    rows: dict[int, int]  # a row with that label already, whose cell is taken
    numbers: dict[int, float]


NONE = Corrections(0, {}, {})


class Records(Protocol):
    """What the two kinds of file have in common; rows are counted from 0."""

    def cells(self, column: int) -> pandas.Series:
        """A column as it is in the file: text of a CSV file, values of a Parquet file."""

    def write(
        self, path: Path, rows: np.ndarray, front: pandas.DataFrame | None, new: Corrections
    ) -> None:
        """Write some rows, in the order given, with columns of ours in front of them."""


class Selection(NamedTuple):
    """Rows of the user's file to be written."""

    records: Records
    rows: np.ndarray
    front: pandas.DataFrame | None = None
    corrections: Corrections = NONE

    def write(self, path: Path) -> None:
        """Write them in the format they came in."""
        self.records.write(path, np.asarray(self.rows, np.int64), self.front, self.corrections)


@dataclass(frozen=True)
class CsvRecords:
    """The bytes of a CSV file and where its records start, as pandas' parser sees them."""

    content: bytes
    separator: str
    starts: np.ndarray = field(init=False)  # of the header, of each row, and the end

    def __post_init__(self) -> None:
        starts = [*record_starts(self.content, self.separator), len(self.content)]
        object.__setattr__(self, "starts", np.array(starts, np.int64))

    def __len__(self) -> int:
        return max(0, len(self.starts) - 2)

    def cells(self, column: int) -> pandas.Series:
        import pandas

        content = io.BytesIO(self.content)
        frame = pandas.read_csv(content, sep=self.separator, usecols=[column], **AS_WRITTEN)
        return frame.iloc[:, 0]

    def write(
        self, path: Path, rows: np.ndarray, front: pandas.DataFrame | None, new: Corrections
    ) -> None:
        first, second = (int(place) for place in self.starts[:2])
        header = self.content[first:second]
        line_end = re.search(rb"(\r\n?|\n)[ \t\r\n]*+\Z", header)[1]  # type: ignore[index]
        ours = repeat(b"") if front is None else self._in_front(front)
        with path.open("wb") as file:
            file.write(self.content[:first] + next(ours) + header)
            for place, row in enumerate(rows.tolist(), 1):
                record = self._record(row, new)
                if place < len(rows) and not record.endswith((b"\n", b"\r")):
                    record += line_end
                file.write(next(ours) + record)

    def _record(self, row: int, new: Corrections) -> bytes:
        start, end = (int(place) for place in self.starts[row + 1 : row + 3])
        if row in new.rows:
            cell = self.content[slice(*self._span(new.rows[row], new.column))]
        elif row in new.numbers:
            value = new.numbers[row]
            cell = (str(int(value)) if value.is_integer() else repr(value)).encode()
        else:
            return self.content[start:end]
        first, last = self._span(row, new.column)
        return self.content[start:first] + cell + self.content[last:end]

    def _span(self, row: int, column: int) -> tuple[int, int]:
        """Where a cell is in the file, with its quotes."""
        cell, place = re.compile(_cell(self.separator)), int(self.starts[row + 1])
        for _ in range(column):
            place = cell.match(self.content, place).end() + 1  # type: ignore[union-attr]
        return cell.match(self.content, place).span()  # type: ignore[union-attr]

    def _in_front(self, front: pandas.DataFrame) -> Iterator[bytes]:
        """The header and the lines of our columns, each ending with the separator."""
        filled = front.astype(object).where(front.notna(), "")
        special = re.compile(f'[{self.separator}"\r\n]')
        for line in [list(front.columns), *filled.itertuples(index=False, name=None)]:
            texts = (str(each) for each in line)
            cells = (
                '"' + text.replace('"', '""') + '"' if special.search(text) else text
                for text in texts
            )
            yield "".join(cell + self.separator for cell in cells).encode()


def _cell(separator: str) -> bytes:
    """A pattern of one cell. A quote counts at a cell's beginning only."""
    return rb"(?:%b)?+[^%b\r\n]*+" % (QUOTED, re.escape(separator.encode()))


def record_starts(content: bytes, separator: str) -> list[int]:
    """Where the records of a CSV file start; lines without a letter are no records."""
    cell, mark = _cell(separator), re.escape(separator.encode())
    blank = b" " if separator == "\t" else b" \t"
    alike = {b"blank": blank, b"cell": cell, b"mark": mark, b"end": rb"(?:\r\n?|\n|\Z)"}
    # Most lines have no quotes, and are cut faster where that is looked at first.
    quoted = rb"%(cell)b(?:%(mark)b%(cell)b)*+%(end)b"
    lines = rb"(?P<blank>[%(blank)b]*+%(end)b)|[^\"\r\n]*+%(end)b|" + quoted
    record = re.compile(lines % alike)
    begin = len(BOM) if content.startswith(BOM) else 0
    return [
        found.start() for found in record.finditer(content, begin) if found.lastgroup != "blank"
    ]


@dataclass(frozen=True)
class ParquetRecords:
    """The table of a Parquet file."""

    table: Any  # pyarrow.Table

    def cells(self, column: int) -> pandas.Series:
        import pandas
        import pyarrow

        values = self.table.column(column)
        if pyarrow.types.is_integer(values.type) and values.null_count:
            return pandas.Series(values.to_pylist(), dtype="Int64")  # floats would round them
        return values.to_pandas()

    def write(
        self, path: Path, rows: np.ndarray, front: pandas.DataFrame | None, new: Corrections
    ) -> None:
        import pyarrow
        from pyarrow import parquet

        table = self._corrected(new)
        is_asked = np.zeros(len(table), bool)
        is_asked[rows] = True
        # A filter keeps the file's own chunks, so that no text grows beyond what an array can hold.
        try:
            table = table.filter(pyarrow.array(is_asked))
        except pyarrow.ArrowNotImplementedError:  # views of text
            table = _taken(table, np.flatnonzero(is_asked))
        if (np.diff(rows) < 0).any():
            table = _taken(table, np.argsort(np.argsort(rows)))
        if front is not None:
            ours = pyarrow.Table.from_pandas(front, preserve_index=False)
            for place, name in enumerate(ours.column_names):
                table = table.add_column(place, ours.schema.field(name), ours.column(name))
        parquet.write_table(table, path)

    def _corrected(self, new: Corrections) -> Any:
        import pyarrow

        table = self.table
        if not new.rows and not new.numbers:
            return table
        column, at = table.column(new.column), np.arange(len(table))
        if new.rows:
            at[list(new.rows)] = list(new.rows.values())
        else:
            numbers = pyarrow.array(list(new.numbers.values()), pyarrow.float64())
            try:
                numbers = numbers.cast(column.type)
            except pyarrow.ArrowInvalid:  # the column's type cannot hold them
                column = column.cast(pyarrow.float64())
            column = pyarrow.chunked_array([*column.chunks, numbers], column.type)
            at[list(new.numbers)] = len(table) + np.arange(len(numbers))
        own = table.schema.field(new.column).with_type(column.type)
        return table.set_column(new.column, own, _taken(column, at))


def _taken(values: Any, rows: np.ndarray) -> Any:
    """Rows of a column or table in another order. pyarrow takes slices of any type, and single rows
    not of all types (views of text)."""
    import pyarrow

    try:
        return values.take(pyarrow.array(rows))
    except pyarrow.ArrowNotImplementedError:
        if isinstance(values, pyarrow.Table):
            columns = [_taken(column, rows) for column in values.columns]
            return pyarrow.Table.from_arrays(columns, schema=values.schema)
        pieces = [piece for row in rows for piece in values.slice(int(row), 1).chunks]
        return pyarrow.chunked_array(pieces, values.type)
