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
from untuned.estimators.penalties import folds, standardisation
from untuned.estimators.penalties.objectives import nonlinear_cg, scaling, stepwise
from untuned.estimators.penalties.objectives.objective import Models, Outer
from untuned.estimators.penalties.selection import fitting
from untuned.estimators.penalties.selection.judging import Rows
from untuned.estimators.penalties.strengths import Bend, Shares

FEATURES = 1100


def wide(classes, seed=0, rows=80):
    """Rows with more features than eigenvectors are worth, and their classes."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, FEATURES)) * (random.random((rows, FEATURES)) < 0.1)
    y = np.argmax(X[:, :classes] + 0.3 * random.normal(size=(rows, classes)), axis=1)
    table = standardisation.make(X, np.ones(rows))
    target = np.eye(classes)[y] if classes > 2 else (2.0 * y - 1)[:, None]
    return Rows("softmax" if classes > 2 else "logistic", table, target, np.ones(rows)), y


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("strength", [0.01, 5.0])
def test_conjugate_gradients_along_exact_steps_find_the_model(classes, strength):
    """Judge: scikit-learn's, solved to the last digits."""
    rows, y = wide(classes)
    group = np.zeros(np.shape(rows.target)[1] * FEATURES, int).reshape(FEATURES, -1)
    scales = lambda: scaling.make(*rows)
    coef, intercept = fitting.fit(rows, scales, np.full(1, strength), group)
    judge = LogisticRegression(C=1 / strength, tol=1e-12, max_iter=10_000).fit(rows.table.X, y)
    size = np.abs(judge.coef_).max()
    np.testing.assert_allclose(coef.T, judge.coef_, atol=1e-4 * size)
    gaps = [np.diff(each) if classes > 2 else each for each in (intercept, judge.intercept_)]
    np.testing.assert_allclose(*gaps, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_all_but_certain_take_no_more_passes(dtype):
    """A word tells each class, and strengths are weak: three times as many passes
    if steps go back and forth along sums of intercepts."""
    random = np.random.default_rng(0)
    y = random.integers(4, size=300)
    X = random.random((300, FEATURES)) < 0.05
    X[np.arange(300), y] = True
    table = standardisation.make(X.astype(float), np.ones(300))
    table = table._replace(X=table.X.astype(dtype), shift=table.shift.astype(dtype))
    rows = Rows("softmax", table, np.eye(4, dtype=dtype)[y], np.ones(300))
    every, strengths = np.ones((300, 1)), np.broadcast_to(np.full((1, 1), 3e-4), (FEATURES, 4))
    weights = (every / 300).astype(dtype)
    none = np.zeros((1, 1), dtype)
    shares = Shares(
        none, np.zeros((FEATURES, 4), int), np.full(1, 300, dtype), Bend(none[0]), 0.0,
        scaling.make(*rows),
    )  # fmt: skip
    models = Models(*rows[:3], weights, weights, shares, none, shares.fixed(strengths))
    first = [fitting.alike(models, none, *fitting.nothing(FEATURES, 4))]
    found = models.model(none, nonlinear_cg.solve(models, none, first, 1e-3))[0][:, 0].T
    assert models.passes < 60
    judge = LogisticRegression(C=1 / 3e-4, tol=1e-12, max_iter=10_000).fit(table.X.astype(float), y)
    assert np.linalg.norm(found - judge.coef_) < 1e-3 * np.linalg.norm(judge.coef_)


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


def test_steps_along_a_direction_end_where_the_slope_does():
    """Of several models at once, from guesses far too short and far too long."""
    curves, best = np.array([1e-3, 1.0, 50.0]), np.array([300.0, 1.0, 1e-4])
    slope_at = lambda t: curves * np.tanh(t / best - 1) * best
    found = nonlinear_cg._best(slope_at, slope_at(np.zeros(3)), np.array([1e-2, 1.0, 1e-2]))
    left = np.abs(slope_at(found)) / np.abs(slope_at(np.zeros(3)))
    assert (left <= nonlinear_cg.NEARLY).all()


@pytest.mark.parametrize("by_class", [False, True])
def test_a_model_behind_f_has_the_slope_of_f(by_class, monkeypatch):
    """Judge: differences of f where the model is solved anew."""
    monkeypatch.setattr(stepwise, "LEFT", 1e-9)
    monkeypatch.setattr(stepwise, "FIRST_LEFT", 1e-9)
    rows, y = wide(3)
    random, weight = np.random.default_rng(1), np.ones(80)
    group = np.broadcast_to(
        np.arange(3) if by_class else np.arange(FEATURES)[:, None] % 7, (FEATURES, 3)
    )
    plan = folds.of_half(folds.plan(folds.splits(0.4, None, y, random), y, weight, many=True))
    models = fitting.make(rows, plan, group, scaling.make(*rows), 1.0, 1.0)
    x = 0.5 * random.normal(size=(1, 2 + group.max()))
    along = random.normal(size=x.shape)

    def solved(x):
        first = [fitting.alike(models, x, *fitting.nothing(*group.shape))]
        return fitting.solved(models, x, first, 1e-9)

    behind = stepwise.Stepwise(models, x, solved(x), fitting.solved)
    behind.value_and_grads(x + 0.3, np.zeros(1))  # there and back again
    value, gradient, _ = behind.value_and_grads(x, np.zeros(1))
    assert value == pytest.approx(Outer(models)(x, solved(x)), rel=1e-6)
    sides = [
        stepwise.Stepwise(models, there, solved(there), fitting.solved)(there, np.zeros(1))
        for there in (x + 1e-3 * along, x - 1e-3 * along)
    ]
    assert np.vdot(gradient, along) == pytest.approx((sides[0] - sides[1]) / 2e-3, rel=1e-4)
    w, b = behind.model()
    assert w.shape == (FEATURES, 1, 3)
    assert b.shape == (1, 3)


def test_strengths_that_repeat_themselves_take_no_memory():
    """Of classes, of features, or the same for all."""
    strengths = np.array([1.0, 2.0, 3.0])
    for axis, group in enumerate((np.arange(3)[:, None], np.arange(3))):
        found = fitting.of_coefficients(strengths, np.broadcast_to(group, (3, 3)))
        assert found.strides[1 - axis] == 0
        np.testing.assert_array_equal(found, np.broadcast_to(strengths[group], (3, 3)))
    assert fitting.of_coefficients(np.ones(3), np.zeros((4, 2), int)).strides == (0, 0)


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
