"""The operations of :class:`untuned.ops.Ops` on NumPy, for functions that bring their derivatives.

Nothing is compiled and no library for differentiation is loaded, which for a linear model on a few
thousand rows takes longer than the whole run. f and g are `untuned.ops.ClosedForm`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import optree

from untuned.ops import Scalar, Tree, eager
from untuned.ops.eager import in_dtype, tree_leaves

name = "numpy"
SMALL = 32  # rows and columns of a matrix that LAPACK inverts in one piece

compiles = eager.compiles
flatten, unflatten, paths = eager.flatten, eager.unflatten, eager.paths
size, unravel = eager.size, eager.unravel
hypot, isfinite, maximum, floor = eager.hypot, eager.isfinite, eager.maximum, eager.floor
logical_not = eager.logical_not
scalar, number, counter, cast = eager.scalar, eager.number, eager.counter, eager.cast
where, cond, while_loop, scan = eager.where, eager.cond, eager.while_loop, eager.scan
repeat, swap_row, compile = eager.repeat, eager.swap_row, eager.compile
was_cut, compile_seconds = eager.was_cut, eager.compile_seconds
max_over_processes, sum_over_processes = eager.max_over_processes, eager.sum_over_processes
is_main_process, same_on_all = eager.is_main_process, eager.same_on_all
as_given, place_like = eager.as_given, eager.place_like
clip = np.clip


def tree_map(fn: Callable, tree: Tree, /, *rest: Tree) -> Tree:
    def leaf(*leaves: Any) -> Any:
        found = fn(*leaves)
        # NumPy's arithmetic turns an array without axes into a scalar, which is no array.
        return np.asarray(found) if isinstance(found, np.generic) else found

    return eager.tree_map(leaf, tree, *rest)


def zeros_like(tree: Tree, /) -> Tree:
    return tree_map(np.zeros_like, tree)


def axpy(a: Scalar, x: Tree, y: Tree, /) -> Tree:
    return tree_map(partial(_plus, a), x, y)


def _plus(a: Scalar, x: Any, y: Any) -> Any:
    step = a * x
    if step.dtype != y.dtype or step.shape != y.shape:
        return y + step
    step += y  # into the array that is new anyway: vectors may be large
    return step


def sub(a: Tree, b: Tree, /) -> Tree:
    return tree_map(np.subtract, a, b)


def dot(a: Tree, b: Tree, /) -> Scalar:
    if isinstance(a, np.ndarray):  # most trees: small runs are made of calls like this one
        return float(np.vdot(*_flat(a, b)))
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return sum(float(np.vdot(*_flat(ai, bi))) for ai, bi in pairs)


def _flat(a: Any, b: Any) -> tuple[Any, Any]:
    """Both as vectors, without a copy where axes were swapped in the same way."""
    if a.ndim > 1 and a.shape == b.shape and a.strides == b.strides:
        return a.ravel("K"), b.ravel("K")
    return a, b


def norm(tree: Tree, /) -> Scalar:
    if isinstance(tree, np.ndarray):
        return float(np.linalg.norm(tree))
    # Of norms and not of squares, which overflow where the norm does not.
    return float(np.linalg.norm([np.linalg.norm(leaf) for leaf in tree_leaves(tree)]))


def ravel(tree: Tree, /) -> Any:
    if isinstance(tree, np.ndarray):
        return tree.ravel()
    return np.concatenate([leaf.ravel() for leaf in tree_leaves(tree)])


def stack(tree: Tree, count: int, /) -> Tree:
    return tree_map(lambda leaf: np.stack([leaf] * count), tree)


def push(stack: Tree, tree: Tree, /) -> Tree:
    return tree_map(lambda old, new: np.concatenate([old[1:], new[None]]), stack, tree)


def equal(a: Tree, b: Tree, /) -> Scalar:
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return all(np.array_equal(ai, bi) for ai, bi in pairs)


def in_order(tree: Tree, /) -> Tree:
    return optree.tree_map(
        lambda a: np.asarray(a, order="C") if isinstance(a, np.ndarray) else a, tree
    )


def take(tree: Tree, indices: Any, /) -> Tree:
    return tree_map(lambda leaf: leaf[indices], tree)


def array(value: Scalar, like: Tree, /) -> Any:
    return np.asarray(value, tree_leaves(like)[0].dtype)


def epsilon(like: Tree, /) -> float:
    return float(np.finfo(tree_leaves(like)[0].dtype).eps)


def matrix(product: Callable, size: int, like: Tree, /) -> Any:
    return np.stack(eager.columns(product, np.eye(size, dtype=tree_leaves(like)[0].dtype)))


def eigh(matrix: Any, /) -> tuple[Any, Any]:
    if not np.isfinite(matrix).all():  # which LAPACK refuses, and JAX lets through
        return np.full_like(matrix[..., 0], np.nan), np.full_like(matrix, np.nan)
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors


def inverse(matrix: Any, /) -> Any:
    try:
        factor = _triangular_inverse(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)
    return factor.mT @ factor


def _triangular_inverse(lower: Any) -> Any:
    """By halves, which is nearly all products of matrices: LAPACK's general inverse is slower."""
    size = lower.shape[-1]
    if size <= SMALL:
        return np.linalg.inv(lower)
    half = size // 2
    first, last = slice(None, half), slice(half, None)
    result = np.zeros_like(lower)
    result[..., first, first] = above = _triangular_inverse(lower[..., first, first])
    result[..., last, last] = below = _triangular_inverse(lower[..., last, last])
    result[..., last, first] = -below @ (lower[..., last, first] @ above)
    return result


