"""The operations of :class:`untuned.ops.Ops` on JAX: traced, compiled, differentiated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as tu
from jax.sharding import AxisType, PartitionSpec

from untuned.ops import Scalar, Tree, jax_arrays, jax_compiling, jax_processes

name = "jax"
compiles = True
AT_ONCE = 2**26  # bytes of one column of rows for all unit vectors that a Hessian is made with

tree_map = jax.tree.map
hypot = jnp.hypot
maximum = jnp.maximum
isfinite, logical_not = jnp.isfinite, jnp.logical_not
clip = jnp.clip
while_loop = lax.while_loop
flatten = tu.tree_flatten
unflatten = tu.tree_unflatten
eigh = jnp.linalg.eigh
max_over_processes = jax_processes.max_over_processes
sum_over_processes = jax_processes.sum_over_processes
is_main_process, same_on_all = jax_arrays.is_main_process, jax_processes.same_on_all
place_like, paths, size = jax_arrays.place_like, jax_arrays.paths, jax_arrays.size
precision, asarray, without_copy = jax_arrays.precision, jax_arrays.asarray, jax_arrays.without_copy
dtype_name, device_name = jax_arrays.dtype_name, jax_arrays.device_name
to_numpy, to_host, from_host = jax_arrays.to_numpy, jax_arrays.to_host, jax_arrays.from_host
pieces, as_given, sync = jax_arrays.pieces, jax_arrays.as_given, jax_arrays.sync
head, output_of = jax_arrays.head, jax_arrays.output_of


def zeros_like(tree: Tree, /) -> Tree:
    return jax.tree.map(jnp.zeros_like, tree)


def axpy(a: Scalar, x: Tree, y: Tree, /) -> Tree:
    return jax.tree.map(lambda xi, yi: yi + a * xi, x, y)


def sub(a: Tree, b: Tree, /) -> Tree:
    return jax.tree.map(jnp.subtract, a, b)


def dot(a: Tree, b: Tree, /) -> Scalar:
    # vdot is one operation to the CPU's compiler, a sum of products is three.
    return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, a, b)))


def norm(tree: Tree, /) -> Scalar:
    return jnp.sqrt(dot(tree, tree))


def ravel(tree: Tree, /) -> Any:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


def unravel(vector: Any, like: Tree, /) -> Tree:
    leaves, structure = tu.tree_flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = jnp.split(vector, ends)
    shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return tu.tree_unflatten(structure, shaped)


def stack(tree: Tree, count: int, /) -> Tree:
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * count), tree)


def push(stack: Tree, tree: Tree, /) -> Tree:
    return jax.tree.map(lambda old, new: jnp.concatenate([old[1:], new[None]]), stack, tree)


def equal(a: Tree, b: Tree, /) -> Scalar:
    same = jax.tree.map(lambda ai, bi: jnp.all(ai == bi), a, b)
    return jnp.all(jnp.stack(jax.tree.leaves(same)))


def in_order(tree: Tree, /) -> Tree:
    return tree


def take(tree: Tree, indices: Any, /) -> Tree:
    # The indices come from our own stream: no bounds need checking.
    rows = jax.tree.map(lambda leaf: leaf.at[indices].get(mode="promise_in_bounds"), tree)
    return _dealt(rows)


def _dealt(rows: Tree) -> Tree:
    """Rows of a batch dealt out over the devices of a run, where their number goes round.

    Left to itself the compiler would have every device compute on all of them.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or any(kind != AxisType.Auto for kind in mesh.axis_types):
        return rows
    place = PartitionSpec(mesh.axis_names)

    def deal(leaf: Any) -> Any:
        if leaf.shape[0] % mesh.size:
            return leaf
        return lax.with_sharding_constraint(leaf, place)

    return jax.tree.map(deal, rows)


class Rows(NamedTuple):
    """A numbered list of trees. A new tree waits in `last`, and the next call writes it.

    So a loop writes before it reads, and the compiler does both in place. In the other order it
    copies all rows at every step.
    """

    written: Tree
    last: Tree
    place: Scalar


def repeat(tree: Tree, count: int, /) -> Rows:
    written = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), tree)
    return Rows(written, tree, counter(0))


def swap_row(rows: Rows, k: Scalar, tree: Tree, /) -> tuple[Tree, Rows]:
    put = partial(lax.dynamic_update_index_in_dim, index=rows.place, axis=0)
    written = jax.tree.map(put, rows.written, rows.last)
    old = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, k, keepdims=False), written)
    return old, Rows(written, tree, jnp.asarray(k, jnp.int32))


def scalar(value: float, like: Tree, /) -> Scalar:
    return jnp.asarray(value, jnp.result_type(*jax.tree.leaves(like)))


def array(value: Scalar, like: Tree, /) -> Any:
    return scalar(value, like)


def number(array: Any, /) -> Scalar:
    return array


def counter(value: int, /) -> Scalar:
    return jnp.asarray(value, jnp.int32)


