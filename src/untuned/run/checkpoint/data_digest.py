"""A digest of data that does not depend on which process holds which rows.

It is a sum over all entries, each times a number that belongs to its place, so processes can each
sum over what they hold. It tells data from other data by accident, not against an adversary.
"""

from __future__ import annotations

import numpy as np

from untuned.ops import Ops, Tree

WORDS = 2**20  # at a time, which bounds the memory
MULTIPLIER, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def data_digest(ops: Ops, data: Tree, like: Tree) -> str:
    """The digest of a side's rows over all processes; `like` are the variables."""
    total = 0
    for leaf, first, rows in ops.pieces(data):
        total += _sum(rows, first, leaf)
    return f"{ops.sum_over_processes(total % 2**64, like):016x}"


def _sum(rows: np.ndarray, first: int, leaf: int) -> int:
    if rows.size == 0:
        return 0
    words = np.ascontiguousarray(rows).reshape(len(rows), -1)
    unsigned = words.view(f"u{words.dtype.itemsize}")
    columns = np.random.default_rng([leaf, words.dtype.itemsize]).integers(
        2**64, size=unsigned.shape[1], dtype=np.uint64
    )
    height, total = max(1, WORDS // unsigned.shape[1]), 0
    for start in range(0, len(unsigned), height):
        block = unsigned[start : start + height].astype(np.uint64)
        numbers = np.arange(first + start, first + start + len(block), dtype=np.uint64)
        total += int(((block @ columns) * _weights(numbers)).sum())
    return total


def _weights(numbers: np.ndarray) -> np.ndarray:
    """An odd number for each row, unlike those of its neighbours."""
    mixed = (numbers + np.uint64(1)) * MULTIPLIER
    mixed = (mixed ^ (mixed >> np.uint64(32))) * SECOND
    return mixed | np.uint64(1)
