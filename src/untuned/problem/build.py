"""What the user gave, checked and made ready: f, g, their data, x0 and y0.

Every check here comes before anything is compiled, and every error says in one sentence what
came, what was expected and what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from untuned import ops as array_libraries
from untuned.data.batches import Data
from untuned.data.disk.keep import keep_on_disk
from untuned.ops import Ops, Tree
from untuned.problem import sharing, variables
from untuned.problem.constraints import projection
from untuned.problem.derivatives import Oracles
from untuned.util.wording import brief


@dataclass(frozen=True)
class Problem:
    """A checked bilevel problem on one array library."""

    oracles: Oracles
    x0: Tree
    y0: Tree
    data: Data
    rows: tuple[int, int]  # rows of inner and outer data, 0 where there is none
    batch_sizes: tuple[int | None, int | None]  # inner, outer; None for all rows
    constraint: str  # in words
    returns_numpy: bool
    on_disk: tuple[Any, Any] = (None, None)  # where inner and outer rows are read from, if so
    grouped: bool = False  # whether rows are shared among the processes of a torch group

    @property
    def ops(self) -> Ops:
        return self.oracles.ops

    @property
    def dtype(self) -> str:
        return self.ops.dtype_name(self.ops.flatten(self.y0)[0][0])

    @property
    def full_batch(self) -> bool:
        return self.batch_sizes == (None, None)

    def precision(self) -> AbstractContextManager:
        """Inside, the library computes in the dtype of x0 and y0."""
        return self.ops.precision((self.x0, self.y0))

    def agree(self, number: float) -> float:
        """The largest of the processes' numbers, so that all decide alike."""
        return self.ops.agree(number, self.y0)

    def outward(self, tree: Tree) -> Tree:
        """`tree` in the kind of array the user gave: NumPy in, NumPy out."""
        tree = self.ops.as_given(tree)
        return self.ops.tree_map(self.ops.to_numpy, tree) if self.returns_numpy else tree


def build(
    outer: Callable,
    inner: Callable,
    x0: Tree,
    y0: Tree,
    outer_data: Tree = None,
    inner_data: Tree = None,
    batch_size: Any = None,
    constraint: Any = None,
    group: Any = None,
    sharded: Any = False,
) -> Problem:
    """Check what the user gave and turn it into a `Problem`."""
    for name, function in (("outer", outer), ("inner", inner)):
        if not callable(function):
            raise ValueError(
                f"{name} is a {type(function).__name__}; expected a function of (x, y), "
                "or of (x, y, batch) where data are given."
            )
    without_data = outer_data is None and inner_data is None
    closed_form = without_data and all(hasattr(part, "value_and_grads") for part in (outer, inner))
    ops, returns_numpy = variables.library(x0, y0, closed_form)
    if group is not None:
        ops = sharing.grouped(ops, group)
    elif sharded is not False:
        raise ValueError(
            "sharded was given without group; it says which leaves of x0 belong to the rows of "
            "one process among several. On JAX give x0 with a NamedSharding instead."
        )
    dtype = variables.common_dtype(ops, x0, y0)
    with ops.precision(np.zeros((), dtype)):
        x = variables.prepared(ops, x0, "x0", dtype)
        y = variables.prepared(ops, y0, "y0", dtype)
        x, y = ops.beside((x, y), (x, y, inner_data, outer_data))
        variables.check_devices(ops, x, y)
        variables.check_finite(ops, x, "x0")
        variables.check_finite(ops, y, "y0")
        like = ops.flatten(y)[0][0]
        on_disk, (inner_data, outer_data) = keep_on_disk(
            ops, (inner_data, outer_data), batch_size, group
        )
        data = Data(
            _data(ops, inner_data, "inner_data", like), _data(ops, outer_data, "outer_data", like)
        )
        least = 1 if group is None else 0
        inner_rows, outer_rows = (
            _rows(ops, side, name, least)
            for side, name in zip(data[:2], ("inner_data", "outer_data"), strict=True)
        )
        if on_disk[0] is not None:
            inner_rows = int(on_disk[0].starts[-1])
        if on_disk[1] is not None:
            outer_rows = int(on_disk[1].starts[-1])
        rows = own_rows = (inner_rows, outer_rows)
        own_data = data
        if group is not None:
            data, rows = sharing.shared(ops, data, rows)
        sizes = _batch_sizes(batch_size, rows)
        for name, function, side in (("outer", outer, 1), ("inner", inner, 0)):
            if own_rows[side] or own_data[side] is None:
                _check_function(ops, name, function, x, y, own_data[side], sizes[side])
        if sharded is not False:
            sharing.check_sides(data)
            x = sharing.mark(ops, x, sharded)
            if callable(constraint):
                constraint = sharing.on_given(ops, constraint, sharded)
        project = projection(ops, constraint)
        x = x if project is None else _projected(ops, project, x)
        oracles = Oracles(ops, outer, inner, project)
        if group is not None:
            sharing.check_means(oracles, x, y, data)
    spoken = "a function" if callable(constraint) else repr(constraint)
    return Problem(
        oracles, x, y, data, rows, sizes, spoken, returns_numpy, on_disk, group is not None
    )


