"""How arrays come to JAX, where they live, and how they leave it.

Over several devices and processes the compiler splits the work by where the data are. Variables lie
beside the data, and results of compiled code stay where its arguments were (or a second call would
not fit). The host of each process sees only a part of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util as tu
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from untuned.ops import Tree, UntraceableError
from untuned.ops.eager import in_dtype

VALUE_ASKED_FOR = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


@contextmanager
def precision(tree: Tree, /) -> Iterator[None]:
    wide = any(dtype_name(leaf) == "float64" for leaf in jax.tree.leaves(tree))
    mesh = mesh_of(tree)
    with ExitStack() as contexts:
        contexts.enter_context(jax.enable_x64(wide or jax.config.read("jax_enable_x64")))
        if mesh is not None:
            contexts.enter_context(jax.set_mesh(mesh))
        if is_shared(tree):
            contexts.enter_context(together())
        yield


def asarray(leaf: Any, like: Any = None, /) -> Any:
    if isinstance(leaf, jax.Array):
        array = automatic(leaf)
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
    mesh = mesh_of(like)
    return put(given, like.sharding if mesh is None else everywhere(mesh))


def _fitting(array: np.ndarray, like: Any) -> np.ndarray:
    """The array in the dtype that it has on JAX; floats in that of `like`."""
    if like is not None and jnp.issubdtype(array.dtype, jnp.floating):
        return in_dtype(array, like.dtype)
    native = array.dtype.newbyteorder("=")
    return in_dtype(array, jax.dtypes.canonicalize_dtype(native))


def without_copy(array: np.ndarray, like: Any, /) -> Any:
    if mesh_of(like) is not None:
        return asarray(array, like)
    return jax.device_put(_fitting(array, like), like.sharding, may_alias=True)


def dtype_name(leaf: Any, /) -> str:
    return (
        jnp.result_type(leaf).name if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype.name
    )


def device_name(leaf: Any, /) -> str:
    return ", ".join(sorted(str(device) for device in leaf.devices()))


def paths(tree: Tree, /) -> list[str]:
    return [tu.keystr(path) for path, _ in tu.tree_flatten_with_path(tree)[0]]


def size(tree: Tree, /) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


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


def to_numpy(leaf: Any, /) -> np.ndarray:
    return whole(leaf) if isinstance(leaf, jax.Array) else np.asarray(leaf)


def to_host(tree: Tree, /) -> list[np.ndarray]:
    return [to_numpy(leaf) for leaf in jax.tree.leaves(tree)]


def from_host(arrays: list[np.ndarray], like: Tree, /) -> Tree:
    leaves, structure = tu.tree_flatten(like)
    pairs = zip(arrays, leaves, strict=True)
    return tu.tree_unflatten(structure, [put(a, leaf.sharding) for a, leaf in pairs])


def pieces(tree: Tree, /) -> list[tuple[int, int, np.ndarray]]:
    return [
        (number, first, part)
        for number, leaf in enumerate(jax.tree.leaves(tree))
        for first, part in _pieces(leaf)
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


def mesh_of(tree: Tree) -> Mesh | None:
    """The mesh of the first array that is spread over several devices."""
    for leaf in jax.tree.leaves(tree):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
            found: Any = automatic(leaf).sharding
            return found.mesh
    return None


def automatic(array: jax.Array) -> jax.Array:
    """The same array on a mesh whose compiler is free to move what it must.

    JAX's explicit meshes ask a function to say where each result goes, which a user's function
    that knows nothing of devices does not.
    """
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding):
        return array
    mesh = sharding.mesh
    if all(kind == AxisType.Auto for kind in mesh.axis_types) or not isinstance(mesh, Mesh):
        return array
    free = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    placed = NamedSharding(free, sharding.spec, memory_kind=sharding.memory_kind)
    parts = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, placed, parts)


def everywhere(mesh: Mesh) -> NamedSharding:
    """The sharding of an array that every device has whole."""
    return NamedSharding(mesh, PartitionSpec())


def put(array: Any, sharding: Any) -> Any:
    """An array of the host, the same in every process, as one of JAX."""
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda place: array[place])


def place_like(tree: Tree, data: Tree) -> Tree:
    """`tree` on the devices of the data; leaves that are there stay as they are."""
    mesh = mesh_of(data)
    if mesh is None:
        return tree

    def place(leaf: Any) -> Any:
        there = leaf.devices() == set(mesh.devices.flat)
        return leaf if there else put(np.asarray(leaf), everywhere(mesh))

    return jax.tree.map(place, tree)


def out_shardings(fn: Any, args: tuple) -> Any:
    """Where the results of `fn` are to be; None where all is on one device.

    A result like the first argument (the carry of a loop) is where that is. Any other leaf is
    where a leaf of an argument is that has its shape, or its trailing shape if it is stacked.
    """
    mesh = mesh_of(args)
    if mesh is None:
        return None
    out = jax.eval_shape(fn, *args)
    if _shapes(out) == _shapes(args[0]):
        return jax.tree.map(lambda leaf: leaf.sharding, args[0])
    spread: dict[tuple, Any] = {}
    for leaf in jax.tree.leaves(args[:2]):
        if isinstance(leaf.sharding, NamedSharding) and not leaf.is_fully_replicated:
            spread[leaf.shape] = leaf.sharding.spec

    def place(leaf: Any) -> NamedSharding:
        if leaf.shape in spread:
            return NamedSharding(mesh, spread[leaf.shape])
        if leaf.shape[1:] in spread and leaf.shape[1:]:
            return NamedSharding(mesh, PartitionSpec(None, *spread[leaf.shape[1:]]))
        return everywhere(mesh)

    return jax.tree.map(place, out)


def _shapes(tree: Tree) -> Any:
    return jax.tree.map(lambda leaf: np.shape(leaf), tree)


def is_shared(tree: Tree) -> bool:
    """Whether other processes hold a part of it."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    return any(not array.is_fully_addressable for array in arrays)


def whole(leaf: Any) -> np.ndarray:
    """All of an array; where other processes hold a part, all must ask together."""
    if leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def _pieces(leaf: jax.Array) -> list[tuple[int, np.ndarray]]:
    """The blocks of rows that this process holds, each with the number of its first row."""
    rows_only = all(shard.data.shape[1:] == leaf.shape[1:] for shard in leaf.addressable_shards)
    if leaf.is_fully_addressable or not rows_only:
        return [(0, whole(leaf))] if leaf.is_fully_addressable or is_main_process(leaf) else []
    return [
        (shard.index[0].start or 0 if leaf.ndim else 0, np.asarray(shard.data))
        for shard in leaf.addressable_shards
        if shard.replica_id == 0
    ]


@contextmanager
def together() -> Iterator[None]:
    """Inside, the loss of another process raises one plain sentence."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0][:200]
        if not any(word in reason for word in ("Gloo", "peer", "UNAVAILABLE", "coordination")):
            raise
        raise RuntimeError(
            f"Process {jax.process_index()} of {jax.process_count()} has lost the others: one of "
            f"them ended, or did not answer in time ({reason}); see what it wrote, then start all "
            "of them again. A run with checkpoint= goes on from the last one saved."
        ) from None


def is_main_process(like: Tree, /) -> bool:
    return not is_shared(like) or jax.process_index() == 0
