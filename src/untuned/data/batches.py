"""What one step computes on: the rows of each side, gathered from what the host has drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.ops import Ops, Scalar, Tree


class Data(NamedTuple):
    """The rows of each side a run works on, as arrays of its library; None where there are none.

    `sample` are a few random rows of the inner side, for methods that run on the host.
    """

    inner: Tree = None
    outer: Tree = None
    sample: Tree = None


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
    """Rows in all, rows of a longer block, and how many (the first ones) are longer."""
    rows = ops.flatten(side.data)[0][0].shape[0]
    count, size = side.table.shape
    return rows, size, rows - count * (size - 1)


class Cut(NamedTuple):
    """The blocks of a side, and the numbers of those a chunk of steps draws."""

    table: Any
    slots: Any


class Feed(NamedTuple):
    """What the host makes for a chunk of steps: indices (or a `Cut`) per side, random numbers.

    Where a side is on disk, also the rows themselves, to which the indices then refer.
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
    """The batch of one step of a chunk, from the first batches of each side not yet drawn."""
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