def _data(ops: Ops, tree: Tree, name: str, like: Any) -> Tree:
    """Data as arrays beside the variables: floats in their dtype, everything on their device."""
    if tree is None:
        return None
    for leaf, path in zip(ops.flatten(tree)[0], ops.paths(tree), strict=True):
        library = array_libraries.library_of(leaf)
        if library not in ("numpy", ops.name):
            raise ValueError(
                f"{name}{path} holds {variables.SPOKEN[library]} and x0 holds "
                f"{variables.SPOKEN[ops.name]}; expected NumPy arrays or the library of x0, so "
                "convert it."
            )
        dtype = variables.dtype_of(ops, leaf)
        if not dtype.startswith(("bool", "int", "uint", "float", "bfloat", "longdouble")):
            raise ValueError(
                f"{name}{path} has dtype {dtype}; expected real numbers, so encode it first, for "
                "example labels as 0, 1, 2."
            )
        if library != "numpy" and ops.device_name(leaf) != ops.device_name(like):
            raise ValueError(
                f"{name}{path} is on {ops.device_name(leaf)} and the variables are on "
                f"{ops.device_name(like)}; expected one device for both, so move one of them."
            )
    arrays = ops.tree_map(lambda leaf: ops.asarray(leaf, like), tree)
    variables.check_finite(ops, arrays, name)
    return arrays


def _rows(ops: Ops, data: Tree, name: str, least: int = 1) -> int:
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


def _batch_sizes(batch_size: Any, rows: tuple[int, int]) -> tuple[int | None, int | None]:
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


def _check_function(
    ops: Ops, name: str, function: Callable, x: Tree, y: Tree, data: Tree, batch_size: int | None
) -> None:
    """One abstract call: does the function take these arguments and give one real number?"""
    arguments = (x, y) if data is None else (x, y, ops.head(data, batch_size))
    call = f"{name}(x, y)" if data is None else f"{name}(x, y, batch)"
    reason = f"no {name}_data were given" if data is None else f"{name}_data were given"
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(
            f"{name} does not take the arguments of {call} ({error}); it is called like that "
            f"because {reason}."
        ) from None
    except ValueError:
        pass  # some callables have no signature to look at; the call itself will tell
    shape, dtype = ops.output_of(function, *arguments)
    if shape != () or dtype not in ("float16", "bfloat16", *variables.FLOATS):
        raise ValueError(
            f"{call} gave shape {shape} and type {dtype}; expected one real number, so end it "
            "with .sum() or .mean() of a float array."
        )


def _projected(ops: Ops, project: Callable, x: Tree) -> Tree:
    """x0 brought into its set; also shows whether a user's projection keeps the tree as it is."""
    moved = project(x)
    if _shape(ops, moved) != _shape(ops, x):
        raise ValueError(
            "The projection given as constraint changed the shape of x; expected the same tree "
            "of arrays, each of its own shape."
        )
    moved = ops.cast(moved, x)
    variables.check_finite(ops, moved, "x0 projected by constraint")
    return moved


def _shape(ops: Ops, tree: Tree) -> list[tuple[str, tuple[int, ...]]]:
    leaves = ops.flatten(tree)[0]
    return [
        (path, tuple(np.shape(leaf))) for path, leaf in zip(ops.paths(tree), leaves, strict=True)
    ]
