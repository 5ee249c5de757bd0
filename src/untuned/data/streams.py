"""The order in which rows come: seeded index streams, made on the host with NumPy.

The rule of an epoch: a side's stream is one random permutation of its rows after another, cut
into batches from front to back. So every row is visited once before any is visited twice, no row
is left out, and every batch has the same size; a batch may hold the end of one permutation and
the start of the next. Position in the stream is a pure function of the step, which is what makes
a run independent of chunks and restarts, and JAX and torch see the same rows.

A method that remembers what it saw on each batch needs batches that come back. Its stream is of
blocks: the rows are dealt once, at random, into as few blocks as a batch size allows, whose sizes
differ by at most one, and every epoch visits each block once, in a new order.
"""

from __future__ import annotations

import numpy as np

INDEX = np.int32  # no data have 2**31 rows, and JAX would convert int64 to it at every chunk
UNIFORM_SIDE, UNIFORM_BLOCK = 2, 1024
BLOCK_SIDES = (3, 4)
DISK_SIDES = (5, 6)
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