def floor(a: Scalar, /) -> Scalar:
    return jnp.asarray(a, jnp.int32)


def cast(tree: Tree, like: Tree, /) -> Tree:
    return jax.tree.map(lambda leaf, model: jnp.asarray(leaf, model.dtype), tree, like)


def epsilon(like: Tree, /) -> float:
    return float(jnp.finfo(jnp.result_type(*jax.tree.leaves(like))).eps)


def matrix(product: Callable, size: int, like: Tree, /) -> Any:
    return jax.vmap(product)(jnp.eye(size, dtype=jnp.result_type(*jax.tree.leaves(like))))


def inverse(matrix: Any, /) -> Any:
    unit = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(matrix), True), unit)


def simplex(tree: Tree, /) -> Tree:
    return jax.tree.map(_simplex, tree)


def _simplex(array: Any) -> Any:
    if not array.size:
        return array  # nothing to sum to one
    # The same for all shifts, and with this one large entries do not round the sum away from one.
    array = array - jnp.max(array)
    flat = array.ravel()
    descending = jnp.sort(flat)[::-1]
    excess = (jnp.cumsum(descending) - 1) / jnp.arange(1, flat.size + 1, dtype=flat.dtype)
    threshold = excess[jnp.sum(descending > excess) - 1]
    return jnp.maximum(array - threshold, 0)


def where(condition: Scalar, a: Tree, b: Tree, /) -> Tree:
    return jax.tree.map(lambda ai, bi: jnp.where(condition, ai, bi), a, b)


def cond(condition: Scalar, if_true: Callable, if_false: Callable, /) -> Tree:
    return lax.cond(condition, if_true, if_false)


def was_cut() -> Scalar:
    return False  # compiled loops cannot ask


def compile_seconds() -> float:
    return 0.0  # all is compiled ahead of time


def scan(fn: Callable, carry: Tree, xs: Any, length: int, reverse: bool, /) -> tuple[Tree, Any]:
    return lax.scan(fn, carry, xs, length=length, reverse=reverse)


def value(fn: Callable, x: Tree, y: Tree, /) -> Scalar:
    return fn(x, y)


def value_and_grads(fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
    result, (in_x, in_y) = jax.value_and_grad(fn, argnums=(0, 1))(x, y)
    return result, in_x, in_y


def grad_y(fn: Callable, x: Tree, y: Tree, /) -> Tree:
    return jax.grad(fn, argnums=1)(x, y)


def value_and_grad_y(fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
    return jax.value_and_grad(fn, argnums=1)(x, y)


def linearize(fn: Callable, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
    gradient, pullback = jax.vjp(jax.grad(fn, argnums=1), x, y)

    def pull(v: Tree, wrt: str) -> Tree:
        # The part that is not used is dead code to the compiler.
        in_x, in_y = pullback(v)
        return {"x": in_x, "y": in_y, "xy": (in_x, in_y)}[wrt]

    return gradient, pull


def products(fn: Callable, x: Tree, y: Tree, /) -> Callable:
    return linearize(fn, x, y)[1]


def hessian(fn: Any, x: Tree, y: Tree, /) -> Any:
    pull = products(fn, x, y)
    return columns(lambda unit: ravel(pull(unravel(unit, y), "y")), y, getattr(fn, "rows", ()))


def hessian_price(fn: Any, x: Tree, y: Tree, /) -> float:
    from untuned.ops.traced.in_numpy import price_of_compiled

    counted = price_of_compiled(fn, x, y)
    # Without a count: as measured where one pass over the rows serves many columns, so that each
    # column costs its arithmetic alone (docs/lab/clock.md).
    return min(size(y), 2 + size(y) / 20) if counted is None else counted


def columns(product: Callable, y: Tree, rows: Tree) -> Any:
    """The matrix of a linear map of vectors as long as y, made of many columns at a time.

    How many depends on the number of rows: there is an array as long for each.
    """
    units = jnp.eye(size(y), dtype=jnp.result_type(*jax.tree.leaves(y)))
    return lax.map(product, units, batch_size=columns_at_once(y, rows))


def columns_at_once(y: Tree, rows: Tree) -> int:
    """How many columns of a Hessian are made at a time."""
    itemsize = jnp.result_type(*jax.tree.leaves(y)).itemsize
    of_one = sum(leaf.shape[0] * itemsize for leaf in jax.tree.leaves(rows)[:1])
    return max(8, min(size(y), AT_ONCE // max(1, of_one)))


def compile(fn: Callable, /, *args: Any, effort: str = "full") -> Callable:
    # Compiled ahead of time: the clock can leave it out, and a second compilation cannot happen.
    places = jax_arrays.out_shardings(fn, args)
    lowered = (jax.jit(fn, out_shardings=places) if places else jax.jit(fn)).lower(*args)
    with jax_compiling.used():
        return lowered.compile(jax_compiling.of_effort(effort))
