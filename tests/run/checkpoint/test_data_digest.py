"""The digest of data tells them from others, and does not care who holds which rows."""

import numpy as np
import pytest
import torch

from untuned.ops import get
from untuned.run.checkpoint.data_digest import WORDS, _sum, data_digest


def digest(*leaves):
    return data_digest(get("torch"), tuple(map(torch.tensor, leaves)), None)


def made(dtype, shape=(50, 3)):
    rng = np.random.default_rng(0)
    return (100 * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
def test_any_change_shows(dtype):
    rows = made(dtype)
    seen = {digest(rows), digest(rows.astype("float16")), digest(rows, rows[:, 0])}
    for first, second in ((0, 1), (10, 40)):
        moved = rows.copy()
        moved[[first, second]] = rows[[second, first]]
        seen.add(digest(moved))
    seen |= {digest(rows[:, [1, 0, 2]]), digest(rows[:-1]), digest(rows[::-1].copy())}
    for place in ((0, 0), (49, 2), (25, 1)):
        changed = rows.copy()
        changed[place] += 1
        seen.add(digest(changed))
    assert len(seen) == 11


def test_leaves_are_told_apart():
    first, second = made("float64"), made("float64") + 1
    assert digest(first, second) != digest(second, first)


@pytest.mark.parametrize("shape", [(50, 3), (50,), (50, 2, 2), (3, WORDS + 1)])
def test_parts_add_up(shape):
    rows = made("float32", shape)
    cut = len(rows) // 3
    whole = _sum(rows, 0, 7) % 2**64
    assert (_sum(rows[:cut], 0, 7) + _sum(rows[cut:], cut, 7)) % 2**64 == whole
