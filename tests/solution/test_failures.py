"""A right answer or the failure that was asked for: never a silent zero, never a huge number."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned
from refusals import assert_one_sentence, nan

LIBRARY = {"jax": jnp, "torch": torch}
# Name, g of (library, x, y), what is said. y has two entries and starts at (1, 0.5), x is 1.
PROBLEMS = {
    "one entry flat": (lambda np, x, y: (x * y[0] - 2) ** 2 + 0 * y[1], "not strongly convex"),
    "two of one": (lambda np, x, y: (y.sum() - x) ** 2, "not strongly convex"),
    "constant": (lambda np, x, y: 3 * x, "not strongly convex"),
    "linear": (lambda np, x, y: (x * y).sum(), "no minimum"),
    "concave": (lambda np, x, y: -(x * y**2).sum(), "no minimum"),
    "saddle": (lambda np, x, y: x * y[0] ** 2 - y[1] ** 2, "no minimum"),
    "far away": (lambda np, x, y: np.exp(-x * y).sum(), "no minimum"),
    "kink": (lambda np, x, y: (abs(y - 0.3) + x * y**2).sum(), "no minimum"),
    "inflection": (lambda np, x, y: (y[0] - 1) ** 2 + x * y[1] ** 3, "not strongly convex"),
    "flat minimum": (lambda np, x, y: x * (y**4).sum(), "not strongly convex"),
    "turned": (
        lambda np, x, y: (y.sum() - 1) ** 2 + x * (y[0] - y[1] - 1) ** 4,
        "not strongly convex",
    ),
    "level far away": (lambda np, x, y: (x * y / (1 + y**2) ** 0.5).sum(), "not strongly convex"),
    "NaN": (lambda np, x, y: np.log(-x * y).sum(), "not finite"),
}
every_problem = pytest.mark.parametrize("name", PROBLEMS)


def solve(library, name, on_failure):
    """y, and the derivative of its sum."""
    module, (g, _) = LIBRARY[library], PROBLEMS[name]
    inner = lambda x, y: g(module, x, y)
    if library == "torch":
        x = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
        y0 = torch.tensor([1.0, 0.5], dtype=torch.float64)
        y = untuned.argmin(inner, x, y0, on_failure=on_failure)
        return y.detach().numpy(), torch.autograd.grad(y.sum(), x)[0].item()
    with jax.enable_x64(True):
        y = lambda x: untuned.argmin(inner, x, jnp.array([1.0, 0.5]), on_failure=on_failure)
        (_, found), slope = jax.value_and_grad(lambda x: (y(x).sum(), y(x)), has_aux=True)(1.0)
        return np.asarray(found), float(slope)


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "name"),
    [*(("torch", name) for name in PROBLEMS), ("jax", "two of one"), ("jax", "NaN")],
)
def test_raises_where_a_value_is_at_hand(library, name):
    with pytest.raises(RuntimeError, match=PROBLEMS[name][1]) as caught:
        solve(library, name, "raise")
    assert_one_sentence(str(caught.value).replace("?)", ")"))


@every_problem
def test_nan_everywhere(name):
    y, slope = solve("torch", name, "nan")
    assert np.isnan(y).all()
    assert np.isnan(slope)


@every_problem
def test_warns_and_gives_what_there_is(name):
    with pytest.warns(RuntimeWarning, match=PROBLEMS[name][1]):
        y, slope = solve("torch", name, "warn")
    assert np.isfinite(y).all()
    # A kink and a far point have curvature, so what they have is a derivative that was warned of.
    assert np.isnan(slope) or name in ("kink", "far away")


@pytest.mark.long
def test_compiled_functions_give_nan_or_warn_when_they_run():
    with jax.enable_x64(True):
        zeros = jnp.zeros(2)
        flat = lambda x, y: (y[0] - 2) ** 2 + 0 * y[1]  # and x has no part in it
        y = lambda x, mode: untuned.argmin(flat, x, zeros, on_failure=mode).sum()
        value, slope = jax.jit(jax.value_and_grad(lambda x: y(x, "raise")))(1.0)
        assert np.isnan(value)
        assert np.isnan(slope)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            value, slope = jax.jit(jax.value_and_grad(lambda x: y(x, "warn")))(1.0)
            jax.effects_barrier()
    assert float(value) == pytest.approx(2)
    assert np.isnan(slope)
    assert "not strongly convex" in str(said[0].message)


def test_a_stack_says_how_many_failed():
    x = torch.tensor([1.0, 0.0, 2.0, 0.0], dtype=torch.float64)
    y0 = torch.zeros(2, dtype=torch.float64)
    g = lambda x, y: ((y - 1) ** 2).sum() * x
    with pytest.raises(RuntimeError, match="2 of 4 inner problems have no solution to give"):
        torch.func.vmap(lambda x: untuned.argmin(g, x, y0))(x)
    y = torch.func.vmap(lambda x: untuned.argmin(g, x, y0, on_failure="nan"))(x)
    expected = torch.tensor([1.0, nan, 1.0, nan], dtype=torch.float64)[:, None].expand(4, 2)
    torch.testing.assert_close(y, expected, equal_nan=True)


def test_many_variables_that_have_no_solution():
    x, y0 = torch.ones((), dtype=torch.float64), torch.ones(300, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="no minimum"):
        untuned.argmin(lambda x, y: -(x * y**2).sum(), x, y0)
    with pytest.raises(RuntimeError, match="not finite"):
        untuned.argmin(lambda x, y: (x * torch.log(-y)).sum(), x, y0)


FLAT = {
    "half": (lambda np, x, y: ((y[:150] - x) ** 2).sum(), 300),
    "one": (lambda np, x, y: ((y[:-1] - x) ** 2).sum() + (y[:40] ** 4).sum(), 2000),
    "sums": (lambda np, x, y: ((y[1:] - y[:-1]) ** 2).sum() * x + (y[:2].sum() - y[2:4].sum()) ** 2,
             300),
    "inflections": (lambda np, x, y: x * (y**3).sum(), 300),
    "flat minima": (lambda np, x, y: x * ((y - 3) ** 4).sum(), 300),
    "ridge of a curve": (lambda np, x, y: ((y**2).sum() - x) ** 2, 300),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAT)
def test_many_variables_with_flat_directions(name):
    """Conjugate gradients do not look there, and the derivative would be zero, or huge."""
    g, count = FLAT[name]
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    y0 = torch.linspace(0.5, 1, count, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="not strongly convex"):
        untuned.argmin(lambda x, y: g(torch, x, y), x, y0)
    with jax.enable_x64(True):
        y = lambda x: untuned.argmin(lambda x, y: g(jnp, x, y), x, jnp.asarray(y0.numpy())).sum()
        assert np.isnan(jax.jit(jax.grad(y))(1.0))


@pytest.mark.parametrize("condition", [1e2, 1e4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_many_variables_that_are_not_flat(condition, dtype):
    kind = getattr(torch, dtype)
    scale = torch.logspace(0, np.log10(condition), 400, dtype=kind)
    g = lambda x, y: (scale * (y - x) ** 2).sum() + (y**2).sum()
    x = torch.ones((), dtype=kind, requires_grad=True)
    y = untuned.argmin(g, x, torch.zeros(400, dtype=kind))
    expected = scale / (scale + 1)
    accuracy = 1e-6 if dtype == "float64" else 1e-3
    torch.testing.assert_close(y.detach(), expected, rtol=accuracy, atol=0)
    slope = torch.autograd.grad(y.sum(), x)[0]
    torch.testing.assert_close(slope, expected.sum(), rtol=accuracy, atol=0)


def test_too_few_steps_and_a_tolerance():
    g = lambda x, y: torch.logaddexp(y, -2 * y).sum() + x * ((y - 5) ** 4).sum()
    x, y0 = torch.ones((), dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="max_steps"):
        untuned.argmin(g, x, y0, max_steps=2)
    exact, rough = (untuned.argmin(g, x, y0, tol=tol) for tol in (None, 1e-3))
    assert 1e-6 < (exact - rough).abs().max() < 1
