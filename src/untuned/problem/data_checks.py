"""The data of both sides as the user gave them: checked, as arrays, with their rows counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from untuned import ops as array_libraries
from untuned.data.batches import Data
from untuned.data.disk.parquet import ParquetRows
from untuned.ops import Ops, Tree
from untuned.problem import sharing, variables
from untuned.util.wording import brief

Pair = tuple[Any, Any]  # something of the inner side, the same of the outer side


class Sides(NamedTuple):
    """What is known of the data of both sides.

    `own` and `own_rows` are this process's; `data` and `rows` those of all processes, the same
    where there is one. Of a side on disk `data` has the first batch.
    """

    data: Data
    rows: tuple[int, int]  # of inner and outer data, 0 where there is none
    own: Data
    own_rows: tuple[int, int]
    batch_sizes: tuple[int | None, int | None]
    on_disk: Pair


def sides(ops: Ops, given: Data, batch_size: Any, group: Any, like: Any) -> Sides:
    """Check the data and make them arrays beside the variables, which are like `like`."""
    on_disk: Pair = (None, None)
    if any(_is_on_disk(side) for side in given[:2]):
        from untuned.data.disk.keep import keep_on_disk

        where = (_is_on_disk(given.inner), _is_on_disk(given.outer))
        on_disk, there = keep_on_disk(ops, given[:2], where, batch_size, group)
        given = Data(*there)
    own = Data(
        arrays(ops, given.inner, "inner_data", like), arrays(ops, given.outer, "outer_data", like)
    )
    least = 1 if group is None else 0  # a process may hold no row of its own
    inner, outer = (
        count_rows(ops, side, name, least) if source is None else int(source.starts[-1])
        for side, name, source in zip(own[:2], ("inner_data", "outer_data"), on_disk, strict=True)
    )
    data, rows = own, (inner, outer)
    if group is not None:
        data, rows = sharing.shared(ops, own, rows)
    return Sides(data, rows, own, (inner, outer), batch_sizes(batch_size, rows), on_disk)


def _is_on_disk(data: Tree) -> bool:
    """Whether data are a file, or hold an array that is mapped from one."""
    if isinstance(data, str | Path | ParquetRows):
        return True
    return any(isinstance(leaf, np.memmap) for leaf in array_libraries.leaves_of(data))


def arrays(ops: Ops, tree: Tree, name: str, like: Any) -> Tree:
    """Data as arrays beside the variables: floats in their dtype, everything on their device."""
    if tree is None:
        return None
    for leaf, path in zip(ops.flatten(tree)[0], ops.paths(tree), strict=True):
        variables.check_real(ops, leaf, name + path)
        if variables.is_plain_number(leaf):
            raise ValueError(
                f"{name}{path} is the number {leaf!r}; expected arrays of rows, so make one of a "
                "list with numpy.asarray, and let the function close over constants."
            )
        is_numpy = array_libraries.library_of(leaf) == "numpy"
        if not is_numpy and ops.device_name(leaf) != ops.device_name(like):
            raise ValueError(
                f"{name}{path} is on {ops.device_name(leaf)} and the variables are on "
                f"{ops.device_name(like)}; expected one device for both, so move one of them."
            )
    converted = ops.tree_map(lambda leaf: ops.asarray(variables.native(leaf), like), tree)
    variables.check_finite(ops, converted, name)
    return converted


def count_rows(ops: Ops, data: Tree, name: str, least: int = 1) -> int:
    """The length of the leading axis that all arrays of a side share."""
    if data is None:
        return 0
    first: tuple[str, int] | None = None
    for leaf, path in zip(ops.flatten(data)[0], ops.paths(data), strict=True):
        place = name + path
        if len(leaf.shape) == 0 or leaf.shape[0] < least:
            raise ValueError(
                f"{place} has shape {tuple(leaf.shape)}; expected at least one row along its "
                "leading axis."
            )
        if first is None:
            first = (place, int(leaf.shape[0]))
        elif int(leaf.shape[0]) != first[1]:
            raise ValueError(
                f"{first[0]} has {first[1]} rows and {place} has {leaf.shape[0]}; expected the "
                f"same leading axis for all arrays of {name}."
            )
    if first is None:
        raise ValueError(f"{name} holds no array; leave it out, or give arrays of rows.")
    return first[1]


def batch_sizes(batch_size: Any, rows: tuple[int, int]) -> tuple[int | None, int | None]:
    """The pair (inner, outer) of batch sizes; None for a side that is used whole."""
    if batch_size is None:
        return None, None
    if rows == (0, 0):
        raise ValueError(
            f"batch_size={brief(batch_size)} was given without data; give inner_data or "
            "outer_data, or leave batch_size out."
        )
    is_pair = isinstance(batch_size, tuple | list) and len(batch_size) == 2
    pair = tuple(batch_size) if is_pair else (batch_size, batch_size)
    for size, count, name in zip(pair, rows, ("inner_data", "outer_data"), strict=True):
        is_count = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if size is not None and (not is_count or size < 1):
            raise ValueError(
                f"batch_size={brief(batch_size)} is not usable; expected a whole number from 1 up, "
                "a pair (inner, outer) of them, or None for all rows."
            )
        if size is not None and 0 < count < size:
            raise ValueError(
                f"batch_size={size} is more than the {count} rows of {name}; give at most "
                f"{count}, or None for all rows."
            )
    inner, outer = (
        int(size) if count and size is not None else None
        for size, count in zip(pair, rows, strict=True)
    )
    return inner, outer