def simplex(tree: Tree, /) -> Tree:
    return tree_map(_simplex, tree)


def _simplex(array: Any) -> Any:
    if not array.size:
        return array  # nothing to sum to one
    # The same for all shifts, and with this one large entries do not round the sum away from one.
    array = array - array.max()
    descending = np.sort(array, axis=None)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, array.size + 1, dtype=array.dtype)
    return np.maximum(array - excess[np.sum(descending > excess) - 1], 0)


def value(fn: Any, x: Tree, y: Tree, /) -> Scalar:
    return float(fn(x, y))


def value_and_grads(fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
    result, in_x, in_y = fn.value_and_grads(x, y)
    return float(result), in_x, in_y


def grad_y(fn: Any, x: Tree, y: Tree, /) -> Tree:
    return fn.grad_y(x, y)


def value_and_grad_y(fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
    return float(fn(x, y)), fn.grad_y(x, y)


def linearize(fn: Any, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
    return fn.grad_y(x, y), fn.products(x, y)


def products(fn: Any, x: Tree, y: Tree, /) -> Callable:
    return fn.products(x, y)


def hessian(fn: Any, x: Tree, y: Tree, /) -> Any:
    pull = products(fn, x, y)
    return matrix(lambda unit: ravel(pull(unravel(unit, y), "y")), size(y), y)


def hessian_price(fn: Any, x: Tree, y: Tree, /) -> float:
    return size(y)


def precision(tree: Tree, /) -> AbstractContextManager:
    # What overflows becomes inf, which the run looks for.
    return np.errstate(all="ignore")


def asarray(leaf: Any, like: Any = None, /) -> Any:
    array = np.asarray(leaf)
    if like is None or array.dtype.kind != "f":
        return array
    return in_dtype(array, like.dtype)


def without_copy(array: np.ndarray, like: Any, /) -> Any:
    return asarray(array, like)


def dtype_name(leaf: Any, /) -> str:
    return np.asarray(leaf).dtype.name


def device_name(leaf: Any, /) -> str:
    return "cpu"


def to_numpy(leaf: Any, /) -> np.ndarray:
    return np.asarray(leaf)


to_host = partial(eager.to_host, to_numpy)
from_host = partial(eager.from_host, asarray)
pieces = partial(eager.pieces, to_numpy)


def sync(tree: Tree, /) -> None:
    pass


def head(data: Tree, count: int | None, /) -> Tree:
    return tree_map(lambda leaf: leaf[:count], data)


def output_of(fn: Callable, /, *args: Tree) -> tuple[tuple[int, ...], str]:
    out = fn(*args)
    return np.shape(out), dtype_name(out)
