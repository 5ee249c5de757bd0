"""What the user gave, checked and made ready: f, g, their data, x0 and y0.

Every check here comes before anything is compiled, and every error says in one sentence what
came, what was expected and what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from untuned.data.batches import Batch, Data
from untuned.data.streams import INDEX
from untuned.ops import Ops, Tree, UntraceableError, leaves_of, library_of
from untuned.problem import data_checks, sharing, variables
from untuned.problem.constraints import projection
from untuned.problem.derivatives import Oracles

A_FEW = 256  # rows that are looked at before a run


@dataclass(frozen=True)
class Problem:
    """A checked bilevel problem on one array library."""

    oracles: Oracles
    x0: Tree
    y0: Tree
    data: Data
    rows: tuple[int, int]  # rows of inner and outer data, 0 where there is none
    batch_sizes: tuple[int | None, int | None]  # inner, outer; None for all rows
    constraint: str | None  # as Python writes it; None for a function, of which nothing is known
    returns_numpy: bool
    on_disk: tuple[Any, Any] = (None, None)  # what inner and outer rows are read from, or None
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

    def max_over_processes(self, number: float) -> float:
        """The largest of the processes' numbers, so that all decide alike."""
        return self.ops.max_over_processes(number, self.y0)

    def sample(self) -> Batch:
        """A few rows of each side, the same at every call, for a look at f and g."""

        def some(side: Tree) -> Tree:
            if side is None:
                return None
            count = self.ops.flatten(side)[0][0].shape[0]
            return self.ops.take(side, np.linspace(0, count - 1, min(count, A_FEW)).astype(INDEX))

        return Batch(some(self.data.inner), some(self.data.outer))

    def outward(self, tree: Tree) -> Tree:
        """`tree` in the kind of array the user gave: NumPy in, NumPy out."""
        if not self.returns_numpy:
            return self.ops.as_given(tree)

        def outside(leaf: Any) -> np.ndarray:
            # What is NumPy's already is copied: the user may change it while the run goes on.
            return leaf.copy() if isinstance(leaf, np.ndarray) else self.ops.to_numpy(leaf)

        return self.ops.tree_map(outside, tree)


class Processes(NamedTuple):
    """Over which processes rows are shared, and which leaves of x0 belong to rows."""

    group: Any = None
    sharded: Any = False


ALONE = Processes()


def build(
    outer: Callable,
    inner: Callable,
    x0: Tree,
    y0: Tree,
    outer_data: Tree = None,
    inner_data: Tree = None,
    *,
    batch_size: Any = None,
    constraint: Any = None,
    processes: Processes = ALONE,
) -> Problem:
    """Check what the user gave and turn it into a `Problem`."""
    given = Data(inner=inner_data, outer=outer_data)
    ops, returns_numpy = _library(outer, inner, x0, y0, given, processes)
    dtype = variables.common_dtype(ops, x0, y0)
    with ops.precision(np.zeros((), dtype)):
        x, y = _variables(ops, x0, y0, dtype, given)
        like = ops.flatten(y)[0][0]
        sides = data_checks.sides(ops, given, batch_size, processes.group, like)
        _check_functions(ops, outer, inner, x, y, sides)
        x, project = _constrained(ops, x, constraint, sides.data, processes.sharded)
        oracles = Oracles(ops, outer, inner, project)
        if processes.group is not None:
            sharing.check_means(oracles, x, y, sides.data)
    return Problem(
        oracles, x, y, sides.data, sides.rows, sides.batch_sizes,
        None if callable(constraint) else repr(constraint),
        returns_numpy, sides.on_disk, processes.group is not None,
    )  # fmt: skip


def _library(
    outer: Any, inner: Any, x0: Tree, y0: Tree, given: Data, processes: Processes
) -> tuple[Ops, bool]:
    """The operations to compute with, and whether results are to be NumPy arrays."""
    for name, function in (("outer", outer), ("inner", inner)):
        if not callable(function):
            raise ValueError(
                f"{name} is a {type(function).__name__}; expected a function of (x, y), "
                "or of (x, y, batch) where data are given."
            )
    for side, name in zip(given[:2], ("inner_data", "outer_data"), strict=True):
        for leaf in leaves_of(side):
            variables.check_holds_numbers(leaf, name)
    without_data = given.inner is None and given.outer is None
    closed_form = without_data and all(hasattr(part, "value_and_grads") for part in (outer, inner))
    ops, returns_numpy = variables.library(x0, y0, closed_form)
    if processes.group is not None:
        return sharing.grouped(ops, processes.group), returns_numpy
    if processes.sharded is not False:
        raise ValueError(
            "sharded was given without group; it says which leaves of x0 belong to the rows of "
            "one process among several. On JAX give x0 with a NamedSharding instead."
        )
    return ops, returns_numpy


