"""The oracles of both libraries against derivatives written by hand in NumPy."""

import traceback

import numpy as np
import pytest
import torch

import untuned
from libraries import as_numpy, convert, given
from reference.problems import cleaning, quadratic, regularization

PROBLEMS = {
    "quadratic": quadratic(0, 3, 4, 20.0),
    "regularization": regularization(1, 40, 30, 6),
    "cleaning": cleaning(2, 30, 24, 5, 3, 0.4),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PROBLEMS)
def test_oracles_are_the_hand_written_derivatives(name, library):
    problem = PROBLEMS[name]
    task = given(problem, library)
    o = untuned.oracles(task.outer, task.inner, like=(task.x0, task.y0))
    rng = np.random.default_rng(0)
    x, y, v = (rng.standard_normal(np.shape(z)) for z in (problem.x0, problem.y0, problem.y0))
    with o.ops.precision(x):
        at = [o.ops.asarray(convert(library, z)) for z in (x, y)]
        direction = o.ops.asarray(convert(library, v))
        inner_rows, outer_rows = (
            o.ops.tree_map(o.ops.asarray, rows) if rows is not None else None
            for rows in (task.inner_data, task.outer_data)
        )
        f = o.outer(*at, outer_rows)
        g = o.inner(*at, direction, inner_rows)
        linear = o.linear(*at, inner_rows)
        pairs = [
            (f.value, problem.f(x, y)),
            (f.grad_x, problem.f_x(x, y)),
            (f.grad_y, problem.f_y(x, y)),
            (o.inner_value(*at, inner_rows), problem.g(x, y)),
            (o.inner_grad(*at, inner_rows), problem.g_y(x, y)),
            (g.grad, problem.g_y(x, y)),
            (g.hvp, problem.g_yy(x, y, v)),
            (g.cross, problem.g_xy(x, y, v)),
            (linear.hvp(direction), problem.g_yy(x, y, v)),
            (linear.cross(direction), problem.g_xy(x, y, v)),
        ]
    for ours, expected in pairs:
        np.testing.assert_allclose(as_numpy(ours), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "inner",
    [
        lambda x, y: y.sum(),  # gradient constant: no second derivatives
        lambda x, y: (y**2).sum(),  # no x at all
        lambda x, y: (x**2).sum(),  # no y at all
        lambda x, y: (x["a"] * y).sum() if isinstance(x, dict) else (x * y).sum(),
    ],
)
def test_torch_gives_zero_where_nothing_depends(inner):
    """Autograd raises or gives None there; a user's regularizer may well be constant."""
    x, y = torch.ones(2), torch.full((2,), 3.0)
    o = untuned.oracles(lambda x, y: y.sum(), inner, like=(x, y))
    got = o.inner(x, y, torch.ones(2), None)
    jax_o = untuned.oracles(lambda x, y: y.sum(), inner, like=(x.numpy(), y.numpy()))
    expected = jax_o.inner(*(z.numpy() for z in (x, y, torch.ones(2))), None)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(as_numpy(ours), np.asarray(theirs))


def test_from_module_in_training_mode_is_a_function_of_parameters_and_rows():
    torch.manual_seed(0)
    rows = torch.randn(6, 3)
    for layer in (torch.nn.Dropout(), torch.nn.BatchNorm1d(3)):
        module = torch.nn.Sequential(torch.nn.Linear(3, 3), layer)
        before = {name: part.clone() for name, part in module.state_dict().items()}
        weights, apply = untuned.from_module(module)
        state = torch.get_rng_state()
        first = apply(weights, rows)
        assert torch.equal(apply(weights, rows), first)
        assert torch.equal(torch.get_rng_state(), state)
        for name, part in module.state_dict().items():
            assert torch.equal(part, before[name])
    # Batch norm by the rows it is given, not by the running statistics.
    torch.testing.assert_close(first.mean(0), torch.zeros(3), atol=1e-6, rtol=0)


def test_from_module_takes_modules_alone():
    with pytest.raises(ValueError, match="given a dict; it expects a torch"):
        untuned.from_module({})


def test_a_module_in_training_mode_seeds_without_a_stack(monkeypatch):
    """torch.manual_seed writes one down for each kind of GPU that is not there, at every call."""
    weights, apply = untuned.from_module(
        torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(3, 2))
    )
    rows, here = torch.ones(5, 3), torch.get_rng_state()
    monkeypatch.setattr(traceback, "format_stack", lambda: pytest.fail("a stack was written down"))
    assert torch.equal(apply(weights, rows), apply(weights, rows))
    assert torch.equal(torch.get_rng_state(), here)
