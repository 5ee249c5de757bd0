"""Rows on disk as windows: a part of the data in memory at a time, the next one read meanwhile.

A window holds a group of blocks (see `order`) as it was read, and the order to visit its
rows in, so that rows are copied once from the disk and gathered by steps like any other data.
Before them it has room for the rows that the last group left over, too few for a step.

Memory is reused for the group after next, since the first touch of fresh memory takes longer than
reading into it. So a window is valid until the next one is asked for.
"""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from untuned.data.disk.order import BlockOrder
from untuned.data.disk.sources import Source, row_bytes
from untuned.data.streams import INDEX
from untuned.ops import Tree

BUFFER_BYTES = 2**28  # of rows that are shuffled together; two such buffers are in memory
ALIGNMENT = 64  # bytes: JAX then takes an array as it is, without a copy


class Window(NamedTuple):
    """Some batches: the first one's number, how many, the rows, and the order to visit them in."""

    first: int
    batches: int
    rows: Tree
    order: np.ndarray


class Buffer(NamedTuple):
    """The rows of some blocks, after room for others; as many as the largest group can have."""

    blocks: np.ndarray
    leaves: list[np.ndarray]


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
    """The windows of one side; a step draws up to `draws` of its batches."""

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
        self._spare: list[list[np.ndarray]] = []

    def window(self, first: int) -> Window:
        """The window with the batch `first` and those after it, enough for one step at least."""
        epoch, number, offset = self.order.locate(first * self.batch_size)
        buffer, order = self._group(epoch, number).result()
        left: list[list[np.ndarray]] = []
        before = 0
        # A rest of a group that is too small for a step goes before the next group's rows.
        while before + len(order) - offset < self.room:
            left.append([leaf[self.room + order[offset:]] for leaf in buffer.leaves])
            before += len(order) - offset
            (epoch, number), offset = self.order.following(epoch, number), 0
            buffer, order = self._group(epoch, number).result()
        if left:
            for leaf, parts in zip(buffer.leaves, zip(*left, strict=True), strict=True):
                leaf[:before] = np.concatenate(parts)
        self._group(*self.order.following(epoch, number))  # while steps use this one
        places = np.concatenate([np.arange(before), self.room + order[offset:]]).astype(INDEX)
        rows = self.source.rebuild(list(buffer.leaves))
        return Window(first, len(places) // self.batch_size, rows, places)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _group(self, epoch: int, number: int) -> Future:
        """The rows of a group and their order, as a future; only it and the one before are kept."""
        place = (epoch, number)
        if place not in self._reading:
            kept = {k: v for k, v in self._reading.items() if self.order.following(*k) == place}
            before = next(iter(kept.values()), None)
            for old in self._reading.keys() - kept.keys():
                self._thread.submit(self._let_go, self._reading[old], before)
            future = self._thread.submit(self._read, epoch, number, before)
            self._reading = kept | {place: future}
        return self._reading[place]

    def _let_go(self, future: Future, before: Future | None) -> None:
        """In the thread: keep the memory of a group that is no longer needed."""
        leaves = future.result()[0].leaves
        in_use = [] if before is None else [before.result()[0].leaves]
        if not any(leaves is other for other in in_use + self._spare):
            self._spare.append(leaves)

    def _read(self, epoch: int, number: int, before: Future | None) -> tuple[Buffer, np.ndarray]:
        """In the thread: a group's rows."""
        blocks, order = self.order.group(epoch, number)
        if before is not None and np.array_equal(before.result()[0].blocks, blocks):
            return before.result()[0], order  # only one group: the same rows in another order
        leaves = self._spare.pop() if self._spare else self._memory()
        stop = self.room
        for block in map(int, blocks):
            start, stop = stop, stop + int(self.order.lengths[block])
            into = [leaf[start:stop] for leaf in leaves]
            self.source.read(block, into)
            _check_finite(into, int(self.source.starts[block]))
        return Buffer(blocks, leaves), order

    def _memory(self) -> list[np.ndarray]:
        """Room for a group, in the dtypes of the run."""
        kinds = [(self.float_type if d.kind == "f" else d, shape) for d, shape in self.source.kinds]
        return [_aligned((self.room + self.most, *shape), np.dtype(d)) for d, shape in kinds]
