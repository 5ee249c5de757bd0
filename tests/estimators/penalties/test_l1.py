"""Models with absolute penalties, and those of counts, against scikit-learn and differences."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet, Lasso, LassoCV, LogisticRegression, PoissonRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from untuned.estimators import (
    BilevelElasticNet,
    BilevelGamma,
    BilevelLasso,
    BilevelLogisticRegression,
    BilevelPoisson,
)
from untuned.estimators.penalties import folds, l1
from untuned.estimators.penalties import standardisation as tables
from untuned.estimators.penalties.l1 import Design, Penalty
from untuned.estimators.penalties.l1_objective import L1Objective


def planted(count=150, features=12, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, features))
    return X, 2 * X[:, 0] - X[:, 1] + random.normal(size=count)


def solved(loss, X, target, weight, first, second):
    design = Design(loss, tables.make(X, tables.moments(X, weight)), target)
    start = np.zeros((X.shape[1], target.shape[1])), np.zeros(target.shape[1])
    shape = start[0].shape
    penalty = Penalty(np.full(shape, first), np.full(shape, second))
    return l1.solve(design, weight / weight.sum(), weight.sum(), penalty, start), design


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_inner_solution_is_that_of_scikit_learn(kind, monkeypatch):
    monkeypatch.setattr(tables, "stays_sparse", sparse.issparse)
    X, y = planted()
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    given = sparse.csr_array(X) if kind == "sparse" else X
    fit, design = solved("squared", given, y[:, None], weight, 20.0, 5.0)
    Z = design.table.dense(slice(None))
    judge = ElasticNet(alpha=25 / weight.sum(), l1_ratio=0.8, tol=1e-12).fit(Z, y, weight)
    np.testing.assert_allclose(fit.coef[:, 0], judge.coef_, atol=1e-7)
    np.testing.assert_allclose(fit.intercept, judge.intercept_, atol=1e-7)
    assert 0 < np.count_nonzero(fit.coef) < 12


def test_softmax_and_counts_are_those_of_scikit_learn():
    X, y = planted()
    labels = np.digitize(y, [-1, 1])
    ones = np.ones(len(y))
    fit, design = solved("softmax", X, np.eye(3)[labels], ones, 4.0, 0.0)
    judge = LogisticRegression(
        C=0.25, l1_ratio=1, solver="saga", tol=1e-8, max_iter=5000, random_state=0
    ).fit(design.table.X, labels)
    np.testing.assert_allclose(fit.coef.T, judge.coef_, atol=1e-5)
    counts = np.exp(0.3 * y)
    counts /= counts.mean()
    fit, design = solved("poisson", X, counts[:, None], ones, 1e-9, 30.0)
    judge = PoissonRegressor(alpha=30 / len(y), tol=1e-9, max_iter=1000).fit(design.table.X, counts)
    np.testing.assert_allclose(fit.coef[:, 0], judge.coef_, atol=1e-5)


@pytest.mark.parametrize("strength", [1e-4, 1e-2, 1.0])
def test_columns_that_nearly_repeat_each_other_take_few_rounds(strength):
    """Judge: the conditions of a minimum. Coordinate descent alone is stuck after fifty rounds."""
    X, y = planted(150, 4)
    X = np.hstack([X, X[:, :2] + 1e-3 * np.random.default_rng(1).normal(size=(150, 2))])
    ones, target = np.ones(150), np.eye(3)[np.digitize(y, [-1, 1])]
    design = Design("softmax", tables.make(X, tables.moments(X, ones)), target)
    rounds, hessian = [], design.hessian
    design.hessian = lambda *given: rounds.append(given) or hessian(*given)
    penalty = Penalty(np.full((6, 3), strength), np.zeros((6, 3)))
    fit = l1.solve(design, ones / 150, 150.0, penalty, (np.zeros((6, 3)), np.zeros(3)))
    odds = np.exp(design.table.X @ fit.coef + fit.intercept)
    slope = design.table.X.T @ (odds / odds.sum(axis=1, keepdims=True) - target)
    used = fit.coef != 0
    np.testing.assert_allclose(slope[used], -strength * np.sign(fit.coef[used]), atol=1e-5)
    assert (abs(slope[~used]) <= strength + 1e-5).all()
    assert len(rounds) < 12


@pytest.mark.long
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("loss", ["squared", "softmax", "poisson", "gamma"])
def test_the_derivative_lives_on_the_support(loss, mixed):
    """Judge: finite differences of the loss on rows held back, solved anew each time."""
    X, y = planted(60, 5)
    ones = np.ones(60)
    target = {"softmax": np.eye(3)[np.digitize(y, [-1, 1])], "squared": y[:, None] / y.std()}.get(
        loss, np.exp(0.3 * y)[:, None]
    )
    strata = np.zeros(60, int)
    drawn = folds.Draw(np.arange(60), np.random.default_rng(0))
    plan = folds.plan(folds.splits(3, None, strata, drawn), strata, ones, True, drawn)
    group = np.repeat(np.arange(5)[:, None], target.shape[1], axis=1)
    design = Design(loss, tables.make(X, tables.moments(X, ones)), target)
    models = L1Objective(design, ones, plan, group, mixed, 0.5)
    random = np.random.default_rng(1)
    x = 0.3 * random.normal(size=(3, 6 + mixed))
    x[:, 0] += 0.5
    assert (models.solve(x)[:, :-1] != 0).any()
    along = random.normal(size=x.shape)
    slope = np.vdot(models.value_and_gradient(x)[1], along)
    sides = [models.value_and_gradient(x + t * along)[0] for t in (1e-5, -1e-5)]
    assert slope == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        BilevelLasso(max_steps=2, cv=3),
        BilevelElasticNet(max_steps=1, cv=2),
        BilevelPoisson(max_steps=2, cv=3),
        BilevelGamma(max_steps=2, cv=3, norm="l1"),
        BilevelLogisticRegression(max_steps=1, cv=2, norm="l1"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scikit_learn_conventions(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks that cannot run here are skipped with a warning
        check_estimator(model)


@pytest.mark.long
def test_one_strength_is_about_that_of_lassocv_and_many_do_better():
    random = np.random.default_rng(0)
    X = random.normal(size=(3300, 100))
    y = X[:, :5] @ random.choice([-1, 1], 5) + 2 * random.normal(size=3300)
    X, y, T, t = X[:300], y[:300], X[300:], y[300:]
    one = BilevelLasso(penalty="all", random_state=0).fit(X, y)
    each = BilevelLasso(random_state=0).fit(X, y)
    Z, scale = (X - X.mean(axis=0)) / X.std(axis=0), X.std(axis=0)
    peer = LassoCV(cv=5).fit(Z, y)
    error = lambda model: np.mean((t - model.predict(T)) ** 2)
    theirs = np.mean((t - peer.predict((T - X.mean(axis=0)) / scale)) ** 2)
    assert error(one) < 1.02 * theirs
    assert error(each) < 0.97 * theirs
    assert np.count_nonzero(each.coef_) < np.count_nonzero(one.coef_)
    assert each.regularization_[:5].max() < np.median(each.regularization_[5:])
    # The model is Lasso's at the strengths found.
    alpha = each.regularization_ * y.std() / len(y)
    judge = Lasso(alpha=1.0, tol=1e-10).fit(Z / alpha, y)
    np.testing.assert_allclose(each.coef_ * scale, judge.coef_ / alpha, atol=1e-5)


@pytest.mark.long
def test_groups_weights_names_pickle_and_grid():
    X, y = planted()
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(12)])
    blocks = {name: "first" if name in ("f0", "f1") else "rest" for name in frame}
    model = BilevelLasso(penalty=blocks, cv=3, random_state=0).fit(frame, y)
    assert list(model.groups_) == ["first", "rest"]
    assert model.regularization_.shape == (2,)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    pairs = [(np.arange(0, 100), np.arange(100, 150)), (np.arange(50, 150), np.arange(50))]
    twice = [(np.r_[a, a + 150], np.r_[b, b + 150]) for a, b in pairs]
    heavy = BilevelElasticNet(penalty="all", cv=pairs).fit(X, y, np.full(150, 2.0))
    double = BilevelElasticNet(penalty="all", cv=twice).fit(np.vstack([X, X]), np.r_[y, y])
    np.testing.assert_allclose(heavy.coef_, double.coef_, rtol=0.02, atol=1e-3)
    assert 0 < heavy.l1_ratio_ <= 1
    counts = np.random.default_rng(0).poisson(np.exp(0.5 * X[:, 0]))
    grid = GridSearchCV(
        BilevelPoisson(penalty="all", cv=3), {"norm": ["l1", "l2", "elasticnet"]}, cv=2
    )
    assert grid.fit(X, counts).best_score_ > 0
    assert abs(grid.best_estimator_.coef_[0] - 0.5) < 0.2


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BilevelPoisson(), r"y holds -\d.*expected counts of zero or more"),
        (BilevelGamma(), "expected numbers above zero"),
        (BilevelPoisson(norm="l3"), "There is no norm 'l3'"),
        (BilevelLasso(penalty={f"g{k}": "a" for k in range(12)}), "There is no feature 'g0'"),
    ],
)
def test_bad_input(model, words):
    X, y = planted()
    if "norm" in words:
        y = np.abs(y)
    with pytest.raises(ValueError, match=words):
        model.fit(X, y)
    with pytest.raises(ValueError, match="y is zero in every row"):
        BilevelPoisson().fit(X, 0 * y)


def test_columns_of_zeros_and_no_signal():
    X, y = planted(80, 6)
    X[:, 2] = 0
    for model in (BilevelLasso(cv=3, random_state=0), BilevelGamma(norm="l1", cv=3)):
        assert model.fit(X, np.exp(0.2 * y)).coef_[2] == 0
    noise = np.random.default_rng(5).normal(size=80)
    assert abs(BilevelLasso(penalty="all", random_state=0).fit(X, noise).coef_).max() < 0.2
    assert not BilevelLasso(penalty="all", cv=3).fit(0 * X, noise).coef_.any()
