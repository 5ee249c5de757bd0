"""The problems with known constants: closed forms right, constants neither broken nor idle."""

import numpy as np
import pytest

import untuned
from untuned_paper.theory.problems import PROBLEMS, known

PAIRS = 20_000
EACH = pytest.mark.parametrize("name", PROBLEMS)


def points(problem, count, seed):
    """Pairs of points at all distances, from far apart to nearly one, around where things bend."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-2, 3, (count, 1))
    x = problem.a + size * rng.standard_normal((count, len(problem.a)))
    u = 10.0 ** rng.uniform(-2, 1, (count, 1)) * rng.standard_normal((count, len(problem.A)))
    # Half of the y are near y*(x), where g bends, half near b, where f does.
    near = np.where(rng.random((count, 1)) < 0.5, x @ problem.M.T, problem.M @ problem.a)
    y = near + u
    apart = 10.0 ** rng.uniform(-4, 1, (count, 1))
    dx = apart * rng.standard_normal(x.shape)
    dy = apart * rng.standard_normal(y.shape)
    return x, y, dx, dy


def norms(rows):
    return np.sqrt((rows**2).sum(-1))


def dense(problem, x, y):
    """grad_yy g and grad_xy g as matrices, one to a row of points."""
    units = np.eye(len(problem.A))
    curvature = np.stack([problem.hvp(x, y, np.broadcast_to(e, y.shape)) for e in units], -1)
    return curvature, -np.einsum("ji,njk->nik", problem.M, curvature)


def gradients(problem, x, y):
    """The full gradients of f and of g."""
    inner = problem.inner_grad(x, y)
    f = np.concatenate([problem.outer_grad_x(x), problem.outer_grad_y(y)], -1)
    return f, np.concatenate([-inner @ problem.M, inner], -1)


@EACH
def test_constants_hold_everywhere_and_are_not_absurd(name):
    problem = known(name)
    k = problem.constants()
    x, y, dx, dy = points(problem, PAIRS, 0)
    apart = np.hypot(norms(dx), norms(dy))
    (f_1, g_1), (f_2, g_2) = gradients(problem, x, y), gradients(problem, x + dx, y + dy)
    yy_1, xy_1 = dense(problem, x, y)
    yy_2, xy_2 = dense(problem, x + dx, y + dy)

    def spectral(matrices):
        return np.linalg.norm(matrices, 2, axis=(-2, -1))

    seen = {
        "L_f1": (norms(f_1 - f_2) / apart).max(),
        "L_g1": (norms(g_1 - g_2) / apart).max(),
        "C_fx": norms(problem.outer_grad_x(x)).max(),
        "C_fy": norms(problem.outer_grad_y(y)).max(),
        "C_gxy": spectral(xy_1).max(),
        "C_gyy": spectral(yy_1).max(),
    }
    wide = apart > 1e-3  # differences of matrices, beyond their rounding
    changes = np.maximum(spectral(yy_1 - yy_2), spectral(xy_1 - xy_2))
    seen["L_g2"] = (changes / apart)[wide].max()
    for constant, largest in seen.items():
        bound = getattr(k, constant)
        assert largest <= bound * (1 + 1e-9) + 1e-12, constant
        # The norms of M and its like are products of two bounds that hold at different points.
        assert largest >= 0.3 * bound, (constant, largest, bound)
    smallest = np.linalg.eigvalsh(yy_1)[:, 0].min()
    assert k.mu * (1 - 1e-9) <= smallest <= 1.05 * k.mu


@EACH
def test_closed_forms_agree_with_finite_differences(name):
    """f, g as the library runs them, against gradients, products, y*, v* and Phi in closed form."""
    problem = known(name)
    rng = np.random.default_rng(1)
    x = problem.a + rng.standard_normal(len(problem.a))
    y = problem.y_star(x) + rng.standard_normal(len(problem.A))
    v = rng.standard_normal(len(problem.A))

    def slope(function, at):
        h = 1e-5
        steps = h * np.eye(len(at))
        return np.array([(function(at + s) - function(at - s)) / (2 * h) for s in steps])

    def close(ours, theirs):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)

    close(problem.outer_grad_x(x), slope(lambda x: problem.outer(x, y), x))
    close(problem.outer_grad_y(y), slope(lambda y: problem.outer(x, y), y))
    close(problem.inner_grad(x, y), slope(lambda y: problem.inner(x, y), y))
    close(problem.hvp(x, y, v), slope(lambda y: problem.inner_grad(x, y) @ v, y))
    cross = slope(lambda x: problem.inner_grad(x, y) @ v, x)
    close(problem.hypergradient(x, y, v), problem.outer_grad_x(x) - cross)
    close(problem.inner_grad(x, problem.y_star(x)), 0 * y)
    close(problem.residual(x, problem.y_star(x), problem.v_star(x)), 0 * y)
    close(problem.phi(x), problem.outer(x, problem.y_star(x)))
    close(problem.grad_phi(x), slope(problem.phi, x))
    close(problem.hypergradient(x, problem.y_star(x), problem.v_star(x)), problem.grad_phi(x))


@EACH
def test_gaps_are_exact(name):
    problem = known(name)
    k = problem.constants()
    assert problem.phi(problem.a) == 0 == np.abs(problem.grad_phi(problem.a)).max()
    x, *_ = points(problem, 1000, 2)
    assert problem.phi(x).min() >= 0
    assert k.phi_gap == pytest.approx(problem.outer(problem.x0, problem.M @ problem.x0))
    assert k.y_gap == pytest.approx(np.linalg.norm(problem.y0 - problem.M @ problem.x0))


def test_phi_is_not_convex_and_as_smooth_as_promised():
    from untuned.theory.constants import l_phi

    problem = known("weak coupling")
    x, _, dx, _ = points(problem, PAIRS, 3)
    change = problem.grad_phi(x + dx) - problem.grad_phi(x)
    assert (change * dx).sum(-1).min() < 0
    largest = (norms(change) / norms(dx)).max()
    bound = l_phi(problem.constants())
    assert 0.9 * bound < largest <= bound


def test_library_sees_the_same_hypergradient():
    problem = known("gentle")
    report = untuned.check_hypergradient(problem.outer, problem.inner, problem.x0, problem.y0)
    assert report.ok
    np.testing.assert_allclose(report.hypergradient, problem.grad_phi(problem.x0), rtol=1e-6)


def test_unknown_problem_is_refused():
    with pytest.raises(ValueError, match="no problem 'gentel'; the nearest name is 'gentle'"):
        known("gentel")
