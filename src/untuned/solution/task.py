"""What the user gave to `argmin`, checked and made ready.

Every check comes before anything is compiled. Inside a transformation only shapes and dtypes are
known, so there what would need numbers is left to the solution itself to find out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from untuned import ops as array_libraries
from untuned.ops import Ops, Tree
from untuned.problem import variables
from untuned.problem.build import check_call
from untuned.solution import newton, penalties, sparse
from untuned.solution.regions import Region, region
from untuned.solution.sparse import Groups
from untuned.util.wording import brief, unknown

DENSE_UP_TO = 256  # variables; their Hessians then take no more than half a megabyte each
NEARLY = 1e-5  # a sum of one after rounding to float32
MODES = ("nan", "raise", "warn")


class Settings(NamedTuple):
    """How a problem is solved, and what happens if it cannot be."""

    region: Region
    epsilon: float
    tol: float | None
    most: int
    on_failure: str
    groups: Groups = Groups()


class Task(NamedTuple):
    """A checked problem on one array library."""

    ops: Ops
    lib: Any
    inner: Callable
    x: Tree
    y0: Tree
    data: tuple[Tree, ...]  # none or one
    settings: Settings
    returns_numpy: bool
    l1: tuple[Any, ...] = ()  # none, or strengths: one for each entry or group

    def value(self, x: Tree, y: Any, *data: Tree) -> Any:
        """g of the vector of y's entries."""
        return self.inner(x, self.ops.unravel(y, self.y0), *data)

    def outward(self, y: Any) -> Tree:
        """The vector as the tree the user gave: NumPy in, NumPy out."""
        tree = self.ops.unravel(y, self.y0)
        return self.ops.tree_map(self.ops.to_numpy, tree) if self.returns_numpy else tree


def precision(inner: Any, x: Tree, y0: Tree) -> AbstractContextManager:
    """Inside, the library computes in the dtype of x and y0."""
    ops, _ = _library(inner, x, y0)
    return ops.precision(np.zeros((), variables.common_dtype(ops, x, y0, "x")))


def task(
    inner: Any, x: Tree, y0: Tree, data: Tree, constraint: Any, tol: Any, max_steps: Any,
    on_failure: Any, l1: Tree = None, groups: Tree = None,
) -> Task:  # fmt: skip
    """Check what the user gave; to be called within its `precision`."""
    ops, returns_numpy = _library(inner, x, y0)
    if on_failure not in MODES:
        raise unknown("on_failure", on_failure, MODES)
    lib = array_libraries.roots(ops.name)
    dtype = variables.common_dtype(ops, x, y0, "x")
    x, y = _variables(ops, lib, x, "x", dtype), _variables(ops, lib, y0, "y0", dtype)
    like = ops.flatten(y)[0][0]
    given = () if data is None else (_data(ops, lib, data, like),)
    sizes = tuple(math.prod(leaf.shape) for leaf in ops.flatten(y)[0])
    together = penalties.groups(ops, lib, groups, y, l1)
    settings = Settings(
        region(constraint, sizes),
        ops.epsilon(y),
        _tol(tol),
        _most(max_steps, together),
        on_failure,
        together,
    )
    if constraint is not None and l1 is not None:
        raise ValueError(
            f"constraint={brief(constraint)} and l1 were both given; expected one, so write "
            "the penalty into inner where y is nonnegative."
        )
    small_only = "l1" if l1 is not None else f"constraint={brief(constraint)}"
    if (constraint is not None or l1 is not None) and sum(sizes) > DENSE_UP_TO:
        raise ValueError(
            f"{small_only} was given with {sum(sizes)} variables in y0; expected up to "
            f"{DENSE_UP_TO} where there is a constraint or a penalty."
        )
    strengths = penalties.strengths(ops, lib, l1, y, together)
    for name, tree in (("x", x), ("y0", y), *zip(("data",), given, strict=False)):
        _check_finite(ops, lib, tree, name)
    _check_inside(ops, lib, y, settings.region, constraint)
    reason = "data were given" if given else "no data were given"
    check_call(ops, "inner", inner, (x, y, *given), reason)
    if ops.name == "torch" and lib.reads_more(inner, x, y, *given):
        raise ValueError(
            "inner reads a tensor that requires a gradient and is neither in x nor in data; torch "
            "gives derivatives of arguments alone, so put it into x or data, or detach it."
        )
    return Task(ops, lib, inner, x, y, given, settings, returns_numpy, strengths)


