"""Paths of one strength, and the small matrices behind squared errors, against scikit-learn."""

import time
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Lasso, LassoCV
from sklearn.model_selection import PredefinedSplit

from untuned.estimators import (
    BilevelElasticNet,
    BilevelLasso,
    BilevelLogisticRegression,
    BilevelPoisson,
)
from untuned.estimators.penalties import folds
from untuned.estimators.penalties import standardisation as tables
from untuned.estimators.penalties.objectives import gram, hessians, lasso_solver, objective
from untuned.estimators.penalties.objectives.lasso_solver import Design, Penalty
from untuned.estimators.penalties.objectives.sparse_objective import SparseModels
from untuned.estimators.penalties.selection import (
    fitting,
    judging,
    one_strength,
    search,
    sparse_search,
    strides,
)
from untuned.estimators.penalties.selection.judging import Rows
from untuned.estimators.penalties.selection.outcome import Limit
from untuned.estimators.penalties.selection.strength_path import HeldBack, walk


def planted(rows=120, features=40, matter=3, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    w = np.zeros(features)
    w[:matter] = [1.5, -1.0, 0.8][:matter]
    return X, X @ w + random.normal(size=rows)


def models(X, y, count=4, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    rows = Rows("squared", tables.make(X, weight), y[:, None], weight)
    strata = np.zeros(len(y), int)
    pairs = folds.splits(count, None, strata, np.random.default_rng(0))
    plan = folds.plan(pairs, strata, weight, many=False)
    group = np.zeros((X.shape[1], 1), int)
    design = Design("squared", rows.table, rows.target)
    return SparseModels(design, weight, plan, group, False, 0.0, 0.0), rows, plan


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_matrices_solve_what_rows_do(kind, monkeypatch):
    """Judge: the solver that looks at rows, which scikit-learn judges in test_sparse_models.py."""
    monkeypatch.setattr(tables, "stays_sparse", sparse.issparse)
    X, y = planted()
    weight = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    made, _, _ = models(sparse.csr_array(X) if kind == "sparse" else X, y, weight=weight)
    assert len(made.grams) == 4
    random = np.random.default_rng(2)
    each = Penalty(random.uniform(2, 20, (40, 1)), np.full((40, 1), 3.0))
    q, q_b = random.normal(size=(40, 1)), np.ones(1)
    for k, of in enumerate(made.grams):
        total, start = made.total[k], (np.zeros((40, 1)), np.zeros(1))
        mean = Penalty(each.l1 / total, each.l2 / total)
        mine = of.solve(mean, start[0])
        judge = lasso_solver.solve(made.design, made.share[k], total, each, start)
        assert 0 < np.count_nonzero(judge.coef) < 40
        np.testing.assert_allclose(mine.coef, judge.coef, atol=1e-7)
        np.testing.assert_allclose(mine.intercept, judge.intercept, atol=1e-7)
        pulled = lasso_solver.pull(made.design, made.share[k], total, each, judge, q, q_b)
        np.testing.assert_allclose(of.pull(mean, mine.coef, q, q_b), pulled, atol=1e-5)


@pytest.mark.parametrize("by_rows", [False, True])
def test_a_path_is_that_of_lassocv(by_rows, monkeypatch):
    if by_rows:
        monkeypatch.setattr(gram, "fits", lambda features, models: False)
    X, y = planted()
    made, rows, plan = models(X, y)
    best, trail = walk(made, HeldBack(rows, plan.valid), np.ones((4, 40, 1)), 1.0, Limit(None))
    fold = plan.valid.argmax(axis=1)
    strengths = np.array(sorted(trail.points, reverse=True))
    judge = LassoCV(alphas=strengths / made.total[0], cv=PredefinedSplit(fold), tol=1e-8)
    judge.fit(rows.table.X, y)
    losses = [trail.points[s][0] for s in strengths]
    np.testing.assert_allclose(2 * np.array(losses), judge.mse_path_.mean(axis=1), rtol=2e-3)
    assert best.strength / made.total[0] == pytest.approx(judge.alpha_, rel=1e-2)


def test_factors_are_those_of_scaled_columns():
    X, y = planted()
    made, rows, plan = models(X, y)
    factor = np.random.default_rng(3).uniform(0.2, 1, (40, 1))
    best, _ = walk(made, HeldBack(rows, plan.valid), np.stack([factor] * 4), 1.0, Limit(None))
    train = plan.train[:, 0]
    Z = rows.table.X[train] / factor[:, 0]
    judge = Lasso(alpha=best.strength / train.sum(), tol=1e-10).fit(Z, y[train])
    np.testing.assert_allclose(best.y[0, :-1, 0], judge.coef_ / factor[:, 0], atol=5e-3)


@pytest.mark.long
def test_strengths_that_fall_with_coefficients_find_the_support():
    """Above LassoCV's F1 on every seed, and no worse on new rows in the mean."""
    F1, losses = [], []
    for seed in range(4):
        X, y = planted(1200, 100, seed=seed)
        new, target, X, y = X[200:], y[200:], X[:200], y[:200]
        ours = BilevelLasso(random_state=0).fit(X, y)
        judge = LassoCV(cv=5).fit(X, y)
        found = [np.flatnonzero(model.coef_) for model in (ours, judge)]
        F1.append([2 * (each < 3).sum() / (len(each) + 3) for each in found])
        losses.append([np.mean((target - model.predict(new)) ** 2) for model in (ours, judge)])
    F1, losses = np.array(F1), np.array(losses)
    assert (F1[:, 0] >= F1[:, 1]).all()
    assert F1[:, 0].mean() > F1[:, 1].mean() + 0.2
    assert losses[:, 0].mean() < losses[:, 1].mean()


@pytest.mark.long
def test_where_all_features_matter_one_strength_is_kept():
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 8))
    y = X.sum(axis=1) + 2 * random.normal(size=200)
    assert len(set(BilevelLasso(random_state=0).fit(X, y).regularization_)) == 1
    labels = y > 0
    model = BilevelLogisticRegression(norm="l1", random_state=0).fit(X, labels)
    assert len(set(model.regularization_)) == 1


