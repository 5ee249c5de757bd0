"""Leaves of x and y stay arrays of their library and dtype, also those without axes or entries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned

MAKERS = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.tensor}


def outer(x, y, rows):
    numbers, weights = rows
    return ((y["b"] - numbers) ** 2 * weights).mean() + (y["a"] - 1) ** 2 + x["a"] ** 2


def inner(x, y, rows):
    numbers, weights = rows
    fits = ((y["b"] - x["a"] * numbers) ** 2 * weights).mean()
    return fits + (y["a"] - x["b"].sum()) ** 2 + y["a"] ** 4 + 0 * y["none"].sum()


def start(library, dtype):
    """Leaves without axes, with one, and without entries; and rows of which some are integers."""
    make = MAKERS[library]
    of = lambda values: make(np.asarray(values, dtype))
    x = {"a": of(0.3), "b": of([1.0, 0.5])}
    y = {"a": of(0.2), "b": of([1.0]), "none": of(np.zeros((0, 2)))}
    return x, y, (of(np.linspace(-1, 1, 7)), make(np.arange(7, dtype=np.int32)))


def forms(tree):
    return jax.tree.map(lambda leaf: (type(leaf), str(leaf.dtype), tuple(leaf.shape)), tree)


@pytest.mark.parametrize("constraint", [None, (0.0, 1.0)], ids=["free", "bounds"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", MAKERS)
def test_library_dtype_and_shape_stay(library, dtype, constraint, tmp_path):
    with jax.enable_x64(dtype == "float64"):
        x, y, rows = start(library, dtype)
        expected = forms((x, y, y))
        seen = []

        def watch(snapshot):
            seen.append(forms((snapshot.x, snapshot.y, snapshot.v)))
            assert not any(isinstance(leaf, np.generic) for leaf in jax.tree.leaves(snapshot.state))

        options = {"outer_data": rows, "inner_data": rows, "constraint": constraint}
        options |= {"max_steps": 6, "tol": 1e-30, "eval_every": 1}
        whole = untuned.minimize(outer, inner, x, y, callback=watch, **options)
        options["checkpoint"] = tmp_path / "run"
        cut = untuned.minimize(outer, inner, x, y, **options | {"max_steps": 2})
        resumed = untuned.minimize(outer, inner, x, y, **options)
        results = [forms((run.x, run.y, run.v)) for run in (whole, cut, resumed)]
        assert seen
        assert all(found == expected for found in [*seen, *results])
        for a, b in zip(*map(jax.tree.leaves, (whole.x, resumed.x)), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
