"""Models of few rows and many features, by Newton's method on their kernel."""

import numpy as np
import pytest
from scipy.optimize import minimize

import untuned
from untuned.closed_form.losses import LOSSES
from untuned.estimators import BilevelLogisticRegression
from untuned.estimators.penalties import folds
from untuned.estimators.penalties import standardisation as tables
from untuned.estimators.penalties.objectives import kernel_newton, scaling
from untuned.estimators.penalties.objectives.closed import Nothing
from untuned.estimators.penalties.objectives.kernel_newton import KernelNewton
from untuned.estimators.penalties.objectives.objective import Outer
from untuned.estimators.penalties.selection import fitting
from untuned.estimators.penalties.selection.judging import Rows


def problem(loss):
    """40 rows of 60 features, weights of which one is zero."""
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 60))
    z = X[:, :1] + random.normal(size=(40, 1))
    target = np.where(z > 0, 1.0, -1.0)
    if loss != "logistic":
        target = random.poisson(np.exp(z)) + 0.1 * (loss == "gamma")
        target = target / target.mean()
    weight = random.uniform(0.5, 2.0, 40)
    weight[3] = 0
    group = np.arange(60)[:, None]
    pairs = folds.splits(3, X, np.zeros(40, int), random)
    plan = folds.plan(pairs, np.zeros(40, int), weight, many=True)
    rows = Rows(loss, tables.make(X, weight), target, weight)
    models = fitting.make(rows, plan, group, scaling.none(60, 1), 1.0, 0.3)
    return rows, plan, models, 1 + random.normal(size=(plan.mix.shape[1], 61))


@pytest.mark.parametrize("loss", ["logistic", "poisson", "gamma"])
def test_models_and_derivative(loss):
    """Judges: SciPy's BFGS on coefficients, and finite differences."""
    rows, plan, models, x = problem(loss)
    closed = KernelNewton(models)
    w, b = closed.model(x, None)
    s = models.strengths(x).s

    def g(point, k, weight):
        z = rows.table.X @ point[:-1] + point[-1]
        value = weight @ LOSSES[loss].value(z[:, None], rows.target, 1)
        return value + 0.5 * s[:, k, 0] @ point[:-1] ** 2

    for k in range(plan.train.shape[1]):
        weight = rows.weight * plan.train[:, k]
        found = np.r_[w[:, k, 0], b[k]]
        judge = minimize(g, found, (k, weight), tol=1e-9)
        np.testing.assert_allclose(found, judge.x, atol=2e-4)
        assert g(found, k, weight) <= judge.fun + 1e-6
    y = models.inner_variable(x, w, b)
    np.testing.assert_allclose(closed(x, np.zeros(1)), Outer(models)(x, y))
    check = untuned.check_hypergradient(closed, Nothing(), x, np.zeros(1))
    assert check.relative_error < 1e-5


@pytest.mark.parametrize("far", [-9.0, 20.0])
def test_solves_from_far_away(far):
    """The next strengths may be far weaker than the last: the old model is then worse than none."""
    _, _, models, x = problem("poisson")
    closed = KernelNewton(models)
    closed.model(x + 5, None)
    found = closed.model(x + far, None)[0]
    fresh = KernelNewton(models).model(x + far, None)[0]
    np.testing.assert_allclose(found, fresh, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("penalty", ["feature", "all"])
def test_steps_find_the_same(penalty, monkeypatch):
    """Where kernels are too large, the same problem is solved in steps."""
    random = np.random.default_rng(1)
    X = random.normal(size=(150, 200))
    y = (X[:, :2] @ [3.0, -3.0] + random.logistic(size=150) > 0).astype(int)
    kernel = BilevelLogisticRegression(penalty=penalty, random_state=0).fit(X, y)
    assert (np.ptp(kernel.regularization_) > 0) == (penalty == "feature")
    monkeypatch.setattr(kernel_newton, "applies", lambda *_: False)
    steps = BilevelLogisticRegression(penalty=penalty, random_state=0).fit(X, y)
    assert kernel.predict_proba(X) == pytest.approx(steps.predict_proba(X), abs=0.1)
    if penalty == "all":
        assert kernel.regularization_ == pytest.approx(steps.regularization_, rel=0.1)
