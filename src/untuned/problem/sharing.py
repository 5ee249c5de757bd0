"""Problems whose rows are shared among the processes of a torch group, checked and put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from untuned import ops as array_libraries
from untuned.data.batches import Data
from untuned.ops import Ops, Tree
from untuned.problem import mean_check
from untuned.problem.derivatives import Oracles

PROBED = 500  # rows of a half


def grouped(ops: Ops, group: Any) -> Any:
    """The operations over a group of processes."""
    if ops.name != "torch":
        raise ValueError(
            "group was given and x0 holds JAX or NumPy arrays; it is for torch tensors. On JAX "
            "give data with a NamedSharding over a mesh of all processes' devices instead."
        )
    return array_libraries.over(group)


def mark(ops: Any, x: Tree, which: Any) -> Tree:
    """x with the leaves marked that belong to rows."""
    if which is not True:
        flags, leaves = ops.flatten(which)[0], ops.flatten(x)[0]
        if ops.paths(which) != ops.paths(x) or not all(type(flag) is bool for flag in flags):
            raise ValueError(
                f"sharded has the leaves {ops.paths(which)} and x0 has {len(leaves)} at "
                f"{ops.paths(x)}; expected True, or True or False in the place of each leaf of x0."
            )
    for leaf, path in zip(ops.flatten(x)[0], ops.paths(x), strict=True):
        if leaf.ndim == 0 and (which is True or ops.flatten(which)[0][ops.paths(x).index(path)]):
            raise ValueError(
                f"sharded names x0{path}, which is a single number; expected an array with the "
                "entries of this process's rows along its leading axis."
            )
    return ops.mark_sharded(x, which)


def shared(ops: Any, data: Data, rows: tuple[int, int]) -> tuple[Data, tuple[int, int]]:
    """The data as parts of all rows, and the numbers of all rows."""
    sides: list[Any] = []
    for side, count, name in zip(data[:2], rows, ("inner_data", "outer_data"), strict=True):
        given = ops.max_over_processes(float(side is not None), None)
        if side is None and given:
            raise ValueError(
                f"This process was given no {name} and another one was; give arrays without rows "
                "where a process has none."
            )
        sides.append(None if side is None else ops.shard(side, count))
        if side is not None and sides[-1].total == 0:
            raise ValueError(f"No process has a row of {name}; expected at least one in all.")
    inner, outer = (0 if side is None else side.total for side in sides)
    return Data(*sides), (inner, outer)


def check_sides(data: Data) -> None:
    """Refuse functions without data where x is sharded: no process has all of x for them."""
    for name, side in (("inner", data.inner), ("outer", data.outer)):
        if side is None:
            raise ValueError(
                f"sharded was given and {name} takes no data; expected data for both functions, "
                "since each process computes only on the part of x that belongs to its rows."
            )


def check_means(o: Oracles, x: Tree, y: Tree, data: Data) -> None:
    """Refuse f or g that are not means over rows: results of processes could not be combined."""
    ops = o.ops
    for name, side, function in (("inner", data.inner, o.inner_value),
                                 ("outer", data.outer, o.outer_value)):  # fmt: skip
        if side is None or side.total < 2:
            continue
        some = np.linspace(0, side.total - 1, 2 * min(side.total // 2, PROBED), dtype=np.int64)
        if mean_check.gap(ops, function, x, y, side, some) > mean_check.SAME:
            raise _no_mean(name)


def _no_mean(name: str) -> ValueError:
    return ValueError(
        f"{name} is not a mean over the rows of its batch: on all rows it is not the mean of what "
        "it is on two halves of them; with group, expected means over rows plus terms without "
        "data, so use .mean() in place of .sum()."
    )


def on_given(ops: Any, project: Callable, which: Any) -> Callable[[Tree], Tree]:
    """A user's projection, which sees a process's own entries of x, for x as a run has it."""

    def projected(x: Tree) -> Tree:
        return ops.mark_sharded(project(ops.as_given(x)), which)

    return projected
