"""x0 and y0 as the user gave them: of which library and dtype, whole, finite, on one device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from untuned import ops as array_libraries
from untuned.ops import Ops, Tree

FLOATS = ("float32", "float64")
REAL = ("bool", "int", "uint", "float", "bfloat", "longdouble")  # how names of dtypes begin
SPOKEN = {"jax": "JAX arrays", "torch": "torch tensors", "numpy": "NumPy arrays"}


def library(x0: Tree, y0: Tree, closed_form: bool = False, x_name: str = "x0") -> tuple[Ops, bool]:
    """The array library of the variables, and whether they came as NumPy arrays alone.

    `closed_form`: whether f and g bring their derivatives, so that NumPy arrays need no other.
    `x_name`: what the caller calls x0.
    """
    found: dict[str, str] = {}
    for name, tree in ((x_name, x0), ("y0", y0)):
        for leaf in array_libraries.leaves_of(tree):
            if hasattr(leaf, "named_parameters"):
                raise ValueError(
                    f"{name} is a module ({type(leaf).__name__}); expected its parameters, which "
                    "untuned.from_module(module) gives together with a function of them."
                )
            check_holds_numbers(leaf, name)
            found.setdefault(array_libraries.library_of(leaf), name)
    # NumPy arrays go with JAX; a plain number goes with anything.
    if "torch" in found and len(found) > 1:
        for name, tree in ((x_name, x0), ("y0", y0)):
            for leaf in array_libraries.leaves_of(tree):
                kind_of = array_libraries.library_of(leaf)
                if kind_of != "torch" and not is_plain_number(leaf):
                    is_array = hasattr(leaf, "shape")
                    kind = SPOKEN[kind_of] if is_array else f"a {type(leaf).__name__}"
                    raise ValueError(
                        f"{name} holds {kind} and {found['torch']} holds torch tensors; "
                        "expected one array library for both, so convert one of them."
                    )
    if "torch" in found:
        return array_libraries.get("torch"), False
    numpy_alone = "jax" not in found
    return array_libraries.get("numpy" if closed_form and numpy_alone else "jax"), numpy_alone


def check_holds_numbers(leaf: Any, name: str) -> None:
    """Refuse what can be read only once, and arrays whose mask nobody would see any more."""
    if isinstance(leaf, Iterator):
        raise ValueError(
            f"{name} holds a {type(leaf).__name__}, which can be read only once; expected arrays, "
            "or a dict, tuple or list of arrays."
        )
    if isinstance(leaf, np.ma.MaskedArray) and np.ma.is_masked(leaf):
        raise ValueError(
            f"{name} holds an array with masked entries, which would count like all others; "
            "expected numbers throughout, so leave those rows out or give its .filled(value)."
        )


def is_plain_number(leaf: Any) -> bool:
    return isinstance(leaf, int | float | complex) and not isinstance(leaf, np.generic)


def common_dtype(ops: Ops, x0: Tree, y0: Tree, x_name: str = "x0") -> str:
    """The one float dtype of all variables; plain Python numbers follow the arrays."""
    first: tuple[str, str] | None = None
    for name, tree in ((x_name, x0), ("y0", y0)):
        leaves, paths = ops.flatten(tree)[0], ops.paths(tree)
        if not leaves:
            raise ValueError(f"{name} is empty; expected at least one array of floats.")
        for leaf, path in zip(leaves, paths, strict=True):
            place = name + path
            if is_plain_number(leaf):
                if not isinstance(leaf, float):
                    raise ValueError(
                        f"{place} is the {type(leaf).__name__} {leaf!r}; expected a real number "
                        "with a decimal point, such as 1.0."
                    )
                continue
            dtype = dtype_of(ops, leaf)
            if dtype == "object" and not hasattr(leaf, "dtype"):
                raise ValueError(
                    f"{place} is a {type(leaf).__name__}; expected an array, or a dict, tuple or "
                    "list of arrays, so convert it."
                )
            if dtype not in FLOATS:
                raise ValueError(
                    f"{place} has dtype {dtype}; expected float32 or float64, so convert it, "
                    "for example with .astype('float32') or .float()."
                )
            if first is None:
                first = (place, dtype)
            elif dtype != first[1]:
                raise ValueError(
                    f"{first[0]} is {first[1]} and {place} is {dtype}; expected one dtype for all "
                    f"of {x_name} and y0, so convert one of them."
                )
    return first[1] if first else ops.dtype_name(ops.asarray(1.0))


def dtype_of(ops: Ops, leaf: Any) -> str:
    """The name of a leaf's dtype."""
    if array_libraries.library_of(leaf) == "numpy":
        dtype = np.asarray(leaf).dtype
        return "str" if dtype.kind == "U" else dtype.name  # NumPy's own name is "str96"
    return ops.dtype_name(leaf)


