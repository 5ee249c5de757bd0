"""Where rows on disk come from: blocks of them, read into arrays that already exist."""

from __future__ import annotations

import math
import mmap
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from untuned.data.disk.direct import FileReader
from untuned.data.disk.parquet import ParquetRows, ParquetSource
from untuned.ops import Ops, Tree

BLOCK_BYTES = 2**22  # long enough for a disk to read at its full speed


class Source(Protocol):
    """One side's rows on disk."""

    starts: np.ndarray  # the first row of each block, and the number of rows at the end
    kinds: list[tuple[np.dtype, tuple[int, ...]]]  # of each leaf: its dtype, and a row's shape

    def rebuild(self, leaves: list, /) -> Tree:
        """The tree of the leaves."""

    def read(self, block: int, into: list[np.ndarray]) -> None:
        """The rows of a block, into an array for each leaf."""


def source_of(ops: Ops, data: Tree, name: str) -> Source:
    """The rows of `inner_data` or `outer_data` that are on disk."""
    if isinstance(data, str | Path):
        data = ParquetRows(data)
    if isinstance(data, ParquetRows):
        return ParquetSource(data, name)
    return MappedSource(ops, data, name)


def row_bytes(source: Source) -> int:
    """Bytes of a row, all leaves together."""
    return sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in source.kinds)


def rows_of(source: Source, count: int) -> Tree:
    """The first rows."""
    blocks = int(np.searchsorted(source.starts, count))
    pieces: list[list[np.ndarray]] = []
    for block in range(max(1, blocks)):
        pieces.append(empty(source, int(np.diff(source.starts)[block])))
        source.read(block, pieces[-1])
    leaves = [np.concatenate(parts)[:count] for parts in zip(*pieces, strict=True)]
    return source.rebuild(leaves)


def empty(source: Source, rows: int) -> list[np.ndarray]:
    """Arrays for so many rows."""
    return [np.empty((rows, *shape), dtype) for dtype, shape in source.kinds]


class MappedSource:
    """A tree of arrays of which some are mapped from files."""

    def __init__(self, ops: Ops, tree: Tree, name: str):
        leaves, structure = ops.flatten(tree)
        lengths = {len(leaf) if np.ndim(leaf) else 0 for leaf in leaves}
        if len(lengths) > 1 or lengths == {0}:
            raise ValueError(
                f"{name} has arrays of {sorted(lengths)} rows; expected the same leading axis for "
                "all of them, and at least one row."
            )
        self._unflatten = partial(ops.unflatten, structure)
        self._leaves: list[Any] = [
            leaf if isinstance(leaf, np.ndarray) else ops.to_numpy(leaf) for leaf in leaves
        ]
        self._readers = [_reader(leaf) for leaf in self._leaves]
        self.kinds = [(leaf.dtype, leaf.shape[1:]) for leaf in self._leaves]
        length = max(1, BLOCK_BYTES // max(1, row_bytes(self)))
        rows = lengths.pop()
        self.starts = np.append(np.arange(0, rows, length), rows)

    def rebuild(self, leaves: list, /) -> Tree:
        return self._unflatten(leaves)

    def read(self, block: int, into: list[np.ndarray]) -> None:
        start, stop = int(self.starts[block]), int(self.starts[block + 1])
        for leaf, reader, out in zip(self._leaves, self._readers, into, strict=True):
            if reader is None:
                out[...] = leaf[start:stop]
                continue
            per_row = leaf.dtype.itemsize * math.prod(leaf.shape[1:])
            found = reader.read(leaf.offset + start * per_row, (stop - start) * per_row)
            out[...] = found.view(leaf.dtype).reshape(out.shape)


def _reader(leaf: Any) -> FileReader | None:
    """A reader for an array that is a file's content as it is; others are sliced, without one."""
    is_mapped = isinstance(leaf, np.memmap) and isinstance(leaf.base, mmap.mmap)
    if not is_mapped or leaf.filename is None or not leaf.flags.c_contiguous:
        return None
    return FileReader(Path(leaf.filename))
