"""Compiled steps are kept for functions that promise to be pure, and for no others."""

from functools import partial

import numpy as np
import pytest

import untuned
from untuned.ops import cache
from untuned.ops.cache import reusable

SCALE = 1.0


@reusable
def f(x, y, rows):
    return ((y - rows) ** 2).sum()


@reusable
def g(power, x, y, rows):
    return ((y - x) ** 2).sum() + 0.5 * power * (y**2).sum()


def unmarked(x, y):
    return ((y - SCALE) ** 2).sum()


def follow(x, y):
    return ((y - x) ** 2).sum()


@pytest.fixture
def compilations(monkeypatch):
    """How often something was compiled, starting with nothing kept."""
    from untuned.ops import jax as ops

    count = []
    original = ops.compile
    monkeypatch.setattr(
        ops, "compile", lambda *args, **how: count.append(1) or original(*args, **how)
    )
    monkeypatch.setattr(cache, "_kept", type(cache._kept)())
    return count


def run(rows=4, power=1.0, **settings):
    data = np.arange(2.0 * rows).reshape(rows, 2)
    settings = {"method": "s-tfbo", "max_steps": 5} | settings
    return untuned.minimize(
        f, partial(g, power), np.zeros(2), np.zeros(2), outer_data=data, inner_data=data, **settings
    )


def test_the_same_run_compiles_nothing_the_second_time(compilations):
    first = run()
    assert len(compilations) == 3  # the start, the steps, and the value of g
    second = run()
    assert len(compilations) == 3
    np.testing.assert_array_equal(first.x, second.x)


@pytest.mark.parametrize(
    "other",
    [
        {"rows": 5},
        {"power": 2.0},
        {"tol": 0.5},
        {"method": "soba"},
        {"method": untuned.solvers.STFBO(alpha0=2.0)},
        {"constraint": "nonnegative"},
        {"constraint": (0.0, 0.5)},
        {"batch_size": 2},
    ],
    ids=str,
)
@pytest.mark.long
def test_another_run_does_not_get_the_first_one_s_steps(compilations, other):
    run()
    alone = run(**other)
    assert len(compilations) >= 5  # its steps and its value of g
    cache._kept.clear()
    np.testing.assert_array_equal(alone.x, run(**other).x)


def test_a_user_s_projection_is_not_part_of_a_name(compilations):
    for high in (1.0, 2.0):
        end = run(constraint=lambda x, high=high: x.clip(0, high))
        assert end.x.max() <= high
    assert len(compilations) == 6


def test_a_function_without_the_promise_may_read_what_changes(monkeypatch):
    ends = []
    for scale in (1.0, 3.0):
        monkeypatch.setattr("test_cache.SCALE", scale)
        ends.append(untuned.minimize(unmarked, follow, np.zeros(2), np.zeros(2)).x)
    np.testing.assert_allclose(ends, [[1, 1], [3, 3]], rtol=1e-4)


def test_what_has_no_hash_is_not_kept():
    assert cache.name_of(partial(g, np.ones(2))) is None
    assert cache.name_of(partial(g, 1.0)) == cache.name_of(partial(g, 1.0))
    assert cache.name_of(partial(g, 1.0)) != cache.name_of(partial(g, 2.0))
    assert cache.name_of(f, unmarked) is None


@pytest.mark.long
def test_the_longest_unused_is_dropped(compilations, monkeypatch):
    monkeypatch.setattr(cache, "MOST", 3)
    run()
    run(rows=5)
    assert len(cache._kept) == 3
    before = len(compilations)
    run()
    assert len(compilations) > before
