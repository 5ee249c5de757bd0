"""Models of very many coefficients, and weights of every kind."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from untuned.closed_form.losses import LOSSES
from untuned.estimators import (
    BilevelGamma,
    BilevelLasso,
    BilevelLogisticRegression,
    BilevelPoisson,
    BilevelRidge,
)
from untuned.estimators.penalties import objective, penalties, standardisation
from untuned.estimators.penalties.validation import Rows

FEATURES = 1100


def wide(classes, seed=0, rows=80):
    """Rows with more features than eigenvectors are worth, and their classes."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, FEATURES)) * (random.random((rows, FEATURES)) < 0.1)
    y = np.argmax(X[:, :classes] + 0.3 * random.normal(size=(rows, classes)), axis=1)
    table = standardisation.make(X, standardisation.moments(X, np.ones(rows)))
    target = np.eye(classes)[y] if classes > 2 else (2.0 * y - 1)[:, None]
    return Rows("softmax" if classes > 2 else "logistic", table, target, np.ones(rows)), y


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("strength", [0.01, 5.0])
def test_conjugate_gradients_along_exact_steps_find_the_model(classes, strength):
    """Judge: scikit-learn's, solved to the last digits."""
    rows, y = wide(classes)
    coef, intercept = objective.fit(rows, np.full((1, 1, 1), strength))
    judge = LogisticRegression(C=1 / strength, tol=1e-12, max_iter=10_000).fit(rows.table.X, y)
    size = np.abs(judge.coef_).max()
    np.testing.assert_allclose(coef.T, judge.coef_, atol=1e-4 * size)
    gaps = [np.diff(each) if classes > 2 else each for each in (intercept, judge.intercept_)]
    np.testing.assert_allclose(*gaps, atol=1e-3)


@pytest.mark.parametrize("sure", [1.0, 30.0])
def test_rows_that_a_model_is_sure_of_keep_their_digits(sure):
    """In single precision; judge: double precision. Ties and shares of classes as well."""
    random, loss = np.random.default_rng(0), LOSSES["softmax"]
    z = random.normal(size=(2, 4, 50)).astype("f")
    z[:, 0] += sure
    z[0, :, 0] = 0
    hard, soft = np.eye(4)[np.zeros(50, int)].T, random.dirichlet(np.ones(4), 50).T
    for t, digits in ((hard, {"rtol": 1e-4}), (soft, {"atol": 1e-5})):
        wide = z.astype(float)
        p = np.exp(wide - wide.max(axis=1, keepdims=True))
        others = np.delete(np.exp(wide - wide[:, :1]), 0, axis=1).sum(axis=1)
        p /= p.sum(axis=1, keepdims=True)
        value = np.log1p(others) - (t * (wide - wide[:, :1])).sum(axis=1)
        slope = p - t
        slope[:, 0] = 1 - t[0] - others / (1 + others)
        np.testing.assert_allclose(loss.value(z, t.astype("f"), 1), value, **digits)
        np.testing.assert_allclose(loss.slope(z, t.astype("f"), 1), slope, **digits)
        assert loss.slope(z, t.astype("f"), 1).dtype == np.float32
    v = random.normal(size=z.shape)
    bent = p * (v - v[:, :1] - (p * (v - v[:, :1])).sum(axis=1, keepdims=True))
    product = loss.bend(z, 1)(v.astype("f"))
    np.testing.assert_allclose(product, bent, rtol=1e-3, atol=1e-6 * abs(bent).max())


def test_penalties_that_repeat_themselves_take_no_memory():
    """Of classes, of features, or the same for all."""
    three = np.array([1.0, 2.0, 3.0])
    for axis, group in enumerate((np.arange(3)[:, None], np.arange(3))):
        found = penalties.each(three, np.broadcast_to(group, (3, 3)))
        assert found.shape == ((3, 1, 1) if axis == 0 else (1, 1, 3))
    assert penalties.each(np.ones(3), np.zeros((4, 2), int)).shape == (1, 1, 1)


NUMBERS = [
    (BilevelLogisticRegression, lambda z: z > 0),
    (BilevelRidge, lambda z: z),
    (BilevelLasso, lambda z: z),
    (BilevelPoisson, lambda z: np.rint(np.exp(0.5 * z))),
    (BilevelGamma, lambda z: np.exp(0.5 * z)),
]


@pytest.mark.parametrize(("kind", "target"), NUMBERS)
def test_every_second_row_without_a_weight_is_as_good_as_gone(kind, target):
    """Rows are also looked at two by two, and those looked at had none."""
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 6))
    y, kept = target(X[:, 0] + 0.5 * random.normal(size=150)), np.arange(150) % 2 == 1
    all_rows = kind(cv=[(np.r_[:100], np.r_[100:150])], penalty="all", random_state=0)
    half = kind(cv=[(np.r_[:50], np.r_[50:75])], penalty="all", random_state=0)
    all_rows.fit(X, y, sample_weight=kept.astype(float))
    half.fit(X[kept], y[kept])
    np.testing.assert_allclose(all_rows.regularization_, half.regularization_)
    np.testing.assert_allclose(all_rows.coef_, half.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("kind", "target"), NUMBERS)
@pytest.mark.parametrize("unit", [1 / 150, 1e-9])
def test_weights_that_add_up_to_little_say_the_same(kind, target, unit):
    """As those of surveys that add up to one; strengths weigh against their sum."""
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 6))
    y = target(X[:, 0] + 0.5 * random.normal(size=150))
    model, small = (
        kind(penalty="all", cv=3, random_state=0).fit(X, y, sample_weight=np.full(150, each))
        for each in (1.0, unit)
    )
    np.testing.assert_allclose(small.coef_, model.coef_, rtol=1e-6)
    np.testing.assert_allclose(small.regularization_, unit * model.regularization_)
    np.testing.assert_allclose(small.path_.strengths, unit * model.path_.strengths)


FORMATS = ["csr_array", "csc_matrix", "coo_array", "lil_matrix", "dok_array", "bsr_array"]


@pytest.mark.parametrize("name", FORMATS)
def test_any_sparse_format_is_the_same_table(name):
    """With places of eight bytes where the format has them."""
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 8)) * (random.random((120, 8)) < 0.3)
    y = X[:, 0] + 0.1 * random.normal(size=120)
    table = getattr(sparse, name)(X)
    if hasattr(table, "indptr"):
        table.indices, table.indptr = table.indices.astype("q"), table.indptr.astype("q")
    models = [BilevelRidge(penalty="all", random_state=0).fit(each, y) for each in (X, table)]
    np.testing.assert_allclose(models[1].coef_, models[0].coef_, rtol=1e-9)
