"""The operations on NumPy."""

import tracemalloc

import numpy as np
import pytest

from untuned.ops import numpy as ops


@pytest.mark.parametrize("a", [0.3, np.float64(0.3)])
@pytest.mark.parametrize("kinds", [("f4", "f4"), ("f8", "f8"), ("f4", "f8"), ("f8", "f4")])
def test_axpy_is_the_plain_sum_and_leaves_its_arguments_alone(a, kinds):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((5, 3)).astype(kind) for kind in kinds)
    x0, y0, plain = x.copy(), y.copy(), y + a * x
    found = ops.axpy(a, {"w": x}, {"w": y})["w"]
    assert found.dtype == plain.dtype
    assert np.array_equal(found, plain)
    assert np.array_equal(x, x0)
    assert np.array_equal(y, y0)
    assert not np.shares_memory(found, x)
    assert not np.shares_memory(found, y)


def test_axpy_of_a_single_number_and_of_a_view_that_cannot_be_written():
    assert ops.axpy(2.0, np.array(3.0), np.array(1.0)) == 7.0
    zero = np.broadcast_to(np.float32(0), (2, 2))
    assert np.array_equal(ops.axpy(2.0, zero, np.ones((2, 2), "f4")), np.ones((2, 2)))
    assert np.array_equal(ops.axpy(2.0, np.ones((2, 2), "f4"), zero), np.full((2, 2), 2.0))


def test_a_loop_lets_go_of_what_its_body_has_read():
    import weakref

    seen = []

    def body(carry):
        array, count = carry
        del carry
        seen.append(weakref.ref(array))
        array = array + 1
        assert seen[-1]() is None
        return array, count + 1

    array, _ = ops.while_loop(lambda carry: carry[1] < 3, body, (np.zeros(4), 0))
    assert np.array_equal(array, np.full(4, 3.0))
    assert len(seen) == 3


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
