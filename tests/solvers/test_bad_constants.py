"""What the theory refuses, in one sentence that names the constant."""

import math

import numpy as np
import pytest

import untuned
from refusals import assert_one_sentence
from untuned.solvers import DTFBO, STFBO
from untuned.theory import Constants, double_loop, single_loop
from untuned_paper.theory import paper_formulas, trajectory
from untuned_paper.theory.problems import known

GOOD = {
    "mu": 1.0, "L_f1": 1.0, "L_g1": 2.0, "L_g2": 1.0, "C_fx": 1.0, "C_fy": 1.0, "C_gxy": 1.0,
    "C_gyy": 2.0, "phi_gap": 1.0, "y_gap": 1.0,
}  # fmt: skip
K = Constants(**GOOD)


def refusal(function, *args, **options):
    with pytest.raises(ValueError) as caught:
        function(*args, **options)
    text = str(caught.value)
    assert_one_sentence(text)
    return text


@pytest.mark.parametrize("name", [name for name in GOOD if name != "y_gap"])
def test_missing_constant(name):
    given = {other: value for other, value in GOOD.items() if other != name}
    assert refusal(Constants, **given).startswith(f"{name} is missing")


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", [-1.0, math.inf, "1", True, None, math.nan])
def test_constant_that_is_no_number_from_zero_up(name, value):
    assert refusal(Constants, **GOOD | {name: value}).startswith(f"{name} is ")


def test_mu_of_zero():
    assert "mu is 0" in refusal(Constants, **GOOD | {"mu": 0})


@pytest.mark.parametrize("name", ["L_g1", "C_gyy"])
def test_curvature_below_mu(name):
    assert f"{name} is 0.5 and mu is 1" in refusal(Constants, **GOOD | {name: 0.5})


@pytest.mark.parametrize("epsilon", [0, 1, -0.1, 2.0, math.nan, "0.1", True])
@pytest.mark.parametrize("method", ["double", "single", "closed form"])
def test_epsilon_outside_zero_and_one(method, epsilon):
    function, solver = {
        "double": (double_loop.corollary_1, DTFBO()),
        "single": (single_loop.corollary_2, STFBO()),
        "closed form": (paper_formulas.closed_form_steps, STFBO()),
    }[method]
    assert refusal(function, K, solver, epsilon).startswith("epsilon is ")


@pytest.mark.parametrize("T", [0, -3, 1.5, "10", True])
def test_steps_below_one(T):
    assert refusal(double_loop.theorem_1, K, DTFBO(), T).startswith("T is ")
    assert refusal(double_loop.p_prime, K, DTFBO(), T).startswith("T is ")
    assert refusal(single_loop.theorem_2, K, STFBO(), T).startswith("T is ")
    problem = known("gentle")
    assert refusal(trajectory.record, problem, STFBO(), T).startswith("T is ")


def test_methods_the_theorems_are_not_about():
    fixed = DTFBO(inner_steps=10)
    assert "inner_steps=10" in refusal(double_loop.theorem_1, K, fixed, 10)
    anytime = DTFBO(horizon="anytime")
    assert "horizon='anytime'" in refusal(double_loop.theorem_1, K, anytime, 10)
    assert "horizon=5" in refusal(double_loop.p_prime, K, DTFBO(horizon=5), 10)
    with pytest.warns(UserWarning, match="alpha0"):
        bold = STFBO(alpha0=0.5)
    assert "alpha0=0.5" in refusal(single_loop.theorem_2, K, bold, 10)


def f(x, y):
    return ((1 + (y - 1.0) ** 2) ** 0.5).sum()


def g(x, y):
    return ((y - x) ** 2).sum()


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"lowest": 100.0}, "Phi(x0) is "),
        ({"lowest": math.nan}, "lowest is nan"),
        ({"lowest": "low"}, "lowest is 'low'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "one"}, "seed is 'one'"),
        ({"points": -1}, "points is -1"),
        ({"points": 2.0}, "points is 2.0"),
        ({"radius": 0.0}, "radius is 0.0"),
        ({"radius": "far"}, "radius is 'far'"),
        ({"inner": lambda x, y: -g(x, y)}, "mu was estimated as -2"),
    ],
)
def test_estimates_that_cannot_be_made(changes, start):
    options = {"outer": f, "inner": g, "x0": np.zeros(2), "y0": np.zeros(2)} | changes
    assert refusal(untuned.theory.estimate, **options).startswith(start)


@pytest.mark.parametrize("name", ["alpha0", "beta0", "gamma0"])
def test_start_value_that_only_a_run_knows(name):
    for function, solver in ((double_loop.theorem_1, DTFBO), (single_loop.theorem_2, STFBO)):
        assert f"{name}='auto'" in refusal(function, K, solver(**{name: "auto"}), T=10)