def _variables(ops: Ops, x0: Tree, y0: Tree, dtype: str, given: Data) -> tuple[Tree, Tree]:
    """x0 and y0 as finite arrays of one dtype, on the devices of the data."""
    x = variables.prepared(ops, x0, "x0", dtype)
    y = variables.prepared(ops, y0, "y0", dtype)
    x, y = ops.place_like((x, y), (x, y, given.inner, given.outer))
    variables.check_devices(ops, x, y)
    variables.check_finite(ops, x, "x0")
    variables.check_finite(ops, y, "y0")
    return x, y


def _check_functions(
    ops: Ops, outer: Callable, inner: Callable, x: Tree, y: Tree, sides: data_checks.Sides
) -> None:
    """One abstract call of f and g on this process's own rows, where it has any."""
    for name, function, side in (("outer", outer, 1), ("inner", inner, 0)):
        data = sides.own[side]
        if sides.own_rows[side] or data is None:
            _check_function(ops, name, function, x, y, data, sides.batch_sizes[side])


def _constrained(
    ops: Any, x: Tree, constraint: Any, data: Data, sharded: Any
) -> tuple[Tree, Callable | None]:
    """x in its set, its leaves that belong to rows marked, and the projection onto the set."""
    if sharded is not False:
        sharing.check_sides(data)
        x = sharing.mark(ops, x, sharded)
        if callable(constraint):
            constraint = sharing.on_given(ops, constraint, sharded)
    if constraint is None:
        return x, None
    project = projection(ops, constraint)
    return _projected(ops, project, x), project


def _check_function(
    ops: Ops, name: str, function: Callable, x: Tree, y: Tree, data: Tree, batch_size: int | None
) -> None:
    arguments = (x, y) if data is None else (x, y, ops.head(data, batch_size))
    reason = f"no {name}_data were given" if data is None else f"{name}_data were given"
    check_call(ops, name, function, arguments, reason)


def check_call(ops: Ops, name: str, function: Callable, arguments: tuple, reason: str) -> None:
    """One abstract call: does the function take these arguments and give one real number?

    `reason` says why there are as many arguments as there are.
    """
    call = f"{name}(x, y)" if len(arguments) == 2 else f"{name}(x, y, batch)"
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(
            f"{name} does not take the arguments of {call} ({error}); it is called like that "
            f"because {reason}."
        ) from None
    except ValueError:
        pass  # some callables have no signature to look at; the call itself will tell
    shape, dtype = _output_of(ops, name, function, *arguments)
    if dtype.startswith("NoneType"):
        raise ValueError(f"{call} gave None; expected one real number, so end it with a return.")
    if shape != () or dtype not in ("float16", "bfloat16", *variables.FLOATS):
        raise ValueError(
            f"{call} gave shape {shape} and type {dtype}; expected one real number, so end it "
            "with .sum() or .mean() of a float array."
        )


def _output_of(
    ops: Ops, name: str, function: Callable, *arguments: Tree
) -> tuple[tuple[int, ...], str]:
    try:
        return ops.output_of(function, *arguments)
    except UntraceableError as error:
        raise ValueError(f"{name} {error}") from error


def _projected(ops: Ops, project: Callable, x: Tree) -> Tree:
    """x0 brought into its set; also shows whether a user's projection keeps the tree as it is."""
    name = "The projection given as constraint"
    _output_of(ops, name, project, x)
    moved = project(x)
    if _shape(ops, moved) != _shape(ops, x):
        raise ValueError(
            f"{name} changed the shape of x; expected the same tree "
            "of arrays, each of its own shape."
        )
    if ops.name == "torch" and any(library_of(leaf) != "torch" for leaf in ops.flatten(moved)[0]):
        raise ValueError(f"{name} gave something else than torch tensors; expected those of x.")
    moved = ops.cast(moved, x)
    variables.check_finite(ops, moved, "x0 projected by constraint")
    return moved


def _shape(ops: Ops, tree: Tree) -> list[tuple[str, tuple[int, ...]]]:
    leaves = ops.flatten(tree)[0]
    return [
        (path, tuple(np.shape(leaf))) for path, leaf in zip(ops.paths(tree), leaves, strict=True)
    ]
