"""Tables whose rows are images: as many number columns as a square has pixels."""

from __future__ import annotations

import re
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas

SMALLEST_SIDE = 4  # for columns that are called pixels
SMALLEST_SIDE_BY_COUNT = 8  # for columns with numbered names, as in x0, x1, ..., x63
LARGEST_VALUE = 65_535


class Images(NamedTuple):
    """Which columns are the pixels, row by row, and the value of the brightest."""

    columns: list[str]
    side: int
    largest: float


def find(frame: pandas.DataFrame) -> Images | None:
    """The images of a table, or None: square, named alike, from 0 up, and on one scale."""
    from pandas.api import types

    stems: dict[str, list[str]] = {}
    for name in frame.columns:
        matched = re.fullmatch(r"(.*?)[\W_]*\d+(?:[\W_x]+\d+)?", name)
        if matched and types.is_numeric_dtype(frame[name]):
            stems.setdefault(matched[1].lower(), []).append(name)
    if not stems:
        return None
    stem, names = max(stems.items(), key=lambda pair: len(pair[1]))
    side = isqrt(len(names))
    least = SMALLEST_SIDE if stem.startswith(("pixel", "px", "pix")) else SMALLEST_SIDE_BY_COUNT
    if side**2 != len(names) or side < least:
        return None
    values = frame[names]
    smallest, largest = float(values.min().min()), float(values.max().max())
    # One scale: half of the columns reach a quarter of the largest value anywhere.
    shared = (values.max() >= largest / 4).mean() >= 0.5
    if smallest < 0 or not 0 < largest <= LARGEST_VALUE or not shared:
        return None
    return Images(names, side, largest)
