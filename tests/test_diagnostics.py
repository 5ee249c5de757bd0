"""`check_hypergradient` and `check_problem` against closed forms, and on broken problems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned
from libraries import as_numpy, given
from reference.problems import cleaning, quadratic, regularization
from untuned.diagnostics import HypergradientReport


def test_hypergradient_is_that_of_the_closed_form(library):
    problem = quadratic(0, 3, 4, 20.0)
    report = untuned.check_hypergradient(*given(problem, library).positional)
    assert report.ok
    assert "agrees with" in str(report)
    np.testing.assert_allclose(
        as_numpy(report.hypergradient), problem.hypergradient(problem.x0), atol=1e-8
    )
    np.testing.assert_allclose(as_numpy(report.y), problem.y_star(problem.x0), atol=1e-8)
    np.testing.assert_allclose(as_numpy(report.v), problem.v_star(problem.x0), atol=1e-8)
    assert report.relative_error < 1e-7


@pytest.mark.long
@pytest.mark.parametrize("make", [lambda: regularization(1, 40, 30, 6),
                                  lambda: cleaning(2, 30, 24, 5, 3, 0.4)])  # fmt: skip
def test_hypergradient_with_data(make, library):
    task = given(make(), library)
    report = untuned.check_hypergradient(*task.positional, **task.data)
    assert report.ok, str(report)


@pytest.mark.long
def test_hypergradient_in_float32_is_judged_with_fewer_digits(library):
    task = given(quadratic(0, 3, 4, 5.0), library, np.float32)
    assert untuned.check_hypergradient(*task.positional).ok


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_a_cut_gradient_is_found(library):
    """f with part of its dependence on y hidden from the derivative: a common mistake."""
    task = given(quadratic(0, 3, 4, 5.0), library)
    cut = jax.lax.stop_gradient if library == "jax" else torch.detach

    def outer(x, y):
        return task.outer(x, y) + (cut(y) ** 2).sum()

    report = untuned.check_hypergradient(outer, *task.positional[1:])
    assert not report.ok
    assert report.relative_error > 0.01
    assert "does NOT agree" in str(report)


def test_hypergradient_of_an_unbounded_inner_problem_says_so():
    x, y = np.ones(2), np.ones(2)
    report = untuned.check_hypergradient(
        lambda x, y: (y**2).sum(), lambda x, y: (x * y).sum(), x, y
    )
    assert not report.ok
    assert "could not be solved" in str(report)


def test_curvature_is_exact(library):
    problem = quadratic(0, 3, 4, 20.0)
    report = untuned.check_problem(*given(problem, library).positional)
    values = np.linalg.eigvalsh(problem.A)
    np.testing.assert_allclose(report.smallest_eigenvalue, values[0], rtol=1e-9)
    np.testing.assert_allclose(report.largest_eigenvalue, values[-1], rtol=1e-9)
    assert report.condition == pytest.approx(20)
    assert report.ok
    assert "No problem found" in str(report)
    assert report.gradient_norms["grad_y f"] == pytest.approx(
        np.linalg.norm(problem.f_y(problem.x0, problem.y0))
    )


def test_curvature_of_many_variables_by_lanczos():
    scales = np.linspace(2.0, 9.0, 300)
    report = untuned.check_problem(
        lambda x, y: (y**2).sum(),
        lambda x, y: 0.5 * (scales * (y - x) ** 2).sum(),
        np.ones(300),
        np.zeros(300),
    )
    assert report.smallest_eigenvalue == pytest.approx(2.0, rel=1e-2)
    assert report.largest_eigenvalue == pytest.approx(9.0, rel=1e-2)


def warnings_of(outer, inner, x=None, y=None):
    x, y = np.ones(2) if x is None else x, np.ones(2) if y is None else y
    report = untuned.check_problem(outer, inner, x, y)
    assert not report.ok
    return str(report)


def loss(x, y):
    return ((y - 1.5) ** 2).sum()


def test_negative_curvature_is_said_with_its_value():
    text = warnings_of(loss, lambda x, y: ((y - x) ** 2).sum() - 3.5 * y[0] ** 2)
    assert "not convex" in text
    assert "-5" in text


def test_tiny_curvature_is_said_with_its_value():
    text = warnings_of(loss, lambda x, y: ((y - x)[0] ** 2) + 1e-9 * (y[1] - x[1]) ** 2)
    assert "barely or not strongly convex" in text
    assert "2e-09" in text


def test_functions_that_are_not_finite_at_the_start_are_named():
    text = warnings_of(lambda x, y: jnp.log(y - 1.0).sum(), lambda x, y: ((y - x) ** 2).sum())
    assert "outer function is -inf" in text
    text = warnings_of(loss, lambda x, y: jnp.log(-y).sum())
    assert "inner function is nan" in text
    text = warnings_of(lambda x, y: jnp.sqrt(y - 1.0).sum(), lambda x, y: ((y - x) ** 2).sum())
    assert "grad_y f is not finite" in text


def test_scales_far_apart_are_said():
    text = warnings_of(loss, lambda x, y: ((y - 1e-7 * x) ** 2).sum())
    assert "differ by many orders" in text
    assert "hypergradient" in text


def test_a_hypergradient_of_zero_is_not_only_said_to_agree():
    forgetful = lambda x, y: (y**2).sum()  # of x
    outer = lambda x, y: ((y - 1.0) ** 2).sum()
    report = untuned.check_hypergradient(outer, forgetful, np.ones(2), np.zeros(2))
    assert report.ok
    assert "Both are zero: x has no effect on f here" in str(report)


@pytest.mark.parametrize(
    ("slope", "error", "said"),
    [
        (1.0, 4e-12, "hypergradient agrees with"),  # it was said to be above 1e-4, since g is bent
        (1.0, 0.5, "hypergradient does NOT agree with"),
        (np.nan, np.nan, "Some slopes are not finite numbers; untuned.check_problem says where"),
    ],
)
def test_a_warning_does_not_make_the_hypergradient_disagree(slope, error, said):
    slopes = np.full(5, slope)
    report = HypergradientReport(0.0, 0.0, 0.0, slopes, slopes, error, 1e-4, ("g is not convex.",))
    assert not report.ok
    assert said in str(report)
    assert str(report).endswith("g is not convex.")


def test_functions_that_are_random_or_change_their_arguments_are_told():
    x, y = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    f = lambda x, y: ((y - 1) ** 2).sum()
    g = lambda x, y: ((y - x) ** 2).sum()
    dropped = lambda x, y: (torch.nn.functional.dropout(y - x, 0.5, training=True) ** 2).sum()

    def changing(x, y):
        with torch.no_grad():
            y += 1
        return g(x, y)

    torch.manual_seed(0)
    assert untuned.check_problem(f, g, x, y).ok
    assert "inner function is random" in str(untuned.check_problem(f, dropped, x, y))
    assert "outer function is random" in str(untuned.check_problem(dropped, g, x, y))
    assert "changes x or y in place" in str(untuned.check_problem(f, changing, x, y))


def test_a_random_function_of_numpy_is_told_on_jax():
    random = np.random.default_rng(0)
    g = lambda x, y: ((y - x - random.standard_normal(2)) ** 2).sum()
    f = lambda x, y: ((y - 1) ** 2).sum()
    assert "is random" in str(untuned.check_problem(f, g, np.zeros(2), np.zeros(2)))
