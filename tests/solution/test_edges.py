"""What people try first to break a layer: starts on bounds, kinks, units, steps cut short, stacks
in which one problem fails. A right derivative, or the failure that was asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.autograd import gradgradcheck

import untuned
from untuned.ops import torch_roots
from untuned.solution import newton

# torch's own forward mode uses what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
nan = float("nan")
# The y of (y - 2)^2 + y^4 and the derivative of the sum of two of them.
ROOT = 0.8351223484536
SLOPE = 4 / (2 + 12 * ROOT**2)


def squares(np, x, y):
    return ((y - x) ** 2).sum()


def quartic(np, x, y):
    return ((y - x) ** 2).sum() + (y**4).sum()


def huber(np, x, y):
    off = abs(y - x)
    return np.where(off < 1, off**2 / 2, off - 0.5).sum() + 0.05 * (y**2).sum()


# Name: g of (library, x, y), x, y0, more arguments, and d sum(y) / dx, or what the error says.
EDGES = {
    "starts on a bound and leaves it": (squares, 1.0, [0.0, 0.0], {"constraint": "nonnegative"}, 2),
    "stays on its bound": (squares, -1.0, [0.0, 0.0], {"constraint": "nonnegative"}, 0),
    "starts on both bounds": (squares, 0.5, [0.0, 1.0], {"constraint": (0, 1)}, 2),
    "a box of one point": (squares, 0.5, [0.5, 0.5], {"constraint": (0.5, 0.5)}, 0),
    "a corner of the simplex": (squares, 0.2, [1.0, 0.0], {"constraint": "simplex"}, 0),
    "a simplex of one entry": (squares, 0.2, [1.0], {"constraint": "simplex"}, 0),
    "linear in a box": (lambda np, x, y: (x * y).sum(), 1.0, [0.5, 0.5], {"constraint": (0, 1)}, 0),
    "linear": (lambda np, x, y: (x * y).sum(), 1.0, [0.0], {}, "no minimum"),
    "starts at the solution": (squares, 1.0, [1.0, 1.0], {}, 2),
    "solution at zero": (
        lambda np, x, y: ((x * y) ** 2 + (x - 1) * y).sum(), 1.0, [1e3, -1e-9], {}, -1),
    "log next to its end": (lambda np, x, y: (y - x * np.log(y)).sum(), 2.0, [1e-6, 100.0], {}, 2),
    "log outside": (lambda np, x, y: (y - x * np.log(y)).sum(), 2.0, [-1.0, 1.0], {}, "not finite"),
    "root at zero": (lambda np, x, y: (np.sqrt(y) - x).sum() ** 2, 2.0, [0.0], {}, "not finite"),
    "exp from far": (lambda np, x, y: (np.exp(y) - x * y).sum(), 2.0, [50.0], {}, 0.5),
    "exp beyond numbers": (lambda np, x, y: (np.exp(y) - y).sum(), 2.0, [800.0], {}, "not finite"),
    "two valleys": (lambda np, x, y: (y**4 - x * y**2).sum(), 2.0, [1e-3], {}, 0.25),
    "between two valleys": (
        lambda np, x, y: (y**4 - x * y**2).sum(), 2.0, [0.0], {}, "not strongly convex"),
    "a bent valley": (lambda np, x, y: (x - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2,
                      1.0, [-1.2, 1.0], {}, 3),
    "kink at the solution": (
        lambda np, x, y: (abs(y) + (y - x) ** 2 / 2).sum(), 0.3, [1.0], {}, "no minimum"),
    "kink on the way": (lambda np, x, y: (abs(y) + (y - x) ** 2 / 2).sum(), 3.0, [-1.0], {}, 1),
    "Huber's loss": (huber, 1.0, [8.0], {}, 1 / 1.1),
    "a clipped square": (
        lambda np, x, y: squares(np, x, y) + (y.clip(0, None) ** 2).sum(), -1.0, [3.0], {}, 1),
    "two steps for a quadratic": (squares, 1.0, [0.0, 0.0], {"max_steps": 2}, 2),
    "too few steps": (quartic, 9.0, [50.0], {"max_steps": 2}, "max_steps"),
    "too few steps, NaN": (quartic, 9.0, [50.0], {"max_steps": 2, "on_failure": "nan"}, nan),
    **{f"g in units of {unit:g}": (
        lambda np, x, y, unit=unit: unit * quartic(np, x, y), 2.0, [0.0, 0.0], {}, SLOPE)
        for unit in (1e-100, 1e-12, 1e12, 1e100)},
    **{f"y in units of {unit:g}": (
        lambda np, x, y, unit=unit: quartic(np, x, y / unit), 2.0, [0.0, 0.0], {}, SLOPE * unit)
        for unit in (1e-60, 1e-12, 1e12)},
    "far from zero": (lambda np, x, y: quartic(np, x, y - 1e8), 2.0, [0.0, 0.0], {}, SLOPE),
    "a large constant": (lambda np, x, y: quartic(np, x, y) + 1e6, 2.0, [0.0, 0.0], {}, SLOPE),
}  # fmt: skip
ON_JAX = (
    "starts on both bounds", "a corner of the simplex", "linear", "log next to its end",
    "kink at the solution", "two valleys", "too few steps", "g in units of 1e+100",
)  # fmt: skip


def derivative(library, g, x, y0, more):
    if library == "jax":
        with jax.enable_x64(True):
            one = lambda x: untuned.argmin(lambda x, y: g(jnp, x, y), x, jnp.asarray(y0), **more)
            return float(jax.grad(lambda x: one(x).sum())(x))
    at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    start = torch.tensor(y0, dtype=torch.float64)
    y = untuned.argmin(lambda x, y: g(torch, x, y), at, start, **more)
    return torch.autograd.grad(y.sum(), at)[0].item()


@pytest.mark.parametrize("name", EDGES)
def test_edges_on_torch(name):
    check("torch", name)


@pytest.mark.long
@pytest.mark.parametrize("name", ON_JAX)
def test_edges_on_jax(name):
    check("jax", name)


def check(library, name):
    *given, expected = EDGES[name]
    if isinstance(expected, str):
        with pytest.raises(RuntimeError, match=expected):
            derivative(library, *given)
    else:
        assert derivative(library, *given) == pytest.approx(
            expected, rel=1e-6, abs=1e-12, nan_ok=True
        )


@pytest.mark.parametrize("unit", [1e-30, 1e-12, 1e12, 1e30])
def test_units_in_float32(unit):
    """Whose squares are beyond all numbers."""
    x = torch.tensor(2.0, requires_grad=True)
    y = untuned.argmin(lambda x, y: unit * quartic(torch, x, y), x, torch.zeros(2))
    assert torch.autograd.grad(y.sum(), x)[0].item() == pytest.approx(SLOPE, rel=1e-3)


# The third has a maximum and the second is linear; the other two have y = 1 + 1 / (2 x).
STACK, EXPECTED = [1.0, 0.0, -1.0, 2.0], [-1.0, nan, nan, -0.25]
TWICE = [2.0, nan, nan, 0.25]


def fails_in_part(x, y):
    return x * ((y - 1) ** 2).sum() - y.sum()


def test_only_the_problem_that_fails_is_nan_on_torch():
    func, xs = torch.func, torch.tensor(STACK, dtype=torch.float64)
    zeros = torch.zeros(2, dtype=torch.float64)
    one = lambda x: untuned.argmin(fails_in_part, x, zeros, on_failure="nan").sum()
    fine = torch.tensor([0, 3])
    for found, expected in (
        (func.vmap(func.grad(one))(xs), EXPECTED),
        (func.grad(lambda x: func.vmap(one)(x)[fine].sum())(xs)[fine], [-1.0, -0.25]),
        (func.vmap(func.vmap(func.grad(one)))(torch.stack([xs, xs])), [EXPECTED] * 2),
        (func.vmap(func.hessian(one))(xs), TWICE),
        (func.vmap(func.jacrev(func.jacrev(one)))(xs), TWICE),
    ):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.long
def test_only_the_problem_that_fails_is_nan_on_jax():
    with jax.enable_x64(True):
        xs = jnp.asarray(STACK)
        one = lambda x: untuned.argmin(fails_in_part, x, jnp.zeros(2)).sum()
        nested = jax.vmap(jax.jit(jax.vmap(jax.jacfwd(jax.jit(one)))))
        for found, expected in (
            (jax.jit(jax.vmap(jax.grad(one)))(xs), EXPECTED),
            (nested(jnp.stack([xs, xs])), [EXPECTED] * 2),
            (jax.jit(jax.vmap(jax.hessian(one)))(xs), TWICE),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("constraint", "start"), [("simplex", 1 / 3), ((-0.2, 0.6), 0.1), ("nonnegative", 0.0)]
)
def test_second_derivatives_within_a_set(constraint, start):
    wide = lambda *numbers: torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    g = lambda x, y, data: (torch.cosh(y - x) + data * y**2).sum()
    y = lambda x, data: untuned.argmin(
        g, x, torch.full((3,), start, dtype=torch.float64), data=data, constraint=constraint
    )
    assert gradgradcheck(y, (wide(0.4, -0.9, 0.5), wide(0.3, 0.2, 0.1)))


@pytest.mark.parametrize("lib", [np, torch])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_variables_in_units_far_apart(lib, dtype):
    """The same logistic regression with its features in units from 1e-6 to 1e6."""
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((40, 3)), np.sign(rng.standard_normal(40))
    like = (lambda a: torch.tensor(a, dtype=getattr(torch, dtype))) if lib is torch else (
        lambda a: np.asarray(a, dtype))  # fmt: skip
    log1p = torch.log1p if lib is torch else jnp.log1p
    exp = torch.exp if lib is torch else jnp.exp

    def inner(x, y, data):
        rows, labels, units = data
        return log1p(exp(-labels * (rows @ y))).mean() + 0.05 * ((units * y) ** 2).sum()

    found = []
    for units in (np.ones(3), np.array([1e-6, 1.0, 1e6]), np.array([1e6, 1e3, 1e-6])):
        data = tuple(like(part) for part in (rows * units, labels, units))
        y = untuned.argmin(inner, like(0.0), like(np.zeros(3)), data=data)
        found.append(np.asarray(y, np.float64) * units)
    accuracy = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=accuracy)


def test_a_start_on_a_bound_that_float32_rounds():
    y0 = torch.full((2,), 0.3)  # 0.3 in float32 is a little more than 0.3
    y = untuned.argmin(
        lambda x, y: ((y - x) ** 2).sum(), torch.tensor(1.0), y0, constraint=(0, 0.3)
    )
    np.testing.assert_array_equal(y, y0)


def test_a_stack_of_no_problems():
    many = jax.vmap(lambda x: untuned.argmin(lambda x, y: ((y - x) ** 2).sum(), x, jnp.zeros(2)))
    assert jax.jit(many)(jnp.zeros(0)).shape == (0, 2)


def test_a_negative_eigenvalue_takes_few_factorizations(monkeypatch):
    lib = torch_roots
    factored, seen = lib.cholesky, []
    monkeypatch.setattr(lib, "cholesky", lambda matrix: seen.append(matrix) or factored(matrix))
    matrix = torch.tensor([[1.0, 1.4], [1.4, 1.0]], dtype=torch.float64)  # eigenvalues 2.4, -0.4
    factor = newton.factored(lib, matrix, 2e-16)
    assert not factor.regular
    shift = (factor.root @ factor.root.mT - matrix)[0, 0]
    assert 0.4 < shift < 4
    assert len(seen) <= 7