def check_real(ops: Ops, leaf: Any, place: str, x_name: str = "x0") -> None:
    """Refuse what is of another library than x, or is no array of real numbers."""
    library = array_libraries.library_of(leaf)
    if library not in ("numpy", ops.name):
        raise ValueError(
            f"{place} holds {SPOKEN[library]} and {x_name} holds {SPOKEN[ops.name]}; expected "
            f"NumPy arrays or the library of {x_name}, so convert it."
        )
    if hasattr(leaf, "toarray"):
        raise ValueError(
            f"{place} is SciPy's {type(leaf).__name__}; expected an array, so give its .toarray()."
        )
    if library == "torch" and str(leaf.layout) != "torch.strided":
        raise ValueError(
            f"{place} is a tensor of layout {leaf.layout}; expected a dense one, so give its "
            ".to_dense()."
        )
    dtype = dtype_of(ops, leaf)
    if dtype == "object" and not hasattr(leaf, "dtype"):
        raise ValueError(f"{place} is a {type(leaf).__name__}; expected an array of real numbers.")
    if not dtype.startswith(REAL):
        raise ValueError(
            f"{place} has dtype {dtype}; expected real numbers, so encode it first, for example "
            "labels as 0, 1, 2."
        )


def prepared(ops: Ops, tree: Tree, name: str, dtype: str) -> Tree:
    """`tree` as arrays of the library."""

    def convert(leaf: Any) -> Any:
        return ops.asarray(np.asarray(leaf, dtype) if is_plain_number(leaf) else native(leaf))

    arrays = ops.tree_map(convert, tree)
    if sum(math.prod(leaf.shape) for leaf in ops.flatten(arrays)[0]) == 0:
        raise ValueError(f"{name} holds no numbers; expected at least one array with entries.")
    return arrays


def native(leaf: Any) -> Any:
    """An array of NumPy in the order of bytes of this machine, which other libraries expect."""
    if isinstance(leaf, np.ndarray) and not leaf.dtype.isnative:
        return leaf.astype(leaf.dtype.newbyteorder("="))
    return leaf


def check_finite(ops: Ops, tree: Tree, name: str) -> None:
    """Raise a sentence that says where the first NaN or infinite entry is."""
    paths = ops.paths(tree)
    for number, first, array in ops.pieces(tree):
        path = paths[number]
        if not np.issubdtype(array.dtype, np.floating):
            continue
        # A sum needs no memory and is finite if all entries are; if not, it may have overflowed.
        with np.errstate(all="ignore"):
            if math.isfinite(array.sum()):
                continue
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            at = tuple(int(k) for k in bad[0])
            there = (first + at[0], *at[1:]) if at else at
            raise ValueError(
                f"{name}{path} has {array[at]} at index {there} ({len(bad)} such entries); "
                "expected finite numbers, so remove or fill them in."
            )


def check_devices(ops: Ops, x: Tree, y: Tree) -> None:
    """Raise a sentence if variables are on several devices."""
    devices: dict[str, str] = {}
    for name, tree in (("x0", x), ("y0", y)):
        for leaf in ops.flatten(tree)[0]:
            devices.setdefault(ops.device_name(leaf), name)
    if len(devices) > 1:
        (first, name), (second, other) = list(devices.items())[:2]
        raise ValueError(
            f"{name} is on {first} and {other} has an array on {second}; expected one device for "
            "all variables, so move one of them."
        )
    if "meta" in devices:
        raise ValueError(
            f"{devices['meta']} is on torch's device meta, which holds no numbers; expected "
            "tensors with values to start from."
        )
