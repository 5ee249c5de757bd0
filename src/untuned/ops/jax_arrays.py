"""How arrays come to JAX, what is said of them, and how they leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util as tu

from untuned.ops import Tree, UntraceableError, in_dtype, jax_sharding

VALUE_ASKED_FOR = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


@contextmanager
def precision(tree: Tree, /) -> Iterator[None]:
    wide = any(dtype_name(leaf) == "float64" for leaf in jax.tree.leaves(tree))
    mesh = jax_sharding.mesh_of(tree)
    with ExitStack() as contexts:
        contexts.enter_context(jax.enable_x64(wide or jax.config.read("jax_enable_x64")))
        if mesh is not None:
            contexts.enter_context(jax.set_mesh(mesh))
        if jax_sharding.is_shared(tree):
            contexts.enter_context(jax_sharding.together())
        yield


def asarray(leaf: Any, like: Any = None, /) -> Any:
    if isinstance(leaf, jax.Array):
        array = jax_sharding.automatic(leaf)
        is_float = like is not None and jnp.issubdtype(array.dtype, jnp.floating)
        if not is_float or array.dtype == like.dtype:
            return array
        if array.is_fully_addressable:
            in_dtype(np.asarray(array), like.dtype)  # which may warn
        return array.astype(like.dtype)
    given = _fitting(np.asarray(leaf), like)
    if like is None:
        # Not by `jnp.asarray`, which compiles a program for every shape.
        return jax.device_put(given, may_alias=False)
    mesh = jax_sharding.mesh_of(like)
    return jax_sharding.put(given, like.sharding if mesh is None else jax_sharding.everywhere(mesh))


def _fitting(array: np.ndarray, like: Any) -> np.ndarray:
    """The array in the dtype that it has on JAX; floats in that of `like`."""
    if like is not None and jnp.issubdtype(array.dtype, jnp.floating):
        return in_dtype(array, like.dtype)
    native = array.dtype.newbyteorder("=")
    return in_dtype(array, jax.dtypes.canonicalize_dtype(native))


def without_copy(array: np.ndarray, like: Any, /) -> Any:
    if jax_sharding.mesh_of(like) is not None:
        return asarray(array, like)
    return jax.device_put(_fitting(array, like), like.sharding, may_alias=True)


def dtype_name(leaf: Any, /) -> str:
    return (
        jnp.result_type(leaf).name if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype.name
    )


def device_name(leaf: Any, /) -> str:
    return ", ".join(sorted(str(device) for device in leaf.devices()))


def to_numpy(leaf: Any, /) -> np.ndarray:
    return jax_sharding.whole(leaf) if isinstance(leaf, jax.Array) else np.asarray(leaf)


def to_host(tree: Tree, /) -> list[np.ndarray]:
    return [to_numpy(leaf) for leaf in jax.tree.leaves(tree)]


def from_host(arrays: list[np.ndarray], like: Tree, /) -> Tree:
    leaves, structure = tu.tree_flatten(like)
    pairs = zip(arrays, leaves, strict=True)
    return tu.tree_unflatten(structure, [jax_sharding.put(a, leaf.sharding) for a, leaf in pairs])


def pieces(tree: Tree, /) -> list[tuple[int, int, np.ndarray]]:
    return [
        (number, first, part)
        for number, leaf in enumerate(jax.tree.leaves(tree))
        for first, part in jax_sharding.pieces(leaf)
    ]


def as_given(tree: Tree, /) -> Tree:
    return tree


def sync(tree: Tree, /) -> None:
    jax.block_until_ready(tree)


def head(data: Tree, count: int | None, /) -> Tree:
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((count or leaf.shape[0], *leaf.shape[1:]), leaf.dtype),
        data,
    )


def output_of(fn: Callable, /, *args: Tree) -> tuple[tuple[int, ...], str]:
    foreign: list[str] = []

    def call(*args: Tree) -> Any:
        out = fn(*args)
        if isinstance(out, jax.Array | np.ndarray | np.generic | complex | float | int):
            return out
        foreign.append(type(out).__name__)
        return 0.0

    try:
        out = jax.eval_shape(call, *args)
    except jax.errors.TracerArrayConversionError as error:
        raise UntraceableError(
            "makes NumPy arrays of what it is given, as NumPy's functions do; NumPy and JAX arrays "
            "run on JAX, so write it in jax.numpy, for example jnp.exp in place of np.exp."
        ) from error
    except VALUE_ASKED_FOR as error:
        raise UntraceableError(
            "asks for the value of an array, as if, while, float() and .item() do; JAX runs it "
            "once without values, so write it in jax.numpy, for example jnp.where in place of if."
        ) from error
    return tuple(out.shape), foreign[0] if foreign else out.dtype.name
