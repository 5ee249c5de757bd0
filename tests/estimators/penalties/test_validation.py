"""Who judges strengths: every row, none of them more than its share."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from untuned.closed_form.losses import bounded, bounded_slope
from untuned.estimators import BilevelLogisticRegression, BilevelRidge
from untuned.estimators.penalties import folds, leave_one_out, search, validation
from untuned.estimators.penalties import standardisation as tables
from untuned.estimators.penalties.validation import Watch


def table_of(rows, features, columns=1, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features)) @ random.normal(size=(features, features))
    target = X[:, :1] + random.normal(size=(rows, columns))
    weight = random.integers(0, 4, rows).astype(float)
    table = tables.make(X, tables.moments(X, weight))
    target -= weight @ target / weight.sum()
    return table, target, weight


@pytest.mark.parametrize("shape", [(25, 4), (12, 30)])
def test_leaving_out_each_row_is_what_refitting_says(shape):
    """Judge: scikit-learn's Ridge fitted anew without each row, with weights."""
    table, target, weight = table_of(*shape, columns=2)
    curve = leave_one_out.Curve(table, target, weight)
    value = curve.losses(np.array([1.0, 3.0]))[0][1]
    total = 0.0
    for row in np.flatnonzero(weight):
        others = np.arange(len(weight)) != row
        model = Ridge(alpha=3.0).fit(table.X[others], target[others], weight[others])
        missed = model.predict(table.X[row : row + 1]) - target[row]
        total += weight[row] * (missed**2).sum()
    assert value == pytest.approx(total / (2 * weight.sum()), rel=1e-8)
    coef = Ridge(alpha=3.0).fit(table.X, target, weight).coef_.T
    np.testing.assert_allclose(
        curve.coefficients(np.array([3.0]))[:, :, 0], coef, rtol=1e-8, atol=1e-10
    )


def test_one_strength_of_ridge_is_that_of_a_fine_grid():
    """Judge: RidgeCV, which leaves out each row too, on six hundred strengths."""
    random = np.random.default_rng(0)
    X = random.standard_t(2, size=(300, 6))
    y = np.clip(X[:, 0], -3, 3) + random.normal(size=300)
    model = BilevelRidge(penalty="all").fit(X, y)
    grid = np.geomspace(1e-3, 1e5, 601)
    judge = RidgeCV(grid).fit((X - X.mean(axis=0)) / X.std(axis=0), y)
    assert model.regularization_[0] == pytest.approx(judge.alpha_, rel=0.1)
    assert model.result_.status == "converged"
    assert f"{model.regularization_[0]:g}, in closed form" in model.result_.message
    coef = Ridge(alpha=model.regularization_[0]).fit(X / X.std(axis=0), y).coef_
    np.testing.assert_allclose(model.coef_, coef / X.std(axis=0), rtol=1e-9)


def test_weights_of_zero_and_a_sample_of_rows_leave_the_model_that_of_all(monkeypatch):
    """The model of the rows that were searched with is that of all rows only if they are all."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 6))
    y, weight = X[:, 0] + random.normal(size=300), np.r_[np.zeros(50), np.ones(250)]
    whole = BilevelRidge(penalty="all", random_state=0)
    np.testing.assert_allclose(
        whole.fit(X, y, weight).coef_, whole.fit(X[50:], y[50:]).coef_, rtol=1e-9
    )
    monkeypatch.setattr(folds, "MANY_ROWS", 100)
    part = BilevelRidge(penalty="all", random_state=0).fit(X, y)
    scale = X.std(axis=0)
    judge = Ridge(alpha=part.regularization_[0]).fit(X / scale, y)
    np.testing.assert_allclose(part.coef_, judge.coef_ / scale, rtol=1e-6)


def test_the_loss_of_one_row_is_bounded():
    """Judge: scikit-learn's log_loss, which no row can make infinite either."""
    losses = np.array([0.1, 5.0, 30.0, 700.0])
    for loss in (0.1, 700.0):
        p = np.exp(-loss)
        judge = log_loss([1], [[1 - p, p]], labels=[0, 1])
        assert bounded(np.array([loss]))[0] == pytest.approx(judge, rel=1e-6)
    slopes = (bounded(losses + 1e-6) - bounded(losses - 1e-6)) / 2e-6
    np.testing.assert_allclose(bounded_slope(losses), slopes, atol=1e-7)


