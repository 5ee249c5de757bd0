"""Which rows each step sees: seeded index streams, made on the host with NumPy.

The rule of an epoch: a side's stream is one random permutation of its rows after another, cut
into batches from front to back. So every row is visited once before any is visited twice, no row
is left out, and every batch has the same size; a batch may hold the end of one permutation and
the start of the next. Position in the stream is a pure function of the step, which is what makes
a run independent of chunks and restarts, and JAX and torch see the same rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from untuned.ops import Ops, Scalar, Tree


class Data(NamedTuple):
    """The rows of each side a run works on, as arrays of its library; None where there are none.

    `pilot` are a few random rows of the inner side, `held_out` rows of the outer side that are not
    in `outer`, each for methods that use them (untuned.stages).
    """

    inner: Tree = None
    outer: Tree = None
    pilot: Tree = None
    held_out: Tree = None


class Batch(NamedTuple):
    """What one step computes on.

    `inner` and `outer` are the rows for g and for f, None where there is no data; `Draws` of them
    where the method draws more than once in a step. `uniform` is a random number in [0, 1) and
    `data` are all rows, for methods that ask for them.
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


class Stream:
    """The batches of one side (0: inner, 1: outer) over `rows` rows, in the order of drawing."""

    def __init__(self, rows: int, batch_size: int, seed: int, side: int):
        self.rows, self.batch_size, self.seed, self.side = rows, batch_size, seed, side
        self._epochs: dict[int, np.ndarray] = {}

    def batches(self, first: int, count: int) -> np.ndarray:
        """Row indices of `count` batches, shape (count, batch_size)."""
        wanted = count * self.batch_size
        flat = np.empty(wanted, np.int64)
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
            generator = _generator(self.seed, self.side, epoch)
            self._epochs[epoch] = generator.permutation(self.rows)
        return self._epochs[epoch]


UNIFORM_SIDE, UNIFORM_BLOCK = 2, 1024
EPOCHS_KEPT = 4  # permutations: what is drawn ahead may be drawn again from a little earlier


def uniforms(seed: int, first: int, count: int) -> np.ndarray:
    """One random number in [0, 1) for each of `count` steps."""
    out = np.empty(count)
    filled = 0
    while filled < count:
        block, offset = divmod(first + filled, UNIFORM_BLOCK)
        numbers = _generator(seed, UNIFORM_SIDE, block).random(UNIFORM_BLOCK)
        piece = numbers[offset : offset + count - filled]
        out[filled : filled + len(piece)] = piece
        filled += len(piece)
    return out


def _generator(seed: int, side: int, part: int) -> np.random.Generator:
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(side, part)))
    )


class Feed(NamedTuple):
    """What the host makes for a chunk of steps: batch indices of both sides, random numbers."""

    inner: Any = None
    outer: Any = None
    uniform: Any = None


def gather(
    ops: Ops,
    data: Data,
    feed: Feed,
    step: Scalar,
    drawn: tuple[Scalar, Scalar],
    draws: tuple[int, int],
) -> Batch:
    """The batch of a step of a chunk, from the first batches of each side not drawn before."""
    inner, outer = (
        _side(ops, *side) for side in zip(data[:2], feed[:2], drawn, draws, strict=True)
    )
    uniform = None if feed.uniform is None else feed.uniform[step]
    return Batch(inner, outer, uniform, data)


def _side(ops: Ops, rows: Tree, indices: Any, first: Scalar, draws: int) -> Tree:
    if indices is None:
        return rows
    if draws == 1:
        return ops.take(rows, indices[first])
    return Draws(rows, indices[first + np.arange(draws)])
