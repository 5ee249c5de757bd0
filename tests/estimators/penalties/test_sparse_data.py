"""Sparse rows stay sparse: memory in multiples of X's own, and absolute penalties on more rows."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

from untuned.estimators import BilevelLasso, BilevelLogisticRegression, BilevelRidge
from untuned.estimators.penalties import folds, standardisation, strengths
from untuned.estimators.penalties.objectives import scaling
from untuned.estimators.penalties.objectives.objective import Inner, Outer
from untuned.estimators.penalties.selection import fitting, judging
from untuned.estimators.penalties.selection.judging import Rows
from untuned.estimators.penalties.selection.sparse_search import Stage


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
    pairs = folds.splits(0.2, X, y, np.random.default_rng(0))
    plan = folds.of_half(folds.plan(pairs, y, np.ones(300), many=True))
    assert plan.train.shape == plan.valid.shape == plan.judge.shape == (300, 1)
    assert ((plan.train ^ plan.valid ^ plan.judge) & ~(plan.valid & plan.judge)).all()
    assert abs(int(plan.valid.sum()) - int(plan.judge.sum())) <= 2
    monkeypatch.setattr(folds, "FEW_ROWS", 200)
    monkeypatch.setattr(folds, "WIDE", 50)
    model = BilevelLogisticRegression(penalty="feature", random_state=0)
    plans = model._plans(
        judging.Rows("logistic", None, None, np.ones(300)), X, y, np.random.default_rng(0), True,
        False,
    )  # fmt: skip
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


def test_a_gain_may_be_asked_to_be_one_standard_error():
    gains, ones = np.array([1.0, -0.5] * 8), np.ones(16)  # 4, with an error of 3
    assert judging.is_more_than_chance(gains, ones, 1.0)
    assert not judging.is_more_than_chance(gains, ones)


def test_units_that_came_with_a_sparse_table_stay_where_they_predict_better(monkeypatch):
    """Judge: scikit-learn with one penalty in those units; noise is small there, as rare words."""
    monkeypatch.setattr(scaling, "MOST_TURNED", 5)
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
    now, later = (standardisation.make(X, weight, together, later=flag) for flag in (False, True))
    assert later.X is X
    for part in (slice(None), np.arange(0, 50, 3)):
        np.testing.assert_array_equal(later.rows(part).X.toarray(), now.rows(part).X.toarray())
        np.testing.assert_array_equal(later.rows(part).shift, now.shift)
    monkeypatch.setattr(scaling, "MOST_TURNED", 2)
    target = np.sign(random.normal(size=(50, 1)))
    scales = [scaling.make("logistic", table, target, weight) for table in (now, later)]
    np.testing.assert_allclose(scales[0].spread, scales[1].spread, rtol=1e-12)


def test_places_out_of_order_stay_as_they_are(monkeypatch):
    """SciPy sorts places as it goes, and those of the user's X are shared where they are sorted."""
    monkeypatch.setattr(scaling, "MOST_TURNED", 5)
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


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("free", [0.0, 1.0])
def test_features_gone_through_in_blocks_have_the_same_derivatives(by_column, free, monkeypatch):
    """Judges: all features at once, and differences of gradients in the strengths."""
    X, y = words(rows=60, features=1100, classes=3)
    random, weight, strata = np.random.default_rng(0), np.ones(60), np.zeros(60, int)
    monkeypatch.setattr(standardisation, "SMALL", 0)  # so that X stays sparse
    table = standardisation.make(X, weight)
    table = table._replace(X=table.X.astype(float), shift=table.shift.astype(float))
    rows = Rows("softmax", table, np.eye(3)[y], weight)
    group = np.broadcast_to(np.arange(3) if by_column else np.arange(1100)[:, None], (1100, 3))
    plan = folds.plan(folds.splits(3, None, strata, random), strata, weight, many=True)
    models = fitting.make(rows, plan, group, scaling.make(*rows), free, 1.0)
    inner, outer = Inner(models), Outer(models)
    x = random.normal(size=(3, 2 + group.max()))
    w = 0.1 * random.normal(size=(plan.train.shape[1], 1101, 3))
    v, along = random.normal(size=w.shape), random.normal(size=x.shape)
    found = []
    for block in (2**12, 256):
        for module in (scaling, strengths):
            monkeypatch.setattr(module, "BLOCK", block)
        models._last = None
        cross = inner.products(x, w)(v, "both")[0]
        found.append([cross, inner.value_and_grads(x, w)[1], outer.value_and_grads(x, w)[1]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9 * abs(one).max())
    sides = [np.vdot(inner.grad_y(x + t * along, w), v) for t in (1e-4, -1e-4)]
    assert np.vdot(found[1][0], along) == pytest.approx((sides[0] - sides[1]) / 2e-4, rel=1e-5)
    # And no number is widened, which would double all memory.
    narrow = Rows("softmax", standardisation.make(X, weight), np.eye(3, dtype="f")[y], weight)
    outer = Outer(fitting.make(narrow, plan, group, scaling.make(*narrow), free, 1.0))
    _, in_x, in_w = outer.value_and_grads(x.astype("f"), w.astype("f"))
    assert in_x.dtype == in_w.dtype == np.float32
