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
from untuned.estimators.penalties import folds, gram, l1, l1_search, penalties, validation, walk
from untuned.estimators.penalties import standardisation as tables
from untuned.estimators.penalties.l1 import Design, Penalty
from untuned.estimators.penalties.l1_objective import L1Objective
from untuned.estimators.penalties.l1_path import HeldBack
from untuned.estimators.penalties.l1_path import walk as walk_path
from untuned.estimators.penalties.outcome import Limit
from untuned.estimators.penalties.validation import Rows


def planted(rows=120, features=40, matter=3, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    w = np.zeros(features)
    w[:matter] = [1.5, -1.0, 0.8][:matter]
    return X, X @ w + random.normal(size=rows)


def models(X, y, count=4, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    rows = Rows("squared", tables.make(X, tables.moments(X, weight)), y[:, None], weight)
    strata = np.zeros(len(y), int)
    drawn = folds.Draw(np.arange(len(y)), np.random.default_rng(0))
    plan = folds.plan(folds.splits(count, None, strata, drawn), strata, weight, False, drawn)
    group = np.zeros((X.shape[1], 1), int)
    design = Design("squared", rows.table, rows.target)
    return L1Objective(design, weight, plan, group, False, 0.0), rows, plan


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
        judge = l1.solve(made.design, made.share[k], total, each, start)
        assert 0 < np.count_nonzero(judge.coef) < 40
        np.testing.assert_allclose(mine.coef, judge.coef, atol=1e-7)
        np.testing.assert_allclose(mine.intercept, judge.intercept, atol=1e-7)
        pulled = l1.pull(made.design, made.share[k], total, each, judge, q, q_b)
        np.testing.assert_allclose(of.pull(mean, mine.coef, q, q_b), pulled, atol=1e-5)


@pytest.mark.parametrize("by_rows", [False, True])
def test_a_path_is_that_of_lassocv(by_rows, monkeypatch):
    if by_rows:
        monkeypatch.setattr(gram, "fits", lambda features, models: False)
    X, y = planted()
    made, rows, plan = models(X, y)
    best, trail = walk_path(made, HeldBack(rows, plan.valid), np.ones((4, 40, 1)), 1.0, Limit(None))
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
    best, _ = walk_path(made, HeldBack(rows, plan.valid), np.stack([factor] * 4), 1.0, Limit(None))
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


def test_large_models_walk_to_about_the_same_penalty(monkeypatch):
    X, y = planted(300, 30)
    made = {}
    for most in (2**18, 5):
        monkeypatch.setattr("untuned.estimators.penalties.objective.LARGE", most)
        made[most] = BilevelLogisticRegression(penalty="all", cv=3, random_state=0).fit(X, y > 0)
    small, large = (made[most].regularization_[0] for most in (2**18, 5))
    assert large == pytest.approx(small, rel=0.2)
    assert f"{large:g}, at the bottom of" in made[5].result_.message
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
    way = walk.Walk.__new__(walk.Walk)
    way.weight = np.ones(1)
    way.seen = {place: np.array([2 + (place + 0.3) ** 2]) for place in places}
    assert way.lowest() == pytest.approx(-0.3)
    way.seen = {0: np.ones(1), -1: np.full(1, 0.5)}  # still falling where it ended
    assert way.lowest() == -1


def test_penalties_have_limits_per_row():
    bend = penalties.Bend.of_rows(np.full(50, 2.0))
    assert np.exp(bend(np.array([-1e3, 1e3]))[0]) == pytest.approx([1e-5, 1e4])
    assert bend(bend.inverse(3.0))[0] == pytest.approx(3.0)


def test_the_search_for_many_makes_no_more_hessians_than_the_path(monkeypatch):
    """But for the step in which it comes to that."""
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 12))
    y = np.digitize(X[:, :6].sum(axis=1) + random.logistic(size=150), [-1, 1])
    allowed, of_step, designs = [], [], []
    many, make, look = l1_search._many, l1_search.Design, validation.Watch.__call__

    def noted_many(*given):
        allowed.append(given[9])
        return many(*given)

    def noted_look(self, snapshot):
        of_step.append(designs[-1].work)
        return look(self, snapshot)

    monkeypatch.setattr(l1_search, "_many", noted_many)
    monkeypatch.setattr(l1_search, "Design", lambda *a: designs.append(make(*a)) or designs[-1])
    monkeypatch.setattr(validation.Watch, "__call__", noted_look)
    monkeypatch.setattr(validation, "PATIENCE", 100)
    BilevelLogisticRegression(norm="l1", random_state=0).fit(X, y)
    assert allowed[0] > 0
    assert len(of_step) > 1
    assert all(work < allowed[0] for work in of_step[:-1])
    assert of_step[-1] >= allowed[0]
