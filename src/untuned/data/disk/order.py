"""In which order rows on disk are visited: shuffled in blocks, so that the disk reads in long runs.

An epoch visits the blocks of a side in a random order. As many of them as a buffer
holds are read one after another, and their rows are shuffled together. So every row is visited once
before any is visited twice, and what a batch holds comes from all over a buffer. Where all rows
fit into one buffer the order is that of data in memory. It is a pure function of the position.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from untuned.data.streams import DISK_SIDES, INDEX, generator_of


class Group(NamedTuple):
    """Blocks that are shuffled together: which, and the order of their rows."""

    blocks: np.ndarray
    order: np.ndarray


class BlockOrder:
    """The order of one side; `starts` are its blocks' first rows, then the number of rows."""

    def __init__(self, starts: np.ndarray, together: int, seed: int, side: int):
        self.lengths = np.diff(starts)
        self.rows = int(starts[-1])
        self.together, self.seed, self.side = together, seed, side
        self._blocks = lru_cache(maxsize=4)(self._permuted)

    def locate(self, position: int) -> tuple[int, int, int]:
        """The epoch of a position in the stream, its group there, and the place in the group."""
        epoch, offset = divmod(position, self.rows)
        ends = np.cumsum([lengths.sum() for lengths in self._split(self.lengths, epoch)])
        group = int(np.searchsorted(ends, offset, side="right"))
        return epoch, group, int(offset - (ends[group - 1] if group else 0))

    def group(self, epoch: int, number: int) -> Group:
        """A group of an epoch."""
        if len(self.lengths) <= self.together:
            order = generator_of(self.seed, self.side, epoch).permutation(self.rows)
            return Group(np.arange(len(self.lengths)), order.astype(INDEX))
        blocks = self._split(np.arange(len(self.lengths)), epoch)[number]
        generator = generator_of(self.seed, DISK_SIDES[self.side], epoch, number)
        return Group(blocks, generator.permutation(self.lengths[blocks].sum()).astype(INDEX))

    def following(self, epoch: int, number: int) -> tuple[int, int]:
        """The group after this one."""
        last = -(-len(self.lengths) // self.together) - 1
        return (epoch, number + 1) if number < last else (epoch + 1, 0)

    def _split(self, values: np.ndarray, epoch: int) -> list[np.ndarray]:
        """One value per block, in an epoch's order, split into its groups."""
        cuts = np.arange(self.together, len(self.lengths), self.together)
        return np.split(values[self._blocks(epoch)], cuts)

    def _permuted(self, epoch: int) -> np.ndarray:
        if len(self.lengths) <= self.together:
            return np.arange(len(self.lengths))
        return generator_of(self.seed, DISK_SIDES[self.side], epoch).permutation(len(self.lengths))
