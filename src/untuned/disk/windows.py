"""Rows on disk as windows: a part of the data in memory at a time, the next one read meanwhile.

A window holds a group of blocks (see `order`) as it was read, and the order to visit its
rows in, so that rows are copied once from the disk and gathered by steps like any other data.
Before them it has room for the rows that the last group left over, too few for a step.
"""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from untuned.batches import INDEX
from untuned.disk.order import BlockOrder
from untuned.disk.sources import Source, row_bytes
from untuned.ops import Tree

BUFFER_BYTES = 2**28  # of rows that are shuffled together; two or three such buffers are in memory
ALIGNMENT = 64  # bytes: JAX then takes an array as it is, without a copy


class Window(NamedTuple):
    """Some batches: the first one's number, how many, the rows, and the order to visit them in."""

    first: int
    batches: int
    rows: Tree
    order: np.ndarray


class Buffer:
    """The rows of some blocks, after room for others."""

    def __init__(self, source: Source, blocks: np.ndarray, room: int, most: int, float_type: str):
        self.source, self.blocks, self.room = source, blocks, room
        kinds = [(np.dtype(float_type) if d.kind == "f" else d, shape) for d, shape in source.kinds]
        self.leaves = [_aligned((room + most, *shape), dtype) for dtype, shape in kinds]

    def read(self) -> None:
        """Read all blocks."""
        stop = self.room
        for block in map(int, self.blocks):
            start, stop = stop, stop + int(np.diff(self.source.starts)[block])
            into = [leaf[start:stop] for leaf in self.leaves]
            self.source.read(block, into)
            _check_finite(into, int(self.source.starts[block]))


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def _check_finite(leaves: list[np.ndarray], first: int) -> None:
    for leaf in leaves:
        if leaf.dtype.kind != "f":
            continue
        with np.errstate(all="ignore"):
            if math.isfinite(leaf.sum()):
                continue
        bad = np.argwhere(~np.isfinite(leaf))
        if len(bad):
            row = first + int(bad[0][0])
            raise ValueError(
                f"The data on disk have {leaf[tuple(bad[0])]} in row {row}; expected finite "
                "numbers, so remove or fill them in."
            )


class Windows:
    """The windows of one side, of whose batches a step draws up to `draws`."""

    def __init__(
        self, source: Source, batch_size: int, draws: int, seed: int, side: int, float_type: str
    ):
        self.source, self.batch_size, self.draws = source, batch_size, draws
        self.float_type = float_type
        lengths = np.diff(source.starts)
        together = max(1, BUFFER_BYTES // max(1, int(lengths.max()) * row_bytes(source)))
        self.order = BlockOrder(source.starts, together, seed, side)
        longest = np.sort(lengths)[::-1][:together].sum()
        # Room for less than a step's rows, and for the largest group there can be.
        self.room, self.most = batch_size * draws, int(longest)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="untuned-rows")
        self._reading: dict[tuple[int, int], Future] = {}

    def window(self, first: int) -> Window:
        """The window with the batch `first` and those after it, for one step at least."""
        epoch, number, offset = self.order.locate(first * self.batch_size)
        buffer, order = self._group(epoch, number).result()
        left: list[tuple[Buffer, np.ndarray]] = []
        # What is left of a group and not enough for a step goes before the next one's rows.
        while sum(len(rows) for _, rows in left) + len(order) - offset < self.room:
            left.append((buffer, order[offset:]))
            (epoch, number), offset = self.order.following(epoch, number), 0
            buffer, order = self._group(epoch, number).result()
        before = sum(len(rows) for _, rows in left)
        if left:
            copied = [self._gather(left, k) for k in range(len(buffer.leaves))]
            if any(old is buffer for old, _ in left):  # whose rows are in use elsewhere
                buffer = self._copy(buffer)
            for leaf, rows in zip(buffer.leaves, copied, strict=True):
                leaf[:before] = rows
        self._group(*self.order.following(epoch, number))  # while steps use this one
        places = np.concatenate([np.arange(before), self.room + order[offset:]]).astype(INDEX)
        rows = self.source.rebuild(list(buffer.leaves))
        return Window(first, len(places) // self.batch_size, rows, places)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _gather(self, left: list[tuple[Buffer, np.ndarray]], leaf: int) -> np.ndarray:
        return np.concatenate([old.leaves[leaf][self.room + rows] for old, rows in left])

    def _copy(self, buffer: Buffer) -> Buffer:
        fresh = self._buffer(buffer.blocks)
        for new, old in zip(fresh.leaves, buffer.leaves, strict=True):
            new[...] = old
        return fresh

    def _buffer(self, blocks: np.ndarray) -> Buffer:
        return Buffer(self.source, blocks, self.room, self.most, self.float_type)

    def _group(self, epoch: int, number: int) -> Future:
        """The rows of a group and their order, to come; only it and the one before are kept."""
        place = (epoch, number)
        if place not in self._reading:
            self._reading = {
                old: future
                for old, future in self._reading.items()
                if self.order.following(*old) == place
            }
            before = next(iter(self._reading.values()), None)
            self._reading[place] = self._thread.submit(self._read, epoch, number, before)
        return self._reading[place]

    def _read(self, epoch: int, number: int, before: Future | None) -> tuple[Buffer, np.ndarray]:
        """In the thread: a group's rows."""
        blocks, order = self.order.group(epoch, number)
        if before is not None and np.array_equal(before.result()[0].blocks, blocks):
            return before.result()[0], order  # one group is all: another order of the same rows
        buffer = self._buffer(blocks)
        buffer.read()
        return buffer, order
