"""Ridge models in closed form, and their derivative in the strengths."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import untuned
from untuned.estimators import BilevelRidge
from untuned.estimators.penalties import folds
from untuned.estimators.penalties import standardisation as tables
from untuned.estimators.penalties.objectives import closed_ridge, scaling
from untuned.estimators.penalties.objectives.closed import Nothing
from untuned.estimators.penalties.objectives.closed_ridge import ClosedRidge
from untuned.estimators.penalties.objectives.objective import Outer
from untuned.estimators.penalties.selection import fitting, judging
from untuned.estimators.penalties.selection.judging import Rows


def problem(features, by_column):
    """40 rows, two targets, weights of which one is zero."""
    random = np.random.default_rng(0)
    X, target = random.normal(size=(40, features)), random.normal(size=(40, 2))
    target += X[:, :1]
    weight = random.uniform(0.5, 2.0, 40)
    weight[3] = 0
    group = np.tile(np.arange(2) if by_column else np.zeros(2, int), (features, 1))
    if not by_column:
        group += np.arange(features)[:, None]
    pairs = folds.splits(3, X, np.zeros(40, int), random)
    plan = folds.plan(pairs, np.zeros(40, int), weight, many=True)
    rows = Rows("squared", tables.make(X, weight), target, weight)
    models = fitting.make(rows, plan, group, scaling.none(*group.shape), 1.0, 0.3)
    x = 1 + random.normal(size=(plan.mix.shape[1], 1 + group.max() + 1))
    return rows, plan, models, x


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("features", [4, 60])
def test_models_and_derivative(features, by_column):
    """Judges: scikit-learn's ridge on scaled columns, and finite differences."""
    rows, plan, models, x = problem(features, by_column)
    closed = ClosedRidge(models)
    assert closed.wide == (features == 60)
    w, b = closed.model(x, None)
    z = closed.seen(x, None)
    s = models.strengths(x).s
    for k in range(plan.train.shape[1]):
        for c in range(2):
            root = s[:, k, c] ** -0.5
            weight = rows.weight * plan.train[:, k]
            used = weight > 0
            judge = Ridge(alpha=1.0).fit(
                rows.table.X[used] * root, rows.target[used, c], weight[used]
            )
            np.testing.assert_allclose(w[:, k, c], judge.coef_ * root, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(b[k, c], judge.intercept_, rtol=1e-7, atol=1e-9)
            np.testing.assert_allclose(z[k, c], judge.predict(rows.table.X * root), atol=1e-9)
    y = models.inner_variable(x, w, b)
    np.testing.assert_allclose(closed(x, np.zeros(1)), Outer(models)(x, y))
    check = untuned.check_hypergradient(closed, Nothing(), x, np.zeros(1))
    assert check.relative_error < 1e-5


@pytest.mark.parametrize("features", [20, 150])
def test_steps_find_the_same(features, monkeypatch):
    """Where matrices are too large, `minimize` solves the same problem in steps."""
    random = np.random.default_rng(0)
    X = random.normal(size=(120, features))
    y = X[:, :3] @ [1.0, -1.0, 1.0] + random.normal(size=120)
    closed = BilevelRidge(random_state=0).fit(X, y)
    assert closed.regularization_.max() > closed.regularization_.min()
    monkeypatch.setattr(closed_ridge, "applies", lambda *_: False)
    steps = BilevelRidge(random_state=0).fit(X, y)
    assert closed.predict(X) == pytest.approx(steps.predict(X), abs=0.3)


def test_columns_alike():
    """Copies of a column and hardly any penalty: a matrix that is nearly singular."""
    random = np.random.default_rng(0)
    X = np.repeat(random.normal(size=(200, 4)), 10, axis=1)
    y = X[:, ::10].sum(axis=1) + 1e-6 * random.normal(size=200)
    model = BilevelRidge(random_state=0).fit(X, y)
    assert model.score(X, y) > 0.999


def test_what_is_far_worse():
    """By more than chance, and by more than the standard error of the best loss."""
    random = np.random.default_rng(0)
    best, weight = random.exponential(size=400), np.ones(400)  # an error of the mean of 0.05
    assert not judging.is_far_worse(best, best, weight)
    assert not judging.is_far_worse(best + 0.01, best, weight)  # sure, but small
    assert judging.is_far_worse(best + 0.1, best, weight)
    assert not judging.is_far_worse(best - 0.1, best, weight)
    noise = 5 * random.normal(size=400)
    assert not judging.is_far_worse(best + 0.1 + noise - noise.mean(), best, weight)
