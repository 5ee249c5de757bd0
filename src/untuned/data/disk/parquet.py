"""Parquet files as data: each row group a block, each column or list of columns an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untuned.util.damage import told
from untuned.util.wording import brief, reason

Columns = Mapping[str, str | Sequence[str]]
TURNED = 1024  # rows made from columns at a time


@dataclass(frozen=True)
class ParquetRows:
    """What `untuned.parquet` gives: files, and which of their columns make which array."""

    path: str | Path
    columns: Columns | None = None


def parquet(path: str | Path, columns: Columns | None = None) -> ParquetRows:
    """Rows of a Parquet file, or of all in a folder, as `inner_data` or `outer_data`.

    Parameters
    ----------
    path : a file, or a folder whose `*.parquet` are taken in the order of their names.
    columns : for each array of a batch its column, or a list of columns that become one array of
        shape (rows, columns). None: every column an array of its own.

    Example
    -------
    >>> import untuned
    >>> rows = untuned.parquet("train.parquet", {"D": ["age", "height"], "t": "label"})
    >>> rows.columns["t"]
    'label'
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise ValueError(
            f"columns={brief(columns)} does not say which array each column makes; expected a "
            'dict such as {"age": "age", "D": ["height", "weight"]}, or None for every column.'
        )
    return ParquetRows(path, columns)


class ParquetSource:
    """The rows of Parquet files."""

    def __init__(self, given: ParquetRows, name: str):
        from pyarrow import ArrowInvalid
        from pyarrow import parquet as reader

        path = Path(given.path)
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files or not all(file.is_file() for file in files):
            raise ValueError(
                f"{name} is {str(path)!r}, where there is no Parquet file; expected the path of "
                "one, or of a folder of them."
            )
        try:
            self._files = [reader.ParquetFile(file) for file in files]
        except (ArrowInvalid, OSError) as error:
            raise ValueError(
                f"{name} is {str(path)!r}, which could not be read as Parquet ({reason(error)}); "
                "give a Parquet file, or NumPy arrays."
            ) from None
        self._name = name
        self._groups = [
            (file, number) for file in self._files for number in range(file.num_row_groups)
        ]
        lengths = [file.metadata.row_group(number).num_rows for file, number in self._groups]
        self.starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        if self.starts[-1] == 0:
            raise ValueError(f"{name} is {str(path)!r}, which has no rows; expected at least one.")
        known = self._files[0].schema_arrow.names
        self._columns = dict(given.columns or {column: column for column in known})
        wanted = [column for group in self._columns.values() for column in _listed(group)]
        for file, column in ((file, column) for file in self._files for column in wanted):
            if column not in file.schema_arrow.names:
                raise ValueError(
                    f"{name} has no column {column!r}; expected one of "
                    f"{', '.join(map(repr, known[:20]))}."
                )
        self._wanted = list(dict.fromkeys(wanted))
        shapes = [leaf.shape[1:] for leaf in self._read(0, 1)]
        # Of a column that is whole in one file and not in another, every row must fit.
        kinds = (self._arrays(file.schema_arrow.empty_table()) for file in self._files)
        dtypes = [np.result_type(*leaves) for leaves in zip(*kinds, strict=True)]
        self.kinds = list(zip(dtypes, shapes, strict=True))

    def rebuild(self, leaves: list, /) -> Any:
        return dict(zip(self._columns, leaves, strict=True))

    def read(self, block: int, into: list[np.ndarray]) -> None:
        for out, found in zip(into, self._read(block), strict=True):
            out[...] = found

    def _read(self, block: int, most: int | None = None) -> list[np.ndarray]:
        file, number = self._groups[block]
        with told(
            lambda error: (
                f"{self._name} holds rows {self.starts[block]} and on in a Parquet file, "
                f"which could not be read there ({reason(error)}); give a file that is whole."
            )
        ):
            table = file.read_row_group(number, columns=self._wanted, use_threads=False)
        if most is not None:
            table = table.slice(0, most)
        return self._arrays(table)

    def _arrays(self, table: Any) -> list[np.ndarray]:
        found = {column: self._numbers(table, column) for column in self._wanted}
        return [
            found[group] if isinstance(group, str)
            else _side_by_side([found[column] for column in group])
            for group in self._columns.values()
        ]  # fmt: skip

    def _numbers(self, table: Any, column: str) -> np.ndarray:
        """A column as numbers; lists of one length become an array of two axes."""
        import pyarrow

        values = table[column].combine_chunks()
        if values.null_count:
            raise ValueError(
                f"{self._name} has {values.null_count} missing values in column {column!r}; "
                "expected numbers throughout, so fill them in first."
            )
        kind = values.type
        if pyarrow.types.is_fixed_size_list(kind):
            flat = values.flatten().to_numpy(zero_copy_only=False)
            array = flat.reshape(len(values), kind.list_size)
        else:
            array = values.to_numpy(zero_copy_only=False)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"{self._name} has {kind} in column {column!r}; expected numbers, so encode it "
                "first, or leave it out with untuned.parquet(path, columns)."
            )
        return array


def _side_by_side(columns: list[np.ndarray]) -> np.ndarray:
    """Columns as one array of rows, transposed in pieces that stay in the cache."""
    rows, *rest = columns[0].shape
    if rest:
        return np.stack(columns, axis=1)
    together = np.empty((rows, len(columns)), np.result_type(*columns))
    for start in range(0, rows, TURNED):
        part = slice(start, start + TURNED)
        together[part] = np.stack([column[part] for column in columns]).T
    return together


def _listed(group: str | Sequence[str]) -> list[str]:
    return [group] if isinstance(group, str) else list(group)