def test_strides_end_near_where_gradients_do(monkeypatch):
    """Of many coefficients one strength is found by strides; here few are taken for many."""
    X, y = planted(300, 30)
    made = {}
    monkeypatch.setattr(one_strength, "AROUND", np.zeros(0))  # the path shows strides only
    for most in (1024, 5):
        monkeypatch.setattr(search, "MOST_INVERTED", most)
        made[most] = BilevelLogisticRegression(penalty="all", cv=3, random_state=0).fit(X, y > 0)
    by_gradients, by_strides = (made[most].regularization_[0] for most in (1024, 5))
    assert by_strides == pytest.approx(by_gradients, rel=0.2)
    assert f"{by_strides:g}, at the bottom of" in made[5].result_.message
    assert made[5].n_iter_ == len(made[5].path_.loss) - 1
    hurried = BilevelLogisticRegression(penalty="all", cv=3, max_seconds=1e-6, random_state=0)
    assert len(hurried.fit(X, y > 0).path_.loss) < len(made[5].path_.loss)
    assert hurried.result_.status == "max_seconds"
    noise = np.random.default_rng(5).normal(size=300) > 0
    stronger = BilevelLogisticRegression(penalty="all", cv=3, random_state=0).fit(X, noise)
    assert stronger.regularization_[0] > 100


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        (BilevelLasso, False),
        (BilevelElasticNet, False),
        (partial(BilevelLogisticRegression, norm="l1"), True),
        (partial(BilevelPoisson, norm="l1"), True),
    ],
)
def test_a_limit_ends_paths_too(model, counts):
    """With no time at all the path ends at its beginning, and no further search is begun."""
    X, y = planted(300, 30)
    y = (y > 0).astype(int) if counts else y
    whole, hurried = model(random_state=0, cv=3), model(random_state=0, cv=3, max_seconds=1e-6)
    whole.fit(X, y), hurried.fit(X, y)
    assert len(hurried.path_.loss) <= 8 < len(whole.path_.loss)
    assert hurried.result_.status == "max_seconds"
    assert len(set(hurried.regularization_)) == 1


