"""The order in which rows come: seeded index streams, made on the host with NumPy.

The rule of an epoch: a side's stream is one random permutation of its rows after another, cut
into batches from front to back. So every row is visited once before any is visited twice, no row
is left out, and every batch has the same size; a batch may hold the end of one permutation and
the start of the next. Position in the stream is a pure function of the step, which is what makes
a run independent of chunks and restarts, and JAX and torch see the same rows.

A method that remembers what it saw on each batch needs batches that come back. Its stream is of
blocks: the rows are dealt once, at random, into as few blocks as a batch size allows, whose sizes
differ by at most one, and every epoch visits each block once, in a new order.

A method that holds what it learned from some rows against others has a stream of two halves, which
take turns: the rows are dealt once, and each half is a stream of its own.
"""

from __future__ import annotations

import numpy as np

INDEX = np.int32  # no data have 2**31 rows, and JAX would convert int64 to it at every chunk
UNIFORM_SIDE, UNIFORM_BLOCK = 2, 1024
BLOCK_SIDES = (3, 4)
DISK_SIDES = (5, 6)
HALF_SIDES = (7, 8)
LABEL_COLUMNS = 1024  # at most: as many classes as a one-hot table of labels may have
EPOCHS_KEPT = 4  # permutations: what is drawn ahead may be drawn again from a little earlier


class Stream:
    """The batches of one side (0: inner, 1: outer) over `rows` rows, in the order of drawing."""

    def __init__(self, rows: int, batch_size: int, seed: int, side: int):
        self.rows, self.batch_size, self.seed, self.side = rows, batch_size, seed, side
        self._epochs: dict[int, np.ndarray] = {}

    def batches(self, first: int, count: int) -> np.ndarray:
        """Row indices of `count` batches, shape (count, batch_size)."""
        wanted = count * self.batch_size
        flat = np.empty(wanted, INDEX)
        position, filled = first * self.batch_size, 0
        while filled < wanted:
            epoch, offset = divmod(position + filled, self.rows)
            piece = self._permuted(epoch)[offset : offset + wanted - filled]
            flat[filled : filled + len(piece)] = piece
            filled += len(piece)
        return flat.reshape(count, self.batch_size)

    def _permuted(self, epoch: int) -> np.ndarray:
        if epoch not in self._epochs:
            if len(self._epochs) >= EPOCHS_KEPT:
                del self._epochs[min(self._epochs)]
            generator = generator_of(self.seed, self.side, epoch)
            self._epochs[epoch] = generator.permutation(self.rows).astype(INDEX)
        return self._epochs[epoch]


class Halves:
    """The batches of two halves in turn: even ones are of the first, odd ones of the second."""

    def __init__(self, parts: tuple[np.ndarray, np.ndarray], batch_size: int, seed: int):
        self.parts, self.batch_size = parts, batch_size
        self.streams = [
            Stream(len(part), batch_size, seed, side)
            for part, side in zip(parts, HALF_SIDES, strict=True)
        ]

    def batches(self, first: int, count: int) -> np.ndarray:
        """Row indices of `count` batches, shape (count, batch_size)."""
        out = np.empty((count, self.batch_size), INDEX)
        for half, (part, stream) in enumerate(zip(self.parts, self.streams, strict=True)):
            skip = (half - first) % 2  # before the first of this half
            wanted = len(out[skip::2])
            out[skip::2] = part[stream.batches((first + skip) // 2, wanted)]
        return out


def alike_halves(leaves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows dealt in turn into two halves, such that both have as many of each label.

    What labels are is not said: they are taken for the leaf with the fewest distinct values, whose
    order the rows are dealt in. Numbers to be predicted, all distinct, are dealt alike as well.
    """
    tables = [leaf.reshape(len(leaf), -1) for leaf in leaves]
    narrow = [table for table in tables if table.shape[1] <= LABEL_COLUMNS] or tables[:1]
    labels = min(narrow, key=lambda table: (len(np.unique(table, axis=0)), table.shape[1]))
    order = np.lexsort(labels.T[:LABEL_COLUMNS])
    return order[0::2], order[1::2]


def block_count(rows: int, batch_size: int | None) -> int:
    """The fewest blocks of at most `batch_size` rows; one for a side that is used whole."""
    return 1 if batch_size is None else -(-rows // batch_size)


def blocks(rows: int, batch_size: int, seed: int, side: int) -> np.ndarray:
    """The rows of each block of a side, shape (blocks, rows of the longest).

    Sizes are nearly equal, since a short remainder would have a far noisier mean than the others.
    Where the rows cannot be split evenly, the later blocks are one row shorter; their last entry
    is not one of their rows and is never read.
    """
    count = block_count(rows, batch_size)
    size = -(-rows // count)
    dealt = generator_of(seed, BLOCK_SIDES[side], 0).permutation(rows)
    table = np.zeros(count * size, INDEX)
    table[:rows] = dealt
    # Column by column: where rows cannot be split evenly, the last column is not full.
    return table.reshape(size, count).T


def uniforms(seed: int, first: int, count: int) -> np.ndarray:
    """One random number in [0, 1) for each of `count` steps."""
    out = np.empty(count)
    filled = 0
    while filled < count:
        block, offset = divmod(first + filled, UNIFORM_BLOCK)
        numbers = generator_of(seed, UNIFORM_SIDE, block).random(UNIFORM_BLOCK)
        piece = numbers[offset : offset + count - filled]
        out[filled : filled + len(piece)] = piece
        filled += len(piece)
    return out


def generator_of(seed: int, side: int, *part: int) -> np.random.Generator:
    """The random numbers of one part of a side's stream, by which they can be drawn again."""
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(side, *part)))
    )
