"""Vectors of NumPy arrays: what is given stays as it is, and no copy is made without need."""

import tracemalloc

import numpy as np

from untuned import ops as array_libraries

ops = array_libraries.get("numpy")


def test_axpy_leaves_what_it_was_given():
    x, y = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    for a in (1.0, 2.0, np.float64(2.0)):
        np.testing.assert_array_equal(ops.axpy(a, x, y), y + a * x)
    np.testing.assert_array_equal(x, np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(y, 1)
    # Into a wider type, or a scalar, as `+` does.
    assert ops.axpy(1.0, x.astype(np.float32), y).dtype == np.float64
    assert ops.axpy(2.0, np.array(3.0), np.array(1.0)) == 7


def test_dot_of_any_layout():
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 50, 60, 70))
    swapped = [np.moveaxis(each, 0, 1) for each in (a, b)]
    alike = [each.transpose(1, 0, 2) for each in swapped]
    expected = (a * b).sum()
    np.testing.assert_allclose(ops.dot(*swapped), expected)
    np.testing.assert_allclose(ops.dot(alike[0], b), expected)
    np.testing.assert_allclose(ops.dot(swapped[0].copy(), swapped[1]), expected)
    np.testing.assert_allclose(ops.dot({"a": a[::2]}, {"a": b[::2]}), (a[::2] * b[::2]).sum())
    tracemalloc.start()
    ops.dot(*swapped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < a.nbytes / 10
