"""Phi and its gradient against closed forms, and estimates of their errors against true ones."""

import numpy as np
import pytest
import torch

import untuned
from libraries import as_numpy, given
from reference.problems import quadratic


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_against_the_closed_form(library, dtype):
    problem = quadratic(0, 3, 4, 5.0)
    found = untuned.hypergradient(*given(problem, library, dtype).positional)
    expected = problem.hypergradient(problem.x0)
    small = 1e-10 if dtype is np.float64 else 1e-3
    assert found.value == pytest.approx(problem.value(problem.x0), rel=small)
    np.testing.assert_allclose(as_numpy(found.gradient), expected, rtol=small)
    assert found.gradient_error <= small * np.linalg.norm(expected)
    assert found[:2] == (found.value, found.gradient)


def test_data_and_many_variables():
    rows = torch.tensor(np.random.default_rng(0).standard_normal((5, 300)))
    f = lambda x, y, data: ((y - data.mean(0)) ** 2).sum()
    g = lambda x, y, data: ((y - x * data.mean(0)) ** 2).sum()
    x = torch.tensor(0.5, dtype=torch.float64)
    found = untuned.hypergradient(f, g, x, torch.zeros(300).double(), rows, 2 * rows)
    mean = rows.mean(0)
    assert found.value == pytest.approx(0, abs=1e-20)
    found = untuned.hypergradient(f, g, 2 * x, torch.zeros(300).double(), rows, 2 * rows)
    assert found.value == pytest.approx(float((mean**2).sum()))
    torch.testing.assert_close(found.gradient, 4 * (mean**2).sum())


def test_errors_are_of_the_true_size_where_conditioning_is_bad():
    scale = torch.logspace(0, 7, 5, dtype=torch.float64)
    root = torch.linalg.qr(torch.tensor(np.random.default_rng(0).standard_normal((5, 5))))[0]
    A = (root * scale) @ root.mT
    A = (A + A.mT) / 2
    f, g = lambda x, y: (y**2).sum(), lambda x, y: 0.5 * y @ (A @ y) - x @ y
    x = torch.ones(5, dtype=torch.float64)
    found = untuned.hypergradient(f, g, x, torch.zeros(5).double())
    y = torch.linalg.solve(A, x)
    true = (found.gradient - torch.linalg.solve(A, 2 * y)).norm().item()
    assert true <= 30 * found.gradient_error
    assert found.gradient_error <= 1e-6 * found.gradient.norm()


@pytest.mark.long
def test_no_solution_is_an_error(library):
    convert = torch.tensor if library == "torch" else np.array
    with pytest.raises(RuntimeError, match="no solution to give"):
        untuned.hypergradient(
            lambda x, y: y.sum(),
            lambda x, y: (y[0] - x[0]) ** 2,
            convert([1.0]),
            convert([0.0, 0.0]),
        )
