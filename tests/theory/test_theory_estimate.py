"""`untuned.theory.estimate` against problems whose constants are known, on both libraries."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import untuned
from untuned_paper.theory.problems import known

NAMES = ("mu", "L_f1", "L_g1", "L_g2", "C_fx", "C_fy", "C_gxy", "C_gyy")


@pytest.mark.parametrize("name", ["gentle", "weak coupling", "steep in x"])
@pytest.mark.long
def test_estimates_come_close_and_never_exceed(name):
    problem = known(name)
    k = problem.constants()
    options = {"radius": 5.0, "seed": 1}
    found = untuned.theory.estimate(
        problem.outer, problem.inner, problem.x0, problem.y0, **options
    ).constants
    assert found.phi_gap == pytest.approx(k.phi_gap, rel=1e-9)
    assert found.y_gap == pytest.approx(k.y_gap, rel=1e-6)
    assert k.mu * (1 - 1e-6) <= found.mu <= 1.05 * k.mu
    for constant in NAMES[1:]:
        true = getattr(k, constant)
        assert 0.7 * true <= getattr(found, constant) <= true * (1 + 1e-4), constant


def on_torch():
    """The problem of `on_numpy`, as trees of torch tensors, with data."""
    rows = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(6, 2)
    x0 = {"x": torch.ones(2, dtype=torch.float64)}
    y0 = (torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))

    def f(x, y, batch):
        return torch.log(torch.cosh(batch @ torch.cat(y) - 1)).sum() + torch.sin(x["x"]).sum() + 3

    def g(x, y, batch):
        y = torch.cat(y)
        return ((batch @ y - x["x"].sum()) ** 2).sum() + (y**2).sum() + 0.1 * torch.cos(y).sum()

    return f, g, x0, y0, rows


def on_numpy():
    import jax.numpy as jnp

    rows = np.linspace(-1, 1, 12).reshape(6, 2)

    def f(x, y, batch):
        return jnp.log(jnp.cosh(batch @ y - 1)).sum() + jnp.sin(x).sum() + 3

    def g(x, y, batch):
        return ((batch @ y - x.sum()) ** 2).sum() + (y**2).sum() + 0.1 * jnp.cos(y).sum()

    return f, g, np.ones(2), np.zeros(2), rows


@pytest.mark.long
def test_both_libraries_find_the_same():
    found = []
    for f, g, x0, y0, rows in (on_torch(), on_numpy()):
        estimate = untuned.theory.estimate(f, g, x0, y0, outer_data=rows, inner_data=rows, points=5)
        found.append([getattr(estimate.constants, name) for name in NAMES])
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-8)


@pytest.mark.long
def test_many_inner_variables_go_through_lanczos():
    weights = np.linspace(1.0, 3.0, 300)
    f = lambda x, y: ((1 + y**2) ** 0.5).sum()
    g = lambda x, y: 0.5 * (weights * (y - x[0]) ** 2).sum()
    found = untuned.theory.estimate(f, g, np.ones(1), np.zeros(300), points=1).constants
    assert found.mu == pytest.approx(1.0, rel=1e-2)
    assert found.C_gyy == pytest.approx(3.0, rel=1e-2)
    assert found.C_gxy == pytest.approx(np.linalg.norm(weights), rel=1e-3)
    assert found.L_g2 < 1e-4


@pytest.mark.long
def test_summary_says_what_is_promised_and_that_it_is_a_guess():
    problem = known("gentle")
    found = untuned.theory.estimate(problem.outer, problem.inner, problem.x0, problem.y0)
    text = str(found)
    assert "Estimates from 22 points within 1 of the start, not bounds" in text
    steps = untuned.theory.double_loop.corollary_1(
        found.constants, untuned.solvers.DTFBO(), 0.01
    ).steps
    assert f"at most 0.01 after {steps:,} steps of D-TFBO" in text
    for name in NAMES:
        assert f"  {name} " in text


@pytest.mark.long
def test_ill_conditioned_problem_still_has_a_summary():
    f = lambda x, y: ((1 + y**2) ** 0.5).sum()
    g = lambda x, y: 1e-9 * (y**2).sum() + ((y.sum() - x.sum()) ** 2)
    found = untuned.theory.estimate(f, g, np.ones(2), np.zeros(2), points=2)
    assert "Theorem 2" in str(found)


@pytest.mark.process
def test_theory_is_there_without_an_array_library():
    code = (
        "import sys, untuned; untuned.theory.Constants; "
        "print(sorted({'jax', 'torch', 'scipy', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
