"""Random problems, well and badly conditioned, convex and not, hundreds in one call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned


def quadratics(condition, dtype, count=20, size=6):
    """Matrices with this condition number and right sides, and grad_b of |A^{-1} b|^2."""
    rng = np.random.default_rng(int(np.log10(condition)))
    bases = np.linalg.qr(rng.standard_normal((count, size, size)))[0]
    values = np.geomspace(1, condition, size)
    A = (bases * values) @ bases.swapaxes(1, 2)
    A = (A + A.swapaxes(1, 2)) / 2
    b = rng.standard_normal((count, size))
    y = np.linalg.solve(A, b[..., None])
    return A.astype(dtype), b.astype(dtype), np.linalg.solve(A, 2 * y)[..., 0]


@pytest.mark.parametrize(
    ("dtype", "condition", "accuracy"),
    [("float64", 10.0**k, 1e-6) for k in (0, 2, 4, 6, 8)] + [("float32", 1e2, 1e-3)],
)
def test_conditioning(dtype, condition, accuracy):
    A, b, expected = quadratics(condition, dtype)
    g = lambda b, y, A: 0.5 * y @ (A @ y) - b @ y
    zeros = torch.zeros(6, dtype=getattr(torch, dtype))
    loss = lambda b, A: (untuned.argmin(g, b, zeros, data=A) ** 2).sum()
    found = torch.func.vmap(torch.func.grad(loss))(torch.tensor(b), torch.tensor(A)).numpy()
    error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error.max() <= accuracy


@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-6), ("float32", 1e-3)])
def test_logistic_regressions_against_finite_differences(dtype, accuracy):
    rng = np.random.default_rng(0)
    features, signs = rng.standard_normal((100, 30, 4)), np.sign(rng.standard_normal((100, 30)))
    strengths = rng.uniform(-6, 1, 100)

    def losses(dtype):
        kind = getattr(torch, dtype)
        rows = [torch.tensor(part).to(kind) for part in (features, signs)]

        def g(x, y, data):
            scores = data[1] * (data[0] @ y)
            return torch.logaddexp(0 * scores, -scores).mean() + torch.exp(x) * (y**2).sum()

        one = lambda x, *rows: (
            untuned.argmin(g, x, torch.zeros(4, dtype=kind), data=rows) ** 2
        ).sum()
        return lambda function, x: torch.func.vmap(function(one))(x.to(kind), *rows)

    found = losses(dtype)(torch.func.grad, torch.tensor(strengths)).double()
    step, exact = 1e-4, losses("float64")
    ahead, back, ahead_2, back_2 = (
        exact(lambda one: one, torch.tensor(strengths + k * step)) for k in (1, -1, 2, -2)
    )
    finite = (8 * (ahead - back) - (ahead_2 - back_2)) / (12 * step)
    torch.testing.assert_close(found, finite, rtol=accuracy, atol=0)


def test_curves_of_every_kind_give_a_minimum_or_nan():
    """a y^4 + b y^2 + c y with signs and zeros in every place, from starts near and far."""
    rng = np.random.default_rng(1)
    places = rng.choice([-1.0, 0.0, 1.0], (300, 3)) * 10 ** rng.uniform(-3, 3, (300, 3))
    a, b, c = torch.tensor(places).T
    start = torch.tensor(rng.standard_normal(300) * 10 ** rng.uniform(-2, 2, 300))
    g = lambda x, y: (x[0] * y**4 + x[1] * y**2 + x[2] * y).sum()
    one = lambda x, y0: untuned.argmin(g, x, y0[None], max_steps=40, on_failure="nan")[0]
    x = torch.stack([a, b, c], 1)
    y = torch.func.vmap(one)(x, start)
    slopes = torch.func.vmap(torch.func.grad(one))(x, start)
    slope = 4 * a * y**3 + 2 * b * y + c
    curvature = 12 * a * y**2 + 2 * b
    given = torch.isfinite(y)
    # The Newton step that is left, against y, or the way to it where y is zero.
    assert (abs(slope / curvature) <= 1e-6 * abs(y) + 1e-12 * abs(start))[given].all()
    assert (curvature > 0)[given].all()
    torch.testing.assert_close(slopes[given, 2], -1 / curvature[given], rtol=1e-5, atol=0)
    assert slopes[~given].isnan().all()
    has_minimum = (a > 0) | ((a == 0) & (b > 0))
    has_none = (a <= 0) & (b <= 0)
    # y^4 alone has its minimum where the curvature ends, and b y^2 - |a| y^4 falls on both sides.
    regular = has_minimum & ((b > 0) | (c != 0) | (b < 0) & (start != 0))
    assert given[regular].all()
    assert not given[has_none].any()


@pytest.mark.long
def test_jax_on_the_same_kinds():
    rng = np.random.default_rng(2)
    x = rng.choice([-1.0, 0.0, 1.0], (100, 3)) * 10 ** rng.uniform(-3, 3, (100, 3))
    start = rng.standard_normal(100)
    g = lambda x, y: (x[0] * y**4 + x[1] * y**2 + x[2] * y).sum()
    with jax.enable_x64(True):
        one = lambda x, y0: untuned.argmin(g, x, y0[None], max_steps=40)[0]
        y, slopes = jax.jit(jax.vmap(jax.value_and_grad(one)))(jnp.asarray(x), jnp.asarray(start))
    other = torch.func.vmap(
        lambda x, y0: untuned.argmin(g, x, y0[None], max_steps=40, on_failure="nan")[0]
    )(torch.tensor(x), torch.tensor(start)).numpy()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(other))
    np.testing.assert_allclose(y, other, rtol=1e-7, atol=1e-14)
    assert np.isnan(np.asarray(slopes)[np.isnan(y)]).all()


def test_one_step_that_ends_at_the_minimum_of_what_is_no_quadratic():
    """grad g = (y - 1) (1 + c y^2): Newton's step from zero is one, yet the Hessian is not."""
    g = lambda x, y, c: (y**2 / 2 - y + c * (y**4 / 4 - y**3 / 3) - x * y).sum()
    c = torch.tensor([0.0, 2.0, 0.5], dtype=torch.float64)
    one = lambda c, x: untuned.argmin(g, x, torch.zeros(1).double(), data=c)[0]
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    torch.func.vmap(one)(c, x).sum().backward()
    torch.testing.assert_close(x.grad, 1 / (1 + c), rtol=1e-12, atol=0)
