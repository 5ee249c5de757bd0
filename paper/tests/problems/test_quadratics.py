"""The quadratics with known constants: closed forms against SciPy, finite differences and a run."""

import numpy as np
import pytest
from scipy import optimize

import untuned
from untuned.problem.build import build
from untuned.problem.flat import FlatProblem
from untuned.solvers import AID
from untuned_paper.problems import quadratics, registry

NAMES = ["quadratic", "quadratic-10", "quadratic-100", "quadratic-10000"]
CONDITIONED = NAMES[1:]


@pytest.fixture(scope="module", params=NAMES)
def experiment(request):
    return registry.get(request.param)


@pytest.fixture(scope="module")
def flat(experiment):
    """The same f and g, as functions of vectors: derivatives by JAX, in float64."""
    x, y = (np.asarray(z, np.float64) for z in (experiment.x0, experiment.y0))
    problem = build(
        experiment.outer, experiment.inner, x, y, experiment.outer_data, experiment.inner_data
    )
    with problem.precision():
        yield FlatProblem(problem)


def points(experiment):
    random = np.random.default_rng(7)
    return random.standard_normal(len(experiment.x0)), random.standard_normal(len(experiment.y0))


@pytest.mark.long
def test_matrices_are_those_of_the_functions(experiment, flat):
    x, y = points(experiment)
    exact = experiment.closed_form
    value, in_x, in_y = flat.outer(x, y)
    assert value == pytest.approx(exact.outer.value(x, y), rel=1e-10)
    for ours, theirs in zip(exact.outer.gradients(x, y), (in_x, in_y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)
    value, in_y = flat.inner(x, y)
    assert value == pytest.approx(exact.inner.value(x, y), rel=1e-10)
    np.testing.assert_allclose(exact.inner.gradients(x, y)[1], in_y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(flat.hvp(x, y, y), exact.inner.A @ y, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_value_function_is_that_of_a_solved_inner_problem(experiment, flat):
    x, y = points(experiment)
    solved = flat.solve_inner(x, y)
    np.testing.assert_allclose(experiment.closed_form.y_star(x), solved, rtol=1e-6, atol=1e-7)
    assert experiment.value(x, y) == pytest.approx(flat.outer(x, solved)[0], rel=1e-8)
    hypergradient = flat.hypergradient(x, solved, flat.solve_linear(x, solved))
    np.testing.assert_allclose(
        experiment.closed_form.gradient(x), hypergradient, rtol=1e-5, atol=1e-6
    )


def test_the_least_value_is_what_scipy_finds(experiment):
    exact = experiment.closed_form
    found = optimize.minimize(exact.value, experiment.x0.astype(float), tol=1e-10)
    assert found.fun == pytest.approx(exact.least, rel=1e-6)
    np.testing.assert_allclose(exact.gradient(exact.x_star), 0, atol=1e-8)
    assert exact.least < experiment.value(experiment.x0, experiment.y0)
    assert np.linalg.eigvalsh(exact.hessian)[0] >= 0.1 - 1e-9


def test_constants():
    sampled = registry.get("quadratic")
    assert sampled.inner_data.in_y.shape == (32_768, 100)
    assert sampled.outer_data.in_x.shape == (1_024, 10)
    np.testing.assert_allclose(sampled.closed_form.curvature, (0.1, 1.0), rtol=0.15)
    # Each side's mean cross term has about the singular values of D, from mu to L_c, both 0.1.
    singular = np.linalg.svd(sampled.closed_form.inner.C, compute_uv=False)
    np.testing.assert_allclose(singular, 0.1, rtol=0.15)
    for condition in (10, 100, 10_000):
        exact = registry.get(f"quadratic-{condition}").closed_form
        np.testing.assert_allclose(exact.curvature, (1, condition), rtol=1e-9)


def test_without_the_shift_phi_would_not_be_strongly_convex():
    """So the shift is needed, and no larger than needed: the smallest eigenvalue is mu itself."""
    sampled = registry.get("quadratic")
    shift = sampled.outer.args[0].shift
    smallest = np.linalg.eigvalsh(sampled.closed_form.hessian)[0]
    assert shift > 0
    assert smallest == pytest.approx(quadratics.MU, rel=1e-6)


def test_value_functions_do_not_depend_on_the_condition():
    experiments = [registry.get(name) for name in CONDITIONED]
    x, y = points(experiments[0])
    values = [experiment.value(x, y) for experiment in experiments]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


def test_metrics_without_a_model(experiment):
    x, y = points(experiment)
    metrics = experiment.metrics(x, y)
    assert set(metrics) == {"validation_loss"}
    assert metrics["validation_loss"] == pytest.approx(
        experiment.closed_form.outer.value(x, y), rel=1e-4
    )


@pytest.mark.long
def test_a_run_reaches_the_solution():
    experiment = registry.get("quadratic-10")
    solver = AID(step_size=0.1, outer_ratio=5.0, inner_steps=30, linear_steps=20)
    result = untuned.minimize(**experiment.problem(), method=solver, max_steps=600)
    assert result.x.dtype == np.float64
    np.testing.assert_allclose(result.x, experiment.closed_form.x_star, atol=1e-6)
    assert experiment.value(result.x, result.y) == pytest.approx(
        experiment.closed_form.least, rel=1e-9
    )