def _library(inner: Any, x: Tree, y0: Tree) -> tuple[Ops, bool]:
    if not callable(inner):
        raise ValueError(
            f"inner is a {type(inner).__name__}; expected a function of (x, y), or of "
            "(x, y, data) where data are given."
        )
    return variables.library(x, y0, x_name="x")


def _variables(ops: Ops, lib: Any, tree: Tree, name: str, dtype: str) -> Tree:
    def convert(leaf: Any) -> Any:
        return lib.take_in(np.asarray(leaf, dtype) if variables.is_plain_number(leaf) else leaf)

    arrays = ops.tree_map(convert, tree)
    if sum(math.prod(leaf.shape) for leaf in ops.flatten(arrays)[0]) == 0:
        raise ValueError(f"{name} holds no numbers; expected at least one array with entries.")
    return arrays


def _data(ops: Ops, lib: Any, data: Tree, like: Any) -> Tree:
    for leaf in array_libraries.leaves_of(data):
        variables.check_holds_numbers(leaf, "data")
    leaves, paths = ops.flatten(data)[0], ops.paths(data)
    if not leaves:
        raise ValueError("data holds no array; leave it out, or give arrays.")
    for leaf, path in zip(leaves, paths, strict=True):
        variables.check_real(ops, leaf, f"data{path}", "x")
    return ops.tree_map(lambda leaf: lib.take_in(leaf, like), data)


def _check_finite(ops: Ops, lib: Any, tree: Tree, name: str) -> None:
    if not lib.is_known(tree):
        return
    for leaf, path in zip(ops.flatten(tree)[0], ops.paths(tree), strict=True):
        array = lib.numbers(leaf)
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            at = tuple(int(k) for k in bad[0])
            raise ValueError(
                f"{name}{path} has {array[at]} at index {at} ({len(bad)} such entries); "
                "expected finite numbers, so remove or fill them in."
            )


def _check_inside(ops: Ops, lib: Any, y: Tree, region: Region, constraint: Any) -> None:
    if region.everywhere or not lib.is_known(y):
        return
    for leaf, path in zip(ops.flatten(y)[0], ops.paths(y), strict=True):
        array = lib.numbers(leaf)
        if array.size == 0:
            if region.leaves:
                raise ValueError(
                    f"y0{path} has no entries, and constraint={brief(constraint)} asks for entries "
                    "that sum to one; leave it out of y0."
                )
            continue
        low, high, total = float(array.min()), float(array.max()), float(array.sum())
        bounds = np.array([region.low, region.high], array.dtype)  # 0.3 is another in float32
        inside = bounds[0] <= low and high <= bounds[1]
        if region.leaves:
            inside = inside and abs(total - 1) <= NEARLY
        if not inside:
            raise ValueError(
                f"y0{path} is outside of constraint={brief(constraint)}: its entries go from "
                f"{low:.6g} to {high:.6g} and sum to {total:.8g}; give a y0 inside."
            )


def _tol(tol: Any) -> float | None:
    is_number = isinstance(tol, int | float | np.floating) and not isinstance(tol, bool)
    if tol is not None and not (is_number and 0 < tol < 1):
        raise ValueError(
            f"tol={brief(tol)} is not usable; expected a number between 0 and 1, the share of the "
            "first gradient's norm to stop at, or None for as exact as the dtype allows."
        )
    return None if tol is None else float(tol)


def _most(max_steps: Any, together: Groups) -> int:
    most = sparse.MOST_STEPS if together.of_entry else newton.MOST_STEPS
    is_count = isinstance(max_steps, int | np.integer) and not isinstance(max_steps, bool)
    if max_steps is not None and not (is_count and max_steps >= 1):
        raise ValueError(
            f"max_steps={brief(max_steps)} is not usable; expected a whole number from 1 up, or "
            f"None for {most}."
        )
    return most if max_steps is None else int(max_steps)
