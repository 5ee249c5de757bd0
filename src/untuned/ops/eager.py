"""What NumPy and torch share: trees, loops in plain Python, and scalars that are Python's floats.

Arrays are never changed in place, so choosing a tree is choosing a reference. Most trees are one
array, and small runs are made of calls on those: they do not go through optree.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from untuned.ops import Scalar, Tree
from untuned.util import watch

compiles = False

hypot = math.hypot
isfinite = math.isfinite
logical_not = operator.not_
FEWEST = 100  # numbers that a float type tells apart between a column's ends, or the user is told


def flatten(tree: Tree, /) -> tuple[list[Any], Any]:
    return optree.tree_flatten(tree)


def unflatten(structure: Any, leaves: list[Any], /) -> Tree:
    return optree.tree_unflatten(structure, leaves)


def paths(tree: Tree, /) -> list[str]:
    return [accessor.codify("") for accessor in optree.tree_accessors(tree)]


def tree_map(fn: Callable, tree: Tree, /, *rest: Tree) -> Tree:
    return fn(tree, *rest) if hasattr(tree, "dtype") else optree.tree_map(fn, tree, *rest)


def tree_leaves(tree: Tree, /) -> list[Any]:
    return [tree] if hasattr(tree, "dtype") else optree.tree_leaves(tree)


def in_form(model: Tree, leaves: list[Any], /) -> Tree:
    """The leaves in the structure of another tree."""
    if hasattr(model, "dtype"):
        return leaves[0]
    return optree.tree_unflatten(optree.tree_structure(model), leaves)


def size(tree: Tree, /) -> int:
    return sum(math.prod(leaf.shape) for leaf in tree_leaves(tree))


def unravel(vector: Any, like: Tree, /) -> Tree:
    shaped, end = [], 0
    for leaf in tree_leaves(like):
        start, end = end, end + math.prod(leaf.shape)
        shaped.append(vector[start:end].reshape(leaf.shape))
    return in_form(like, shaped)


def repeat(tree: Tree, count: int, /) -> Any:
    # A list and not stacked arrays: replacing one then copies references and no numbers.
    return [tree] * count


def swap_row(rows: Any, k: Scalar, tree: Tree, /) -> tuple[Tree, Any]:
    changed = list(rows)
    old, changed[int(k)] = changed[int(k)], tree
    return old, changed


def scalar(value: float, like: Tree, /) -> Scalar:
    return value


def number(array: Any, /) -> Scalar:
    return array.item()


def maximum(a: Scalar, b: Scalar, /) -> Scalar:
    return a if a > b or math.isnan(a) else b


def counter(value: int, /) -> Scalar:
    return value


def floor(a: Scalar, /) -> Scalar:
    return int(a)


def cast(tree: Tree, like: Tree, /) -> Tree:
    return tree


def where(condition: Scalar, a: Tree, b: Tree, /) -> Tree:
    return a if condition else b


def while_loop(cond: Callable, body: Callable, carry: Tree, /) -> Tree:
    present = watch.present()
    held = [carry]  # popped, so that `body` may let go of what it has read: vectors may be large
    del carry
    while cond(held[0]):
        if present is not None and present.says_stop():
            break
        held.append(body(held.pop()))
    return held[0]


def was_cut() -> Scalar:
    present = watch.present()
    return present is not None and present.has_stopped


def cond(condition: Scalar, if_true: Callable, if_false: Callable, /) -> Tree:
    return if_true() if condition else if_false()


def scan(fn: Callable, carry: Tree, xs: Any, length: int, reverse: bool, /) -> tuple[Tree, Any]:
    # Outs need not be stacked: a list serves as xs as well.
    outs: list[Any] = [None] * length
    for k in reversed(range(length)) if reverse else range(length):
        if watch.says_stop():  # then no later loop makes a turn, so nobody misses the outs
            break
        carry, outs[k] = fn(carry, None if xs is None else xs[k])
    return carry, outs


def columns(product: Callable, units: Any, /) -> list[Any]:
    """The products of the units; zeros in their place once the watch says stop."""
    return [0 * unit if watch.says_stop() else product(unit) for unit in units]


def compile(fn: Callable, /, *args: Any, effort: str = "full") -> Callable:
    return fn


def compile_seconds() -> float:
    return 0.0


# One process; `untuned.ops.torch_group` has several.


def max_over_processes(number: float, like: Tree, /) -> float:
    return number


def sum_over_processes(number: int, like: Tree, /) -> int:
    return number


def is_main_process(like: Tree, /) -> bool:
    return True


def same_on_all(text: str, like: Tree, /) -> bool:
    return True


def as_given(tree: Tree, /) -> Tree:
    return tree


def place_like(tree: Tree, data: Tree, /) -> Tree:
    return tree


# The border to the host, which each library crosses in its own way


def to_host(to_numpy: Callable, tree: Tree, /) -> list[np.ndarray]:
    return [to_numpy(leaf) for leaf in flatten(tree)[0]]


def from_host(asarray: Callable, arrays: list[np.ndarray], like: Tree, /) -> Tree:
    leaves, structure = flatten(like)
    restored = [
        type(leaf)(array) if isinstance(leaf, int | float) else asarray(array, leaf)
        for array, leaf in zip(arrays, leaves, strict=True)
    ]
    return unflatten(structure, restored)


def pieces(to_numpy: Callable, tree: Tree, /) -> list[tuple[int, int, np.ndarray]]:
    return [(number, 0, array) for number, array in enumerate(to_host(to_numpy, tree))]


def in_dtype(array: np.ndarray, dtype: Any) -> np.ndarray:
    """An array in another dtype of its kind, native in byte order.

    Refuses whole numbers that do not fit, and warns of floats that no longer differ.
    """
    dtype = np.dtype(dtype)
    if array.dtype.kind in "iu" and array.dtype.itemsize > dtype.itemsize and array.size:
        limits = np.iinfo(dtype)
        for number in (int(array.min()), int(array.max())):
            if not limits.min <= number <= limits.max:
                raise ValueError(
                    f"An array of {array.dtype.name} and shape {array.shape} holds {number}, and "
                    f"with float32 variables there is only {dtype}; give x0 and y0 in float64, or "
                    "count from another number, such as the smallest."
                )
    with np.errstate(over="ignore"):  # what is too large becomes inf, and is refused as such
        narrow = array.astype(dtype, copy=False)
    if array.dtype.kind == "f" and array.dtype.itemsize > dtype.itemsize and array.size:
        _warn_of_lost(array, narrow)
    return narrow


def _warn_of_lost(wide: np.ndarray, narrow: np.ndarray) -> None:
    """Warn where a column has hardly any of its differences left, or whole numbers change."""
    low, high = (np.atleast_1d(ends) for ends in (wide.min(0), wide.max(0)))
    with np.errstate(all="ignore"):
        spacing = np.finfo(narrow.dtype).eps * np.maximum(np.abs(low), np.abs(high))
        lost = (high > low) & (high - low < FEWEST * spacing) & np.isfinite(spacing)
        is_large = spacing.max() > 2  # whole numbers below are exact
        changed = is_large and (wide != narrow) & np.isfinite(narrow) & (wide == np.floor(wide))
    if lost.any():
        at = tuple(np.argwhere(lost)[0])
        what = f"goes from {low[at]:.17g} to {high[at]:.17g} in one of its columns"
    elif np.any(changed):
        what = f"holds {wide[tuple(np.argwhere(changed)[0])]:.17g}"
    else:
        return
    warnings.warn(
        f"An array of {wide.dtype.name} and shape {wide.shape} {what}, where {narrow.dtype} does "
        "not tell neighbouring numbers apart; give x0 and y0 in float64, or subtract a constant.",
        RuntimeWarning,
        stacklevel=2,
    )
