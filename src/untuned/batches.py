"""Which rows each step sees: seeded index streams, made on the host with NumPy.

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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.ops import Ops, Scalar, Tree


class Data(NamedTuple):
    """The rows of each side a run works on, as arrays of its library; None where there are none.

    For methods that use them (untuned.stages): `pilot` are a few random rows of the inner side, and
    `held_out` rows of the outer side that are not in `outer`. Where `inner` is a sample on trial,
    `whole` are all rows of the inner side and `unseen` as many of them outside the sample.
    """

    inner: Tree = None
    outer: Tree = None
    pilot: Tree = None
    held_out: Tree = None
    whole: Tree = None
    unseen: Tree = None


class Batch(NamedTuple):
    """What one step computes on.

    `inner` and `outer` are the rows for g and for f, None where there is no data; `Draws` of them
    where the method draws more than once in a step, a `Block` where it asks for blocks. `uniform`
    is a random number in [0, 1) and `data` are all rows, for methods that ask for them.
    """

    inner: Tree = None
    outer: Tree = None
    uniform: Scalar = None
    data: Data = Data()


class Draws(NamedTuple):
    """Several batches of one side, gathered only when `draw` asks for one."""

    data: Tree
    indices: Any


def draw(ops: Ops, side: Tree, k: Scalar) -> Tree:
    """The k-th batch of a side; a side that is not `Draws` serves the same rows every time."""
    return ops.take(side.data, side.indices[k]) if isinstance(side, Draws) else side


class Block(NamedTuple):
    """One block of a side, by its number in the table of all of them (see `blocks`)."""

    data: Tree
    table: Any
    slot: Scalar


def slots(side: Tree) -> int:
    """How many blocks a side is cut into; one where it is used whole."""
    return side.table.shape[0] if isinstance(side, Block) else 1


def slot(side: Tree) -> Scalar:
    """The number of the block that was drawn."""
    return side.slot if isinstance(side, Block) else 0


def share(ops: Ops, side: Tree, slot: Scalar) -> Scalar:
    """The share of a side's rows that a block holds."""
    if not isinstance(side, Block):
        return 1.0
    rows, size, longer = _sizes(ops, side)
    return ops.where(slot < longer, size / rows, (size - 1) / rows)


def on_block(ops: Ops, side: Tree, slot: Scalar, fn: Callable[[Tree], Tree]) -> Tree:
    """`fn` of the rows of a block; of all rows where the side is used whole."""
    if not isinstance(side, Block):
        return fn(side)
    rows = side.table[slot]
    *_, longer = _sizes(ops, side)
    if longer == slots(side):
        return fn(ops.take(side.data, rows))
    # Two sizes are two shapes to a compiler, so each has its own evaluation.
    return ops.cond(
        slot < longer,
        lambda: fn(ops.take(side.data, rows)),
        lambda: fn(ops.take(side.data, rows[:-1])),
    )


def on_first(ops: Ops, side: Tree, fn: Callable[[Tree], Tree]) -> Tree:
    """`fn` of the first batch that a step draws of a side."""
    if isinstance(side, Block):
        return on_block(ops, side, side.slot, fn)
    return fn(draw(ops, side, 0))


def _sizes(ops: Ops, side: Block) -> tuple[int, int, int]:
    """Rows in all, rows of a longer block, and how many are longer: the first ones."""
    rows = ops.flatten(side.data)[0][0].shape[0]
    count, size = side.table.shape
    return rows, size, rows - count * (size - 1)


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

    Nearly equal sizes, since a short rest would be a block with a far noisier mean than others.
    The later blocks are one row shorter if the rows do not go round; the last entry of theirs is
    no row of theirs, and is never read.
    """
    count = block_count(rows, batch_size)
    size = -(-rows // count)
    dealt = generator_of(seed, BLOCK_SIDES[side], 0).permutation(rows)
    table = np.zeros(count * size, INDEX)
    table[:rows] = dealt
    # Column by column: the rows that do not go round are those missing in the last column.
    return table.reshape(size, count).T


INDEX = np.int32  # no data have 2**31 rows, and of int64 JAX would make it at every chunk
UNIFORM_SIDE, UNIFORM_BLOCK = 2, 1024
BLOCK_SIDES = (3, 4)
DISK_SIDES = (5, 6)
EPOCHS_KEPT = 4  # permutations: what is drawn ahead may be drawn again from a little earlier


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


class Cut(NamedTuple):
    """The blocks of a side, and the numbers of those a chunk of steps draws."""

    table: Any
    slots: Any


class Feed(NamedTuple):
    """What the host makes for a chunk of steps: indices (or a `Cut`) per side, random numbers.

    Where a side is on disk, also the rows themselves, which the indices then count.
    """

    inner: Any = None
    outer: Any = None
    uniform: Any = None
    inner_rows: Tree = None
    outer_rows: Tree = None


def gather(
    ops: Ops,
    data: Data,
    feed: Feed,
    step: Scalar,
    drawn: tuple[Scalar, Scalar],
    draws: tuple[int, int],
) -> Batch:
    """The batch of a step of a chunk, from the first batches of each side not drawn before."""
    read = (feed.inner_rows, feed.outer_rows)
    there = [old if new is None else new for old, new in zip(data[:2], read, strict=True)]
    inner, outer = (_side(ops, *side) for side in zip(there, feed[:2], drawn, draws, strict=True))
    uniform = None if feed.uniform is None else feed.uniform[step]
    return Batch(inner, outer, uniform, data)


def _side(ops: Ops, rows: Tree, indices: Any, first: Scalar, draws: int) -> Tree:
    if indices is None:
        return rows
    if isinstance(indices, Cut):
        return Block(rows, indices.table, indices.slots[first])
    if draws == 1:
        return ops.take(rows, indices[first])
    return Draws(rows, indices[first + np.arange(draws)])
