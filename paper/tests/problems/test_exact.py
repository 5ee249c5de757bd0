"""The judge of the comparison: Phi, its gradient and its least value against closed forms."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from reference.problems import quadratic
from untuned_paper.comparison import measurement
from untuned_paper.problems import exact, registry
from untuned_paper.problems.exact import ExactValue


@pytest.fixture(scope="module")
def task():
    return quadratic(3, 4, 6, 50.0)


@pytest.fixture(scope="module")
def value(task):
    def f(x, y, rows):
        return (
            0.5 * jnp.sum((y - task.target) ** 2)
            + 0.5 * task.rho * jnp.sum(x**2)
            + jnp.dot(task.b, x)
            + 0 * rows.sum()
        )

    def g(x, y, rows):
        return 0.5 * y @ task.A @ y + y @ (task.B @ x) + task.a @ y + 0 * rows.sum()

    return ExactValue(f, g, task.x0, task.y0, np.zeros(1), np.zeros(1))


def test_value_is_the_closed_form(task, value):
    for scale in (0.0, 1.0, -30.0):
        x = scale * np.arange(1.0, len(task.x0) + 1)
        expected = task.f(x, task.y_star(x))
        assert value.value(x, task.y0) == pytest.approx(expected, rel=1e-6)


def test_gradient_is_the_closed_form(task, value):
    x = np.linspace(-1, 2, len(task.x0))
    f, gradient = value.value_and_gradient(x)
    y, v = task.y_star(x), task.v_star(x)
    assert f == pytest.approx(task.f(x, y), rel=1e-9)
    np.testing.assert_allclose(gradient, task.f_x(x, y) - task.g_xy(x, y, v), rtol=1e-5)


def test_least_value_is_the_minimum(task, value):
    found, x = value.least(task.x0, 200)
    # Phi is quadratic, so that its gradient, which vanishes there, is affine in x.
    zero = np.zeros_like(x)

    def gradient(x):
        return task.f_x(x, zero) - task.g_xy(x, None, task.v_star(x))

    slope = np.stack([gradient(unit) - gradient(zero) for unit in np.eye(x.size)], axis=1)
    best = np.linalg.solve(slope, -gradient(zero))
    np.testing.assert_allclose(x, best, atol=1e-3)
    assert found == pytest.approx(task.f(best, task.y_star(best)), rel=1e-6)


def strengths():
    """Regularization selection on collinear features: 30 variables, ill-conditioned."""
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    rows = registry.Rows(features, np.where(labels > 0, 1.0, -1.0))
    f, g = (partial(part, registry.logistic) for part in (registry.mean_loss, registry.penalized))
    return ExactValue(f, g, np.full(30, -2.0), np.zeros(30), rows, rows)


def weights():
    """Hyper-cleaning: 640 variables, no Hessian."""
    return measurement.experiment("digits-cleaning", 100).first_rows(100).exact


@pytest.mark.long
@pytest.mark.parametrize(("task", "size"), [(strengths, 30), (weights, 100)])
def test_an_excursion_leaves_no_trace(task, size):
    """What is kept for speed, a Hessian from far away too, does not change a value."""
    value, start = task(), np.full(size, -2.0)
    y0 = np.zeros_like(value._flat.y0)
    fresh = value.value(start, y0)
    for far in (np.where(np.arange(size) % 2, 25.0, -25.0), np.full(size, -12.0)):
        assert np.isfinite(value.value(far, y0))
        assert value.value(start, y0) == pytest.approx(fresh, abs=1e-6)


@pytest.mark.long
def test_a_solve_that_was_cut_short_goes_on_with_a_new_hessian(monkeypatch):
    expected = strengths().value(np.full(30, -8.0), np.zeros(30))
    monkeypatch.setattr(exact, "EVALUATIONS", 3)
    assert strengths().value(np.full(30, -8.0), np.zeros(30)) == pytest.approx(expected, abs=1e-6)


def test_a_point_that_is_not_finite_has_no_value(task, value):
    assert np.isnan(value.value(np.full_like(task.x0, np.nan), task.y0))
    assert np.isfinite(value.value(task.x0, np.full_like(task.y0, np.nan)))