@pytest.mark.long
def test_rows_far_out_do_not_choose_the_strength():
    """Heavy tails, and classes by thresholds: a few rows far out are sure to be judged wrong.

    Judge: scikit-learn's model with a weak penalty, which is best here.
    """
    random, other = np.random.default_rng(2), np.random.default_rng(1002)
    X = random.standard_t(1.2, size=(26_000, 9)) @ (0.4 * other.normal(size=(9, 9)) + np.eye(9))
    Z = X / np.median(abs(X), axis=0)
    y = np.where(Z[:, 0] + 0.3 * Z[:, 1] > 1.2, 1, 0)
    y[Z[:, 2] - Z[:, 3] > 2] = 2
    y[Z[:, 4] > np.quantile(Z[:, 4], 0.997)] = 3
    odd = random.random(len(y)) < 0.005
    y[odd] = random.integers(0, 4, odd.sum())
    train, test = slice(None, 6000), slice(6000, None)
    scaler = StandardScaler().fit(X[train])
    judge = LogisticRegression(C=100, max_iter=1000).fit(scaler.transform(X[train]), y[train])
    free = log_loss(y[test], judge.predict_proba(scaler.transform(X[test])))
    model = BilevelLogisticRegression(penalty="all", random_state=0).fit(X[train], y[train])
    assert log_loss(y[test], model.predict_proba(X[test])) < 1.1 * free


def test_of_many_rows_all_judge_in_the_end(monkeypatch):
    """Rows that had no part in finding many strengths have the last word."""
    strata = np.arange(200) % 2
    weight = np.ones(200)
    random = np.random.default_rng(0)
    drawn = folds.Draw(random.integers(2**60, size=200), random)
    pairs = folds.splits(None, None, strata, drawn)
    assert len(pairs) == 5
    many = folds.plan(folds.splits(0.2, None, strata, drawn), strata, weight, True, drawn)
    check = folds.elsewhere(pairs, strata, weight, many, drawn)
    assert check.judge.sum() == 160
    assert not (check.judge & check.train).any()
    assert not (check.judge.any(axis=1) & (many.valid | many.judge).any(axis=1)).any()
    # And so a search that is told nothing but lies ends with one strength.
    monkeypatch.setattr(folds, "FEW_ROWS", 100)
    X = random.normal(size=(600, 60))
    y = (X[:, 0] + X[:, 1] + random.logistic(size=600) > 0).astype(int)
    fitted = BilevelLogisticRegression(random_state=0).fit(X, y).regularization_
    assert fitted.max() > fitted.min()
    monkeypatch.setattr(search, "_holds", lambda *_: False)
    assert np.ptp(BilevelLogisticRegression(random_state=0).fit(X, y).regularization_) == 0


def ended_after(judged, outer):
    """Steps that a run of two vectors makes with these mean losses, from the start on."""
    losses, noise = iter(judged), 10 * np.r_[np.ones(25), -np.ones(25)]  # none is far worse
    x = np.zeros((2, 3))
    watch = Watch(lambda x: next(losses) + noise, np.ones(50), x, lambda x: None)
    for step, value in enumerate(outer, 1):
        if watch(SimpleNamespace(x=x, step=step, record={"outer": 2 * value})):
            return step, watch.best.step
    return None


def test_a_search_ends_where_judges_lose_what_f_gains():
    """Two steps in a row; one alone may have gone too far, and a loss below the gain is progress.

    The first step stays where it is.
    """
    falls = 1 - 0.1 * np.arange(9)
    start = [1.0, 1.0]
    assert ended_after([*start, 1.2, 1.4, 9, 9], falls) == (3, 0)
    assert ended_after([*start, 1.2, 0.9, 1.1, 1.2], falls) == (5, 3)
    assert ended_after([*start, 1.05, 1.1, 1.2, 1.3, 9], falls) == (5, 0)  # PATIENCE
    assert ended_after([*start, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4], falls[:7]) is None


def test_what_is_far_worse():
    """By more than chance, and by more than the standard error of the best loss."""
    random = np.random.default_rng(0)
    best, weight = random.exponential(size=400), np.ones(400)  # an error of the mean of 0.05
    assert not validation.is_far_worse(best, best, weight)
    assert not validation.is_far_worse(best + 0.01, best, weight)  # sure, but small
    assert validation.is_far_worse(best + 0.1, best, weight)
    assert not validation.is_far_worse(best - 0.1, best, weight)
    noise = 5 * random.normal(size=400)
    assert not validation.is_far_worse(best + 0.1 + noise - noise.mean(), best, weight)


def test_a_gain_may_be_asked_to_be_one_standard_error():
    gains, ones = np.array([1.0, -0.5] * 8), np.ones(16)  # 4, with an error of 3
    assert validation.is_more_than_chance(gains, ones, 1.0)
    assert not validation.is_more_than_chance(gains, ones)


def test_rows_alike():
    """Rows with the same roles, however many roles there are."""
    roles = np.random.default_rng(0).random((300, 3)) < 0.5
    roles = np.hstack([roles, np.zeros((300, 20), bool), ~roles])
    for given in (roles, np.asfortranarray(roles), roles[:, :1]):
        first, kind = folds.alike(given)
        assert len(first) == len(np.unique(given, axis=0))
        np.testing.assert_array_equal(given[first][kind], given)
