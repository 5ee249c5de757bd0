"""Numbers that come to a run are the numbers it computes with, or it says so."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned
from untuned import ops as array_libraries

LIKE = {
    "jax": lambda kind: jnp.zeros(2, kind),
    "torch": lambda kind: torch.zeros(2, dtype=getattr(torch, kind)),
    "numpy": lambda kind: np.zeros(2, kind),
}
KINDS = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
    "float32", "float64", "longdouble",
]  # fmt: skip


@pytest.mark.parametrize("library", LIKE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["=", ">"])
def test_numbers_of_every_type_arrive_as_they_are(library, kind, order):
    dtype = np.dtype(kind)
    is_float = dtype.kind == "f"
    limits = (np.finfo if is_float else np.iinfo)(dtype) if kind != "bool" else None
    large = [1.5, -2.25] if is_float else [True, False]
    if limits is not None and not is_float:
        large = [limits.min, limits.max, 3]
    given = np.array(large, dtype).astype(dtype.newbyteorder(order))
    ops, like = array_libraries.get(library), LIKE[library]("float32")
    is_wide = library == "jax" and dtype.kind in "iu" and dtype.itemsize > 4
    for bring in (ops.asarray, ops.without_copy):
        if is_wide:
            with pytest.raises(ValueError, match=f"An array of {kind} and shape .* holds .*int32"):
                bring(given, like)
            given = np.array([7, 1, 2**31 - 1], given.dtype)
        np.testing.assert_array_equal(ops.to_numpy(bring(given, like)), given)
        given = np.array(large, dtype).astype(dtype.newbyteorder(order))


def test_ids_beyond_32_bits_are_refused_beside_float32_and_kept_beside_float64():
    ids = np.array([3_000_000_000, 5, 7])
    g = lambda x, y, rows: jnp.mean((y - x - rows.astype(y.dtype) * 1e-9) ** 2)
    run = lambda kind: untuned.minimize(
        g, g, np.zeros(3, kind), np.zeros(3, kind), inner_data=ids, outer_data=ids
    )
    with pytest.raises(ValueError, match=r"holds 3000000000, and with float32 .* float64"):
        run("float32")
    np.testing.assert_allclose(run("float64").y, ids * 1e-9, atol=1e-6)


LOSSY = {
    "ids": (np.array([[16_777_217.0], [5.0]]), "holds 16777217, where float32"),
    "an offset": (np.array([[1e6, 1e6 + 0.5, 1e6 + 1], [1, 2, 3]]).T, "goes from 1000000 to"),
}


@pytest.mark.parametrize("library", LIKE)
@pytest.mark.parametrize("case", LOSSY)
def test_columns_that_float32_cannot_hold_are_told(library, case):
    wide, words = LOSSY[case]
    ops = array_libraries.get(library)
    with jax.enable_x64(True):
        given = torch.tensor(wide) if library == "torch" else wide
        with pytest.warns(RuntimeWarning, match=words):
            ops.asarray(given, LIKE[library]("float32"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ops.asarray(given, LIKE[library]("float64"))
            ops.asarray(np.array([[2000.1, -1e-6], [2006.2, 1e-6]]), LIKE[library]("float32"))


@pytest.mark.parametrize("method", ["auto", "d-tfbo"])
def test_variables_in_foreign_byte_order_are_taken(method):
    g = lambda x, y: jnp.sum((y - x - 1) ** 2)
    found = [
        untuned.minimize(g, g, np.zeros(3, kind), np.zeros(3, kind), method=method, max_steps=20).y
        for kind in (">f4", "<f4")
    ]
    np.testing.assert_array_equal(*found)
