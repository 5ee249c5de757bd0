"""The sentence a run ends with says what happened and what to try."""

import numpy as np
import pytest

import untuned

UNMOVED = "the hypergradient is zero where x started, and x has stayed there. If x should matter"


def f(x, y):
    return ((y - 1.0) ** 2).sum()


def g(x, y):
    return ((y - x) ** 2).sum()


@pytest.mark.parametrize("method", ["auto", "s-tfbo"])
@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (f, lambda x, y: ((y - 2.0) ** 2).sum()),
        (lambda x, y: 0.0, g),
    ],
    ids=["g without x", "f without x and y"],
)
def test_a_run_that_has_nothing_to_follow_says_so(outer, inner, method):
    """Forgotten arguments are the likeliest reason, and were called a success without a word."""
    run = untuned.minimize(outer, inner, np.ones(2), np.zeros(2), method=method, max_steps=2000)
    assert run.status == "converged"
    assert UNMOVED in run.message
    assert "check that g depends on x and on y, and f on y." in run.message


def test_an_inner_function_without_y_is_called_flat():
    run = untuned.minimize(f, lambda x, y: (x**2).sum(), np.ones(2), np.zeros(2))
    assert UNMOVED in run.message
    assert "g was flat or not convex in y in some directions" in run.message


def test_a_method_that_is_at_rest_says_why():
    """Only a method that chooses its steps can say that none is worth its while."""
    curvature = np.array([1.0, 3.0, 10.0], np.float32)
    outer = lambda x, y: f(x, y) + 0.1 * (x**2).sum()
    inner = lambda x, y: (0.5 * curvature * y**2 - x * y).sum()
    zeros = np.zeros(3, np.float32)
    run = untuned.minimize(outer, inner, zeros, zeros, method="d-tfbo")
    assert run.status == "converged"
    assert "which is zero but for rounding." in run.message


def test_one_step_is_no_steps():
    run = untuned.minimize(f, g, np.zeros(2), np.zeros(2), callback=lambda seen: True)
    assert run.message.startswith("The callback stopped the run after 1 step: ")


def test_a_g_that_is_not_finite_is_not_called_flat():
    run = untuned.minimize(f, lambda x, y: g(x, y) * np.nan, np.zeros(2), np.zeros(2))
    assert run.message.startswith("Diverged at step 1: the gradient of g in y became nan.")
    assert "flat" not in run.message
