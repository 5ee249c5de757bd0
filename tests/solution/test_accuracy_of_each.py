"""Relative error of derivatives for every kind of problem, well and badly conditioned.

The judges are closed forms in fifty digits (mpmath), on the entries that the solution moves in:
with H g's curvature among them, dy/db = H^{-1} for g = y' A y / 2 - b' y and what holds y.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch

import untuned

# torch's own forward mode uses what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
SIZE, ACCURACY = 5, {"float64": 1e-6, "float32": 1e-3}
CONDITIONS = [("float64", 1e1), ("float64", 1e4), ("float64", 1e8), ("float32", 1e1)]
KINDS = ("free", "nonnegative", "box", "simplex", "l1", "groups", "program")


def matrix(condition, rng):
    basis = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
    A = (basis * np.geomspace(1, condition, SIZE)) @ basis.T / condition**0.5
    return (A + A.T) / 2


def made(kind, condition, dtype, seed=0):
    """A, b and y such that y solves the problem of this kind, and which entries move."""
    rng = np.random.default_rng(seed)
    A = matrix(condition, rng).astype(dtype).astype(float)
    y, push = rng.uniform(0.2, 0.8, SIZE), rng.uniform(0.5, 1.5, SIZE)
    held = np.zeros(SIZE, bool)
    slope = np.zeros(SIZE)  # of g at the solution
    if kind in ("nonnegative", "box", "program"):
        held[:2] = True
        y[:2], slope[:2] = 0, push[:2]
    if kind == "box":
        y[1], slope[1] = 1, -push[1]
    if kind == "simplex":
        held[:2] = True
        y[:2], slope[:2] = 0, push[:2]
        y /= y.sum()
    if kind == "l1":
        held[:2] = True
        y[:2] = 0
        slope = np.where(held, 0.3 * (push - 1), -0.5)
    if kind == "groups":
        held[:2] = True
        y[:2], y[4] = 0, -y[4]
        slope[:2] = 0.1, -0.1
        slope[2:] = -0.5 * y[2:] / np.linalg.norm(y[2:])
    return A, A @ y - slope, y, ~held


def exact(kind, A, y, moves):
    """The gradient in b of the sum of squares of y, in fifty digits."""
    with mpmath.workdps(50):
        at = np.flatnonzero(moves)
        H = mpmath.matrix(A[np.ix_(at, at)].tolist())
        if kind == "groups":
            u = mpmath.matrix(y[at].tolist())
            length = mpmath.norm(u)
            H += 0.5 / length * (mpmath.eye(len(at)) - u * u.T / length**2)
        right = mpmath.matrix((2 * y[at]).tolist())
        if kind == "simplex":
            ones = mpmath.matrix([1] * len(at))
            solved, other = mpmath.lu_solve(H, right), mpmath.lu_solve(H, ones)
            found = solved - other * ((ones.T * solved)[0] / (ones.T * other)[0])
        else:
            found = mpmath.lu_solve(H, right)
        gradient = np.zeros(SIZE)
        gradient[at] = [float(number) for number in found]
        return gradient


def layer(kind, numpy):
    """y of (b, A, y0)."""
    g = lambda b, y, A: y @ (A @ y) / 2 - b @ y
    more = {
        "nonnegative": {"constraint": "nonnegative"}, "box": {"constraint": (0, 1)},
        "simplex": {"constraint": "simplex"}, "l1": {"l1": 0.5},
        "groups": {"l1": 0.5, "groups": np.array([0, 0, 1, 1, 1])},
    }.get(kind, {})  # fmt: skip
    if kind != "program":
        return lambda b, A, y0: untuned.argmin(g, b, y0, data=A, **more)
    return lambda b, A, y0: untuned.quadratic_program(A, -b, G=-numpy.eye(SIZE) + 0 * A, h=0 * b)


@pytest.mark.parametrize(("dtype", "condition"), CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_stacks_on_torch(kind, dtype, condition):
    """Eight problems at once in reverse mode; each has its own active set."""
    A, b, y, moves = zip(*(made(kind, condition, dtype, seed) for seed in range(8)), strict=True)
    real = lambda part: torch.tensor(np.array(part), dtype=getattr(torch, dtype))
    y0 = real(np.full(SIZE, 1 / SIZE))
    one = lambda b, A: (layer(kind, torch)(b, A, y0) ** 2).sum()
    found = torch.func.vmap(torch.func.grad(one))(real(b), real(A)).double().numpy()
    for k, gradient in enumerate(found):
        expected = exact(kind, A[k], y[k], moves[k])
        error = np.linalg.norm(gradient - expected) / np.linalg.norm(expected)
        assert error <= ACCURACY[dtype], (k, error)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_both_modes_on_jax(kind):
    """Reverse and forward mode, condition 1e8."""
    A, b, y, moves = made(kind, 1e8, "float64")
    expected = exact(kind, A, y, moves)
    with jax.enable_x64(True):
        y0 = jnp.full(SIZE, 1 / SIZE)
        one = lambda b: (layer(kind, jnp)(b, jnp.asarray(A), y0) ** 2).sum()
        for derivative in (jax.grad, jax.jacfwd):
            found = np.asarray(jax.jit(derivative(one))(jnp.asarray(b)))
            assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)
