"""y in a box, nonnegative or on the simplex: solutions by optimality and SciPy, derivatives by
finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear, minimize, nnls

import untuned


def quadratic(seed, size, spread=1.0):
    """1/2 y^T A y - b(x)^T y with b = B x + c."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((size, size))
    return (
        root @ root.T / size + 0.1 * np.eye(size),
        rng.standard_normal((size, 2)),
        spread * rng.standard_normal(size),
        rng.standard_normal(2),
    )


def solve(A, B, c, x, constraint, y0):
    A, B, c, y0 = (torch.tensor(part) for part in (A, B, c, y0))
    g = lambda x, y: 0.5 * (y * (A @ y)).sum() - ((B @ x + c) * y).sum()
    return untuned.argmin(g, x, y0, constraint=constraint)


def derivative(problem, constraint, y0):
    """The solution, its Jacobian, and the Jacobian by differences."""
    A, B, c, x = problem
    at = torch.tensor(x)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: solve(A, B, c, x, constraint, y0), at
    ).numpy()
    step = 1e-6
    finite = [
        (solve(A, B, c, at + d, constraint, y0) - solve(A, B, c, at - d, constraint, y0)).numpy()
        / (2 * step)
        for d in step * torch.eye(2, dtype=torch.float64)
    ]
    return solve(A, B, c, at, constraint, y0).numpy(), jacobian, np.array(finite).T


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("constraint", "bounds"), [("nonnegative", (0, np.inf)), ((-0.3, 0.5), (-0.3, 0.5))]
)
def test_bounds(constraint, bounds, seed):
    problem = A, B, c, x = quadratic(seed, 8)
    y, jacobian, finite = derivative(problem, constraint, np.full(8, 0.1))
    root = np.linalg.cholesky(A).T
    right = np.linalg.solve(root.T, B @ x + c)
    judge = nnls(root, right)[0] if bounds[1] > 1 else lsq_linear(root, right, bounds, tol=1e-15).x
    np.testing.assert_allclose(y, judge, atol=1e-7)
    held = (y == bounds[0]) | (y == bounds[1])
    assert held.any()
    assert not jacobian[held].any()
    np.testing.assert_allclose(jacobian, finite, atol=1e-6 * abs(finite).max() + 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_simplex(seed):
    problem = A, B, c, x = quadratic(seed, 7)
    y, jacobian, finite = derivative(problem, "simplex", np.full(7, 1 / 7))
    assert y.sum() == pytest.approx(1, abs=1e-14)
    grad, free = A @ y - B @ x - c, y > 0
    level = grad[free].mean()
    # The conditions of optimality: one level where y is positive, no lower elsewhere.
    np.testing.assert_allclose(grad[free], level, atol=1e-12)
    assert np.all(grad[~free] >= level - 1e-12)
    np.testing.assert_allclose(jacobian.sum(0), 0, atol=1e-12)
    np.testing.assert_allclose(jacobian, finite, atol=1e-6 * abs(finite).max() + 1e-9)


@pytest.mark.parametrize("bounds", [(np.float32(0), None), (np.int64(0), np.float64(2))], ids=repr)
def test_numpy_numbers_are_bounds_and_tolerances(bounds):
    """As for `minimize`; they come from an array's least entry, say. A leaf may be empty."""
    target = torch.tensor([-1.0, 0.5]).double()
    y0 = {"a": torch.ones(2).double(), "none": torch.zeros(0, 3).double()}
    g = lambda x, y: ((y["a"] - x) ** 2).sum() + y["none"].sum()
    y = untuned.argmin(g, target, y0, constraint=bounds, tol=np.float32(1e-3))
    np.testing.assert_allclose(y["a"], [0, 0.5], atol=1e-12)
    assert y["none"].shape == (0, 3)


def test_every_leaf_on_its_own_simplex_and_not_quadratic():
    g = lambda x, y: (torch.exp(3 * y["a"]) @ x + (y["b"] ** 4).sum() + (y["a"].sum() - x[0]) ** 2
                      + ((y["b"] - x[:2]) ** 2).sum())  # fmt: skip
    y0 = {"a": torch.full((3,), 1 / 3).double(), "b": torch.tensor([1.0, 0.0]).double()}
    y = lambda x: untuned.argmin(g, x, y0, constraint="simplex")
    x = torch.tensor([0.2, 0.9, 2.0], dtype=torch.float64, requires_grad=True)
    found = y(x)
    value = lambda flat: g(
        x.detach(), {"a": torch.tensor(flat[:3]), "b": torch.tensor(flat[3:])}
    ).item()
    sums = [{"type": "eq", "fun": lambda y, part=part: y[part].sum() - 1} for part in
            (slice(0, 3), slice(3, 5))]  # fmt: skip
    judge = minimize(value, np.array([1, 1, 1, 1.5, 1.5]) / 3, bounds=[(0, 1)] * 5,
                     constraints=sums, options={"ftol": 1e-15})  # fmt: skip
    both = np.concatenate([found["a"].detach(), found["b"].detach()])
    np.testing.assert_allclose(both, judge.x, atol=1e-6)
    assert torch.autograd.gradcheck(lambda x: tuple(y(x).values()), (x,))


@pytest.mark.parametrize("constraint", ["nonnegative", "simplex", (0.0, 0.2)])
def test_a_hundred_variables(constraint):
    A, B, c, x = quadratic(0, 100, 3.0)
    y = solve(A, B, c, torch.tensor(x), constraint, np.full(100, 0.01)).numpy()
    grad = A @ y - B @ x - c
    if constraint == "simplex":
        grad -= grad[y > 0].mean()
    free = (y > 0) & (y < (0.2 if isinstance(constraint, tuple) else np.inf))
    assert 0 < free.sum() < 100
    np.testing.assert_allclose(grad[free], 0, atol=1e-10)
    assert np.all(grad[y == 0] >= 0)
    assert np.all(grad[y >= 0.2] <= 0) or not isinstance(constraint, tuple)


@pytest.mark.long
@pytest.mark.parametrize("constraint", ["simplex", (0.0, 0.6)])
def test_jax_agrees_in_value_and_derivative(constraint):
    A, B, c, x = quadratic(3, 5)
    y0 = np.full(5, 0.2)
    expected = derivative((A, B, c, x), constraint, y0)
    with jax.enable_x64(True):
        g = lambda x, y: 0.5 * y @ A @ y - (B @ x + c) @ y
        y = lambda x: untuned.argmin(g, x, jnp.asarray(y0), constraint=constraint)
        both = jax.jit(jax.vmap(lambda x: (y(x), jax.jacrev(y)(x))))
        ys, jacobians = both(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(ys[0], expected[0], atol=1e-12)
    np.testing.assert_allclose(jacobians[0], expected[1], atol=1e-10)


def test_a_set_of_one_point():
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    y0 = torch.full((2,), 0.5, dtype=torch.float64)
    y = untuned.argmin(lambda x, y: ((y - x) ** 2).sum(), x, y0, constraint=(0.5, 0.5))
    assert torch.equal(y, y0)
    assert torch.autograd.grad(y.sum(), x)[0] == 0
