"""Which data of a run stay on disk, and which are read whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.data.disk.sources import Source, row_bytes, rows_of, source_of
from untuned.ops import Ops, Tree
from untuned.util import memory

SHARE = 0.5  # of the memory that is free: a run makes copies


def keep_on_disk(
    ops: Ops, data: tuple[Tree, Tree], on_disk: tuple[bool, bool], batch_size: Any, group: Any
) -> tuple[tuple[Source | None, Source | None], tuple[Tree, Tree]]:
    """For inner and outer data: where they are read from, and those that are in memory.

    Of a side that stays on disk the rows in memory are the first batch, which is enough to see
    what its rows are like. A side that every step uses whole is read whole.
    """
    is_pair = isinstance(batch_size, tuple | list) and len(batch_size) == 2
    pair = batch_size if is_pair else (batch_size, batch_size)
    sources: list[Source | None] = []
    there: list[Tree] = []
    names = ("inner_data", "outer_data")
    for side, is_there, name, size in zip(data, on_disk, names, pair, strict=True):
        if not is_there:
            sources.append(None)
            there.append(side)
            continue
        source = source_of(ops, side, name)
        rows = int(source.starts[-1])
        if size is None:
            sources.append(None)
            there.append(_whole(source, rows, name))
        elif group is not None:
            raise ValueError(
                f"{name} is on disk and group was given; expected each process's rows in memory, "
                "so read them first, for example with numpy.array(...)."
            )
        else:
            sources.append(source)
            is_count = isinstance(size, int | np.integer) and size > 0  # else it is refused later
            there.append(rows_of(source, min(rows, int(size)) if is_count else 1))
    return (sources[0], sources[1]), (there[0], there[1])


def _whole(source: Source, rows: int, name: str) -> Tree:
    needed, free = rows * row_bytes(source), memory.available()
    if needed > SHARE * free:
        raise ValueError(
            f"{name} has {needed / 2**30:,.1f} GB on disk, {free / 2**30:,.1f} GB of memory are "
            "free, and without batch_size every step uses all rows; give batch_size, for example "
            "batch_size=256, and they are read as the run goes."
        )
    return rows_of(source, rows)
