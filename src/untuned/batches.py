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


class Batch(NamedTuple):
    """What one step computes on: the rows for g and for f, None where there is no data."""

    inner: Tree = None
    outer: Tree = None


class Draws(NamedTuple):
    """Several batches of one side, stacked: a method that redraws inside a step gets these."""

    rows: Tree


class Data(NamedTuple):
    """All rows of each side, as arrays of the run's library."""

    inner: Tree = None
    outer: Tree = None


def draw(ops: Ops, side: Tree, k: Scalar) -> Tree:
    """The k-th batch of a side; a side that is not `Draws` serves the same rows every time."""
    return ops.take(side.rows, k) if isinstance(side, Draws) else side


class Stream:
    """The index stream of one side (0: inner, 1: outer) over `rows` rows."""

    def __init__(self, rows: int, batch_size: int, draws: int, seed: int, side: int):
        self.rows = rows
        self.shape = (draws, batch_size)
        self.key = (seed, side)
        self._epoch = -1
        self._permutation = np.empty(0, np.int64)

    def indices(self, first_step: int, steps: int, padded_to: int) -> np.ndarray:
        """Indices of shape (padded_to, draws, batch_size); zeros after the first `steps`."""
        width = self.shape[0] * self.shape[1]
        out = np.zeros((padded_to, *self.shape), np.int64)
        flat = out.reshape(-1)
        position, filled = first_step * width, 0
        while filled < steps * width:
            epoch, offset = divmod(position + filled, self.rows)
            piece = self._permuted(epoch)[offset : offset + steps * width - filled]
            flat[filled : filled + len(piece)] = piece
            filled += len(piece)
        return out

    def _permuted(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            seed, side = self.key
            sequence = np.random.SeedSequence(seed, spawn_key=(side, epoch))
            self._permutation = np.random.Generator(np.random.PCG64(sequence)).permutation(
                self.rows
            )
            self._epoch = epoch
        return self._permutation


def gather(ops: Ops, data: Data, indices: tuple[Any, ...], k: Scalar) -> Batch:
    """The batch of the k-th step of a chunk; `indices` holds None for a side used whole."""
    return Batch(*(_rows(ops, rows, index, k) for rows, index in zip(data, indices, strict=True)))


def _rows(ops: Ops, rows: Tree, indices: Any, k: Scalar) -> Tree:
    if indices is None:
        return rows
    drawn = indices[k]
    if drawn.shape[0] == 1:
        return ops.take(rows, drawn[0])
    return Draws(ops.take(rows, drawn))
