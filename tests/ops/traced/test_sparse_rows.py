"""Rows that are mostly zeros: the same numbers as by dense products, for less work."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from untuned.ops.traced import sparse_rows
from untuned.ops.traced.in_numpy import Sheet, derivative

RNG = np.random.default_rng(3)
ROWS, COLUMNS, CLASSES = 40, 16, 3
WORDS = RNG.normal(size=(ROWS, COLUMNS)) * (RNG.random((ROWS, COLUMNS)) < 0.1)
SIGNS = np.where(RNG.random(ROWS) < 0.5, 1.0, -1.0)


def logistic(x, y, rows):
    return jnp.mean(jax.nn.softplus(-rows[1] * (rows[0] @ y))) + jnp.sum(jnp.exp(x) * y**2)


def turned(x, y, rows):
    """The same with the vector first, and columns in place of rows."""
    return jnp.mean(jax.nn.softplus(-rows[1] * (y @ rows[0].T))) + jnp.sum(jnp.exp(x) * y**2)


def classes(x, y, rows):
    z = rows[0] @ y.reshape(COLUMNS, CLASSES)
    own = jnp.sum(jnp.exp(x[:COLUMNS, None]) * y.reshape(COLUMNS, CLASSES) ** 2)
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - rows[1] * z[:, 0]) + own


def both(x, y, rows):
    """Both factors are the rows, and one product is of their own."""
    return jnp.mean((rows[0].T @ rows[0] @ y) ** 4) + jnp.sum(jnp.exp(x) * y**2)


@pytest.fixture
def small_tables(monkeypatch):
    monkeypatch.setattr(sparse_rows, "LARGE", 1)


def _sheet(fn, size, rows, dtype=np.float64):
    """A sheet with all derivatives, and their arguments beside x, y and rows."""
    vectors = {
        "along xy": (RNG.normal(size=size).astype(dtype),),
        "columns": (np.eye(size, dtype=dtype),),
    }
    sheet, y = Sheet(), np.zeros(size, dtype)
    for kind in ("value_and_grads", *vectors):
        given = vectors.get(kind, ())
        assert sheet.add(kind, fn, (y, y, *given, rows))
    return sheet, vectors


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fn", [logistic, turned, classes, both])
@pytest.mark.usefixtures("small_tables")
def test_derivatives_are_those_of_compiled_programs(fn, dtype):
    size = COLUMNS * CLASSES if fn is classes else COLUMNS
    x, y = RNG.normal(size=(2, size)).astype(dtype)
    tolerance = 1e-4 if dtype is np.float32 else 1e-12
    with jax.enable_x64(dtype is np.float64):
        rows, others = (
            (jnp.asarray(WORDS[order].astype(dtype)), jnp.asarray(SIGNS[order].astype(dtype)))
            for order in (np.arange(ROWS), np.arange(ROWS)[::-1])
        )
        sheet, vectors = _sheet(fn, size, rows, dtype)
        assert sheet._reader.sparse
        for kind in ("value_and_grads", *vectors):
            for data in (rows, others, rows):  # other rows of the same shape may come between
                given = (x, y, *vectors.get(kind, ()), data)
                found = jax.tree.leaves(sheet.evaluate(kind, *given))
                expected = jax.tree.leaves(jax.jit(derivative(kind, fn))(*given))
                for ours, theirs in zip(found, expected, strict=True):
                    assert ours.dtype == dtype
                    scale = np.abs(theirs).max()
                    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.usefixtures("small_tables")
def test_products_read_the_sparse_rows(monkeypatch):
    seen = []
    multiply = sparse.csr_array.__matmul__
    for kind in (sparse.csr_array, sparse.csc_array):
        monkeypatch.setattr(
            kind, "__matmul__", lambda a, b: seen.append(type(a).__name__) or multiply(a, b)
        )
    with jax.enable_x64(True):
        rows = (jnp.asarray(WORDS), jnp.asarray(SIGNS))
        sheet, _ = _sheet(logistic, COLUMNS, rows)
        sheet.evaluate("value_and_grads", np.zeros(COLUMNS), np.ones(COLUMNS), rows)
    assert seen == ["csr_array", "csc_array"]  # X y, and X^T with that


@pytest.mark.parametrize(
    ("table", "is_sparse"),
    [
        (WORDS, True),
        (WORDS.astype(np.float32), True),
        (np.where(RNG.random(WORDS.shape) < 0.5, 1.0, 0.0), False),  # half of them zeros
        (WORDS != 0, False),  # not numbers
        (WORDS[:, 0], False),
        (jax.ShapeDtypeStruct(WORDS.shape, np.float32), False),
    ],
)
@pytest.mark.usefixtures("small_tables")
def test_only_tables_of_mostly_zeros_are_made_sparse(table, is_sparse):
    found = sparse_rows.of(table)
    assert (found is not None) == is_sparse
    if is_sparse:
        np.testing.assert_array_equal(found.toarray(), table)
        assert found.dtype == table.dtype


def test_small_tables_stay_as_they_are():
    assert sparse_rows.of(WORDS) is None


@pytest.mark.usefixtures("small_tables")
def test_the_price_of_a_hessian_counts_what_is_not_zero():
    """For many vectors at a time dense products gain more than sparse ones: the price rises."""
    size = 64
    words = RNG.normal(size=(1000, size)) * (RNG.random((1000, size)) < 0.02)
    prices = []
    for table in (words, RNG.normal(size=words.shape)):
        rows = (table, np.ones(1000))
        sheet, y = Sheet(), np.zeros(size)
        with jax.enable_x64(True):
            assert sheet.add("along y", logistic, (y, y, y, rows))
        prices.append(sheet.price(size, True))
    assert prices[0] > prices[1]
