"""Sparse rows stay sparse: memory in multiples of X's own, and absolute penalties on more rows."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

from untuned.estimators import BilevelLasso, BilevelLogisticRegression, BilevelRidge
from untuned.estimators.penalties import folds, standardisation, validation
from untuned.estimators.penalties.l1_search import Stage


def drawn(rows):
    random = np.random.default_rng(0)
    return folds.Draw(random.integers(2**60, size=rows), random)


def words(rows=5500, features=20_000, classes=4, seed=0):
    """Rows of sixty words, of which each class has some of its own."""
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=rows)
    own = random.integers(200, size=(rows, 10)) + 200 * y[:, None]
    columns = np.hstack([own, random.integers(200 * classes, features, size=(rows, 50))])
    place = np.repeat(np.arange(rows), 60), columns.ravel()
    X = sparse.coo_matrix((np.ones(columns.size), place), shape=(rows, features)).tocsr()
    return X, y


@pytest.mark.long
@pytest.mark.parametrize(("penalty", "most"), [("all", 3), ("feature", 4)])
def test_memory_of_a_sparse_fit(penalty, most):
    """Of which coefficients are the most; dense, X alone would take more than 200 times its own."""
    X, y = words()
    BilevelLogisticRegression(penalty="all", max_steps=1, cv=2).fit(X[:200, :50], y[:200])
    tracemalloc.start()
    try:
        model = BilevelLogisticRegression(penalty=penalty, max_steps=2, random_state=0).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    own = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    assert peak < most * own
    assert model.score(X, y) > 0.9


def test_many_strengths_of_wide_rows_are_searched_with_one_model(monkeypatch):
    """Rows held back choose and judge by halves, and the others are asked whether that holds."""
    X, y = words(rows=300, features=500, classes=2)
    pairs = folds.splits(0.2, X, y, drawn(300))
    plan = folds.of_half(folds.plan(pairs, y, np.ones(300), True, drawn(300)))
    assert plan.train.shape == plan.valid.shape == plan.judge.shape == (300, 1)
    assert ((plan.train ^ plan.valid ^ plan.judge) & ~(plan.valid & plan.judge)).all()
    assert abs(int(plan.valid.sum()) - int(plan.judge.sum())) <= 2
    monkeypatch.setattr(folds, "FEW_ROWS", 200)
    monkeypatch.setattr(folds, "WIDE", 50)
    model = BilevelLogisticRegression(penalty="feature", random_state=0)
    plain = validation.Rows("logistic", None, None, np.ones(300))
    plans = model._plans(plain, X, None, y, drawn(300), True)
    assert plans.many.train.shape[1] == 1
    assert not (plans.check.judge.any(axis=1) & (plans.many.valid | plans.many.judge)[:, 0]).any()


def test_few_words_that_matter_are_told_from_the_others():
    """One model makes enough steps for it; of nine at once there was time for one step."""
    random = np.random.default_rng(1)
    rows, features, matter = 2500, 1500, 10
    often = sparse.random_array((rows + 3000, matter), density=0.3, rng=random)
    rare = sparse.random_array((rows + 3000, features - matter), density=0.03, rng=random)
    X = sparse.csr_array(sparse.hstack([often, rare]))
    z = X[:, :matter] @ (4 * np.sign(random.normal(size=matter)))
    y = z + random.logistic(size=rows + 3000) > 0
    losses = []
    for penalty in ("all", "feature"):
        model = BilevelLogisticRegression(penalty=penalty, random_state=0).fit(X[:rows], y[:rows])
        losses.append(log_loss(y[rows:], model.predict_proba(X[rows:])))
    assert losses[1] < losses[0] - 0.01
    assert model.regularization_[:matter].mean() < 0.5 * model.regularization_[matter:].mean()


def test_absolute_strengths_stay_what_they_are_per_row():
    strengths, share = Stage(np.array([1.0, 10.0]), 1.0, trained=50.0).of_rows(100.0)
    assert strengths.tolist() == [2, 20]
    assert share == 1
    # Of a mixture the squared part stays as it is.
    strengths, share = Stage(np.array([10.0]), 0.25, trained=100.0).of_rows(300.0)
    assert strengths.tolist() == [15]
    assert share * 15 == pytest.approx(7.5)
    assert (1 - share) * 15 == pytest.approx(7.5)


@pytest.mark.long
def test_the_strength_of_all_rows_is_more_than_that_of_the_folds():
    """Of two folds, with half of the rows each, twice as much: the same for each row."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 20))
    model = BilevelLasso(penalty="all", cv=2, random_state=0).fit(
        X, X[:, 0] + random.normal(size=200)
    )
    found = model.path_.found
    assert found[-1, 0] / found[-2, 0] == pytest.approx(2, rel=0.05)