def test_a_limit_is_kept_on_rows_that_take_long():
    """Where one fit takes longer than the limit, its rounds end; only the last fit is finished."""
    X, y = planted(3000, 400)
    y = (y > 0).astype(int)
    start = time.process_time()
    BilevelLogisticRegression(norm="l1", cv=3, max_seconds=0.2, random_state=0).fit(X, y)
    assert time.process_time() - start < 3


@pytest.mark.parametrize("places", [(0, -1, 1), (2, 0, -0.5, -3), (0, -1, -0.25)])
def test_the_bottom_of_strides_is_that_of_the_parabola(places):
    walk = strides.Walk.__new__(strides.Walk)
    walk.losses = {place: 2 + (place + 0.3) ** 2 for place in places}
    assert walk._lowest() == pytest.approx(-0.3)
    walk.losses = {0: 1.0, -1: 0.5}  # still falling where it ended
    assert walk._lowest() == -1


def test_no_hessian_is_made_that_costs_more_than_it_saves(monkeypatch):
    X, y = planted(150, 140)
    one = partial(BilevelLogisticRegression, penalty="all", cv=3, max_steps=2, random_state=0)
    kept = one().fit(X, y > 0).coef_
    monkeypatch.setattr(objective.Inner, "hessian", None)
    np.testing.assert_array_equal(kept, one().fit(X, y > 0).coef_)
    with pytest.raises(TypeError):
        one().fit(X[:, :20], y > 0)


def test_one_hessian_serves_all_models_where_each_has_many_variables(monkeypatch):
    """The same solution in fewer passes through the rows."""
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 40)) + random.normal(size=(400, 1))  # columns alike by half
    y = np.digitize(3 * X[:, 0] + random.logistic(size=400), [-3, -1, 1, 3])
    shapes, passes = [], []

    def passes_of(models, x, start):
        before = models.passes
        found = fitting.solved(models, x, [start], 1e-6)
        passes.append(models.passes - before)
        return found

    def both(models, x, start, share):
        first = start.pop()
        shapes.append(objective.Inner(models).hessian(x, first).shape)
        shared = passes_of(models, x, first)
        with monkeypatch.context() as without:
            without.setattr(hessians, "MOST_VARIABLES", 0)
            np.testing.assert_allclose(passes_of(models, x, first), shared, rtol=0, atol=1e-5)
        return shared

    monkeypatch.setattr(search, "solved", both)
    BilevelLogisticRegression(cv=3, max_steps=2, random_state=0).fit(X, y)
    assert shapes == [(1, 205, 205)]  # of nine models
    assert 2 * passes[0] < passes[1]


def test_models_for_the_picture_take_no_more_than_half_of_the_search(monkeypatch):
    random = np.random.default_rng(0)
    X = random.standard_t(1.5, size=(400, 6))
    y = np.digitize(X[:, 0] + random.logistic(size=400), [-1, 1])
    before = []

    def noted(models, *rest):
        before.append(models.passes)
        return fitting.solved(models, *rest)

    monkeypatch.setattr(one_strength, "solved", noted)
    BilevelLogisticRegression(penalty="all", random_state=0).fit(X, y)
    assert before
    assert max(before) <= 1.5 * before[0]


def test_the_search_for_many_makes_no_more_hessians_than_the_path(monkeypatch):
    """But for the step in which it comes to that."""
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 12))
    y = np.digitize(X[:, :6].sum(axis=1) + random.logistic(size=150), [-1, 1])
    allowed, of_step, designs = [], [], []
    many, make, look = sparse_search._many, sparse_search.Design, judging.Watch.__call__

    def noted_many(*given):
        allowed.append(given[9])
        return many(*given)

    def noted_look(self, snapshot):
        of_step.append(designs[-1].work)
        return look(self, snapshot)

    monkeypatch.setattr(sparse_search, "_many", noted_many)
    monkeypatch.setattr(sparse_search, "Design", lambda *a: designs.append(make(*a)) or designs[-1])
    monkeypatch.setattr(judging.Watch, "__call__", noted_look)
    monkeypatch.setattr(judging, "PATIENCE", 100)
    BilevelLogisticRegression(norm="l1", random_state=0).fit(X, y)
    assert allowed[0] > 0
    assert len(of_step) > 1
    assert all(work < allowed[0] for work in of_step[:-1])
    assert of_step[-1] >= allowed[0]
