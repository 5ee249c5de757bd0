"""Quadratic programs against closed forms, SciPy's SLSQP and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, minimize

import untuned
from refusals import refused
from untuned.solution import interior_point

solve = untuned.quadratic_program


def program(seed, n=6, equal=2, unequal=8, lead=()):
    """A program with a point inside, of which some inequalities hold the solution."""
    rng = np.random.default_rng(seed)
    root, A, G = (rng.standard_normal((*lead, k, n)) for k in (n, equal, unequal))
    inside, c = rng.standard_normal((*lead, n)), 4 * rng.standard_normal((*lead, n))
    b = (A @ inside[..., None])[..., 0]
    h = (G @ inside[..., None])[..., 0] + rng.uniform(0.1, 1, (*lead, unequal))
    return root.swapaxes(-1, -2) @ root / n + 0.1 * np.eye(n), c, A, b, G, h


def tensors(given, **how):
    return tuple(torch.tensor(part, **how) for part in given)


def assert_optimal(given, y, accuracy=1e-9):
    """There are prices of either sign for A, none negative for what holds y, none for the rest."""
    Q, c, A, b, G, h = given
    room = h - G @ y
    assert room.min() > -accuracy
    np.testing.assert_allclose(A @ y, b, atol=accuracy)
    tight = G[room < 1e-7]
    prices = np.linalg.lstsq(np.vstack([A, tight]).T, -(Q @ y + c), rcond=None)[0]
    np.testing.assert_allclose(np.vstack([A, tight]).T @ prices, -(Q @ y + c), atol=1e3 * accuracy)
    assert np.all(prices[len(A) :] > -1e3 * accuracy)


def test_in_closed_form():
    """The projection onto a half space, and onto a plane."""
    x = torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64, requires_grad=True)
    row = torch.tensor([[1.0, 1.0, 2.0]], dtype=torch.float64)
    level = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    eye = torch.eye(3, dtype=torch.float64)
    for name in (("A", "b"), ("G", "h")):
        y = lambda x, level, name=name: solve(eye, -x, **{name[0]: row, name[1]: level})
        expected = x - row[0] * (row[0] @ x - level) / 6
        torch.testing.assert_close(y(x, level), expected, rtol=1e-12, atol=1e-14)
        assert torch.autograd.gradcheck(y, (x, level))
        assert torch.autograd.gradgradcheck(y, (x, level))
    free = solve(eye, -x, G=row, h=level + 10)
    torch.testing.assert_close(free, x)
    torch.testing.assert_close(torch.autograd.grad(free.sum(), x)[0], torch.ones(3).double())


@pytest.mark.parametrize("seed", range(4))
def test_against_scipy_and_differences(seed):
    given = Q, c, A, b, G, h = program(seed, 4, 1, 5)
    y = solve(*tensors(given)).numpy()
    judge = minimize(
        lambda y: y @ Q @ y / 2 + c @ y, np.linalg.lstsq(A, b)[0], jac=lambda y: Q @ y + c,
        constraints=[LinearConstraint(A, b, b), LinearConstraint(G, -np.inf, h)],
        method="SLSQP", options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    np.testing.assert_allclose(y, judge.x, atol=1e-6)
    assert_optimal(given, y)
    tracked = tensors(given, requires_grad=True)
    both = lambda Q, *rest: solve((Q + Q.mT) / 2, *rest)  # differences move one entry at a time
    assert torch.autograd.gradcheck(both, tracked, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_some_hundred_variables(seed):
    given = program(seed, 150, 20, 200)
    assert_optimal(given, solve(*tensors(given)).numpy(), 1e-8)


def test_stacks_on_both_libraries_and_maps():
    given = program(0, lead=(20,))
    loss = lambda *given: (solve(*given) ** 2).sum()
    tracked = tensors(given, requires_grad=True)
    slopes = torch.autograd.grad(loss(*tracked), tracked)
    mapped = torch.func.vmap(torch.func.grad(loss, argnums=tuple(range(6))))(*tensors(given))
    with jax.enable_x64(True):
        on_jax = jax.jit(jax.grad(loss, tuple(range(6))))(*given)
        forward = jax.jacfwd(lambda c: solve(given[0][3], c, *(part[3] for part in given[2:])))(
            given[1][3]
        )
        reverse = jax.jacrev(lambda c: solve(given[0][3], c, *(part[3] for part in given[2:])))(
            given[1][3]
        )
        np.testing.assert_allclose(forward, reverse, atol=1e-9)
    for ours, other, third in zip(slopes, mapped, on_jax, strict=True):
        np.testing.assert_allclose(other, ours, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(third, ours, rtol=1e-7, atol=1e-8)
    shared = solve(given[0][0], given[1], *(part[0] for part in given[2:]))
    assert isinstance(shared, np.ndarray)
    one = solve(given[0][0], given[1][7], *(part[0] for part in given[2:]))
    np.testing.assert_allclose(shared[7], one, atol=1e-12)


def test_ends_when_the_inequalities_are_sorted(monkeypatch):
    step, steps = interior_point._step, []
    monkeypatch.setattr(interior_point, "_step", lambda *a: steps.append(a) or step(*a))
    given = program(3, n=20, equal=4, unequal=30, lead=(50,))
    y = solve(*tensors(given)).numpy()
    assert len(steps) < 20  # rounding would let them go on to the 60th
    for k in range(50):
        assert_optimal([part[k] for part in given], y[k])


def test_goes_on_where_an_inequality_is_just_touched():
    # y1 is held by 0 <= y1 with a price of 1e-5, so that s and z stay close for long.
    Q, G = torch.eye(2, dtype=torch.float64), -torch.eye(2, dtype=torch.float64)
    c = torch.tensor([1e-5, -1.0], dtype=torch.float64, requires_grad=True)
    y = solve(Q, c, G=G, h=torch.zeros(2, dtype=torch.float64))
    (slope,) = torch.autograd.grad(y.sum(), c)
    np.testing.assert_allclose(y.detach(), [0, 1], atol=1e-12)
    np.testing.assert_allclose(slope, [0, -1], atol=1e-12)


def test_float32_and_badly_conditioned():
    given = program(1)
    exact = solve(*tensors(given))
    narrow = solve(*(part.float() for part in tensors(given)))
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), exact, rtol=1e-3, atol=1e-3)
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((6, 6)))[0]
    bad = basis * np.geomspace(1, 1e8, 6) @ basis.T
    given = ((bad + bad.T) / 2, *given[1:])
    assert_optimal(given, solve(*tensors(given)).numpy(), 1e-6)


FAILURES = {
    "empty": ((np.eye(2), np.zeros(2)), {"G": np.array([[1.0, 0], [-1, 0]]), "h": -np.ones(2)}),
    "contradiction": ((np.eye(2), np.zeros(2)), {"A": np.ones((2, 2)), "b": np.array([0.0, 1])}),
    "unbounded": ((np.zeros((2, 2)), np.ones(2)), {"G": np.eye(2), "h": np.ones(2)}),
    "flat": ((np.diag([1.0, 0]), np.array([1.0, 0])), {}),
    "saddle": ((np.diag([1.0, -1]), np.zeros(2)), {"G": np.eye(2), "h": np.ones(2)}),
    "twice": ((np.eye(2), -np.ones(2)), {"A": np.ones((2, 2)), "b": np.ones(2)}),
}


@pytest.mark.parametrize("name", ["Q", "c", "A", "b", "G", "h"])
def test_what_is_not_finite_is_said_to_be(name):
    """A program has no y0 and no steps, so it is not told of any."""
    given = dict(zip(("Q", "c", "A", "b", "G", "h"), tensors(program(0)), strict=True))
    given[name] = given[name].clone()
    given[name].view(-1)[0] = torch.nan
    with pytest.raises(RuntimeError, match="an array holds a value that is not finite"):
        solve(**given)


def test_reasons_are_those_of_programs():
    (given, rows), (saddle, inside) = FAILURES["empty"], FAILURES["saddle"]
    with pytest.raises(RuntimeError, match="A y = b and G y <= h may contradict each other"):
        solve(*given, **rows)
    with pytest.raises(RuntimeError, match="Q has a negative eigenvalue"):
        solve(*saddle, **inside)


def test_only_the_symmetric_part_of_the_matrix_counts():
    """y' Q y has no other; its derivative is that of the value, entry by entry."""
    Q = torch.tensor([[2.0, 1.0], [0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    c = -torch.ones(2, dtype=torch.float64)
    y = solve(Q, c)
    torch.testing.assert_close(y, torch.full((2,), 0.4).double())
    assert torch.autograd.gradcheck(lambda Q: solve(Q, c), (Q,))


@pytest.mark.parametrize("name", FAILURES)
def test_no_solution_or_no_derivative(name):
    given, rows = FAILURES[name]
    with pytest.raises(RuntimeError, match="no solution to give"):
        solve(*tensors(given), **{k: torch.tensor(v) for k, v in rows.items()})
    with pytest.raises(RuntimeError, match="no solution to give"):
        solve(*given, **rows)
    with jax.enable_x64(True):
        slope = jax.grad(lambda c: solve(given[0], c, **rows, on_failure="nan").sum())(
            jnp.asarray(given[1])
        )
    assert np.isnan(slope).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Q": np.eye(3)}, "Q has shape (3, 3); expected (..., 2, 2)"),
        ({"G": np.ones((1, 3)), "h": np.ones(1)}, "G has shape (1, 3)"),
        ({"G": np.ones((1, 2))}, "G or h is missing"),
        ({"A": np.ones((1, 2)), "b": np.array(1.0)}, "b has shape (); expected (..., 1)"),
        ({"c": None}, "Q or c is missing"),
        ({"c": np.ones(2, np.float32)}, "expected float32 for all, or float64 for all"),
        ({"c": np.ones((3, 2)), "Q": np.ones((4, 2, 2))}, "expected stacks of the same size"),
        ({"on_failure": "ignore"}, "all names are nan, raise"),
    ],
)
def test_refused(changes, said):
    with refused(said):
        solve(**{"Q": np.eye(2), "c": np.ones(2)} | changes)