def test_units_that_came_with_a_sparse_table_stay_where_they_predict_better(monkeypatch):
    """Judge: scikit-learn with one penalty in those units; noise is small there, as rare words."""
    monkeypatch.setattr(folds, "WIDE", 5)
    monkeypatch.setattr(standardisation, "stays_sparse", sparse.issparse)
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 40))
    y = X[:, :3].sum(axis=1) + random.logistic(size=300) > 0
    for noise, together in ((0.05, True), (20.0, False)):
        given = X * np.where(np.arange(40) < 3, 1.0, noise)
        model = BilevelLogisticRegression(penalty="all", random_state=0)
        model.fit(sparse.csr_array(given), y)
        scale = given.std(axis=0)
        if together:
            scale = np.full(40, np.mean(scale**2) ** 0.5)
        judge = LogisticRegression(C=1 / model.regularization_[0], tol=1e-10, max_iter=10**4)
        judge.fit(given / scale, y)
        np.testing.assert_allclose(model.coef_, judge.coef_ / scale, atol=1e-3)
        # Leaving out each row, in closed form, does not take rows part by part.
        ridge = BilevelRidge(penalty="all", random_state=0).fit(sparse.csr_array(given), y)
        squares = Ridge(alpha=ridge.regularization_[0]).fit(given / scale, y)
        np.testing.assert_allclose(ridge.coef_, squares.coef_ / scale, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("together", [False, True])
def test_rows_that_are_divided_later_are_the_same(together, monkeypatch):
    monkeypatch.setattr(standardisation, "stays_sparse", sparse.issparse)
    random = np.random.default_rng(0)
    X = sparse.random_array((50, 8), density=0.4, rng=random, format="csr")
    weight = random.uniform(size=50)
    moments = standardisation.moments(X, weight)
    now, later = (standardisation.make(X, moments, together, flag) for flag in (False, True))
    assert later.X is X
    for part in (slice(None), np.arange(0, 50, 3)):
        np.testing.assert_array_equal(later.rows(part).X.toarray(), now.rows(part).X.toarray())
        np.testing.assert_array_equal(later.rows(part).shift, now.shift)


def test_places_out_of_order_stay_as_they_are(monkeypatch):
    """SciPy sorts places as it goes, and those of the user's X are shared where they are sorted."""
    monkeypatch.setattr(folds, "WIDE", 5)
    monkeypatch.setattr(standardisation, "stays_sparse", sparse.issparse)
    random = np.random.default_rng(0)
    X = sparse.random_array((300, 40), density=0.3, rng=random, format="csr")
    y = X.toarray()[:, :3].sum(axis=1) + 0.3 * random.logistic(size=300) > 0.5
    turned = X.copy()
    for a, b in zip(X.indptr, X.indptr[1:], strict=False):
        turned.indices[a:b], turned.data[a:b] = X.indices[a:b][::-1], X.data[a:b][::-1]
    turned.has_sorted_indices = False
    before = turned.indices.copy(), turned.data.copy()
    models = [
        BilevelLogisticRegression(penalty="all", random_state=0).fit(each, y)
        for each in (X, turned)
    ]
    np.testing.assert_array_equal(turned.indices, before[0])
    np.testing.assert_array_equal(turned.data, before[1])
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-6)
