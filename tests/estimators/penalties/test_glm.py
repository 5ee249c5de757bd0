"""Models with L2 penalties: every preconditioner gives one answer, and that of other solvers."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, r2_score

from untuned.closed_form.losses import LOSSES
from untuned.estimators import BilevelLogisticRegression, BilevelRidge
from untuned.estimators.penalties import curvature, descent, folds, standardisation
from untuned.estimators.penalties.curvature import ByFeatures, ByRows, Diagonal
from untuned.estimators.penalties.glm import EXACT, Glm
from untuned.estimators.penalties.objective import Objective
from untuned.estimators.penalties.outcome import Limit
from untuned.estimators.penalties.validation import Rows

ALL = ["squared", "logistic", "softmax", "poisson", "gamma"]


def problem(loss, shape=(60, 8), dtype=np.float64):
    """Rows with weights of 0.5 to 2."""
    random = np.random.default_rng(0)
    X = random.normal(size=shape)
    z = X[:, :1] + random.normal(size=(len(X), 1))
    target = {
        "squared": np.hstack([z, random.normal(size=z.shape)]),
        "logistic": np.where(z > 0, 1.0, -1.0),
        "softmax": np.eye(3)[np.digitize(z[:, 0], [-1, 1])],
        "poisson": random.poisson(np.exp(z)) / 2,
        "gamma": np.exp(z),
    }[loss]
    weight = random.uniform(0.5, 2.0, len(X))
    table = standardisation.make(X, standardisation.moments(X, weight))
    table = table._replace(X=table.X.astype(dtype), shift=table.shift.astype(dtype))
    return Rows(loss, table, target.astype(dtype), weight)


def solved(rows, s, tol=EXACT["float64"]):
    models = Glm(rows.loss, rows.table, rows.target, rows.weight[:, None], hold=0.0)
    at = models.solve(s, tol)
    return at.w[:, 0], at.b[0]


def gradient(rows, s, w, b):
    """Of the penalized sum of losses, in float64."""
    X, loss = rows.table.dense(slice(None)).astype(float), LOSSES[rows.loss]
    slopes = rows.weight[:, None] * loss.slope(X @ w + b, rows.target.astype(float), 1)
    return X.T @ slopes + s[:, 0] * w, slopes.sum(axis=0)


@pytest.mark.parametrize("shape", [(60, 8), (25, 50)])
@pytest.mark.parametrize("kind", [ByFeatures, ByRows, Diagonal])
@pytest.mark.parametrize("loss", ALL)
def test_every_preconditioner_finds_the_minimum(loss, kind, shape, monkeypatch):
    """Judge: the gradient. Penalties differ between features by a thousand times."""
    if kind is ByRows and loss == "softmax":
        pytest.skip("columns of softmax are one model, which has no matrix over rows")
    monkeypatch.setattr(curvature, "choose", kind)
    rows = problem(loss, shape)
    s = np.geomspace(0.1, 100, shape[1])[:, None, None]
    in_w, in_b = gradient(rows, s, *solved(rows, s))
    assert abs(in_w).max() < 1e-6
    assert abs(in_b).max() < 1e-6


@pytest.mark.parametrize("kind", [ByFeatures, ByRows, Diagonal])
@pytest.mark.parametrize("loss", ALL)
def test_the_gradient_in_penalties(loss, kind, monkeypatch):
    """Judge: differences of f, whose models are solved anew."""
    if kind is ByRows and loss == "softmax":
        pytest.skip("columns of softmax are one model, which has no matrix over rows")
    monkeypatch.setattr(curvature, "choose", kind)
    rows, random = problem(loss, (50, 5)), np.random.default_rng(1)
    columns = rows.target.shape[1]
    # Of classes, so that no fold is without one: its intercept has no minimum.
    strata = rows.target.argmax(axis=1) if loss == "softmax" else np.zeros(50, int)
    drawn = folds.Draw(random.integers(2**60, size=50), random)
    plan = folds.plan(folds.splits(3, None, strata, drawn), strata, rows.weight, True, drawn)
    group = np.arange(5)[:, None] + np.zeros(columns, int)
    f = Objective(rows, plan, group, 0.5)
    monkeypatch.setattr("untuned.estimators.penalties.objective.ADJOINT", 1e-9)
    f.tol = 1e-10
    x = random.normal(size=(3, 6))
    along = random.normal(size=x.shape)
    slope = np.vdot(f.value_and_gradient(x)[1], along)
    sides = [f.value_and_gradient(x + t * along)[0] for t in (1e-4, -1e-4)]
    assert slope == pytest.approx((sides[0] - sides[1]) / 2e-4, rel=1e-4)


def test_models_are_those_of_scikit_learn():
    rows = problem("squared", (60, 8))
    w, b = solved(rows, np.full((1, 1, 1), 3.0))
    judge = Ridge(alpha=3.0).fit(rows.table.X, rows.target, rows.weight)
    np.testing.assert_allclose(w.T, judge.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(b, judge.intercept_, rtol=1e-8)
    rows = problem("softmax", (60, 8))
    w, b = solved(rows, np.full((1, 1, 1), 3.0))
    judge = LogisticRegression(C=1 / 3, tol=1e-10, max_iter=10_000)
    judge.fit(rows.table.X, rows.target.argmax(axis=1), rows.weight)
    np.testing.assert_allclose(w.T, judge.coef_, atol=1e-5)
    np.testing.assert_allclose(b - b.mean(), judge.intercept_ - judge.intercept_.mean(), atol=1e-5)


def test_penalties_that_become_far_weaker_or_stronger():
    """The last models are no start any more."""
    rows = problem("poisson", (40, 60))
    models = Glm(rows.loss, rows.table, rows.target, rows.weight[:, None])
    for s in (1e3, 1e-3, 1e4, 1.0):
        w = models.solve(np.full((1, 1, 1), s), 1e-9).w
        fresh = Glm(rows.loss, rows.table, rows.target, rows.weight[:, None])
        again = fresh.solve(np.full((1, 1, 1), s), 1e-9).w
        np.testing.assert_allclose(w, again, rtol=1e-5, atol=1e-7)


def badly(kind, rows=80):
    """Columns that lose digits where they are not centred and scaled first."""
    random = np.random.default_rng(3)
    X = random.normal(size=(rows, 6))
    y = X[:, 0] - X[:, 1] + 0.5 * random.normal(size=rows)
    if kind == "far":
        X = 2000 + 6 * X
    if kind == "scales":
        X = X * np.geomspace(1e-6, 1e6, 6)
    if kind == "alike":
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    return X, y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["far", "scales", "alike"])
@pytest.mark.parametrize("made_sparse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_no_digits_are_lost(kind, dtype, made_sparse, counts, monkeypatch):
    """Judge: the plain form in float64, centred, on the very numbers that X holds."""
    if made_sparse:
        monkeypatch.setattr(standardisation, "stays_sparse", sparse.issparse)
        monkeypatch.setattr(standardisation, "SMALL", 0)  # in single precision, as if it were large
    X, y = badly(kind)
    X = X.astype(dtype)
    y = (y > 0).astype(int) if counts else y
    kind_of = BilevelLogisticRegression if counts else BilevelRidge
    pairs = [(np.arange(40), np.arange(40, 80)), (np.arange(40, 80), np.arange(40))]
    model = kind_of(penalty="all", cv=pairs).fit(sparse.csr_array(X) if made_sparse else X, y)
    Z = X.astype(float)
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    s = model.regularization_[0]
    if counts:
        judge = LogisticRegression(C=1 / s, tol=1e-12, max_iter=10**4).fit(Z, y)
        outputs = judge.decision_function(Z)
    else:
        outputs = Ridge(alpha=s, solver="svd").fit(Z, y).predict(Z)
    coef = np.ravel(model.coef_).astype(float)
    ours = (X.astype(float) - X.astype(float).mean(axis=0)) @ coef
    tolerance = 1e-3 if made_sparse or dtype == np.float32 else 1e-5
    shift = outputs.mean() if not counts else judge.intercept_[0]
    np.testing.assert_allclose(ours, outputs - shift, atol=tolerance * abs(outputs).max())


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("threshold", ["own", "variables", "side", "each", "pairs", "diagonal"])
def test_one_loss_has_one_answer(threshold, classes, monkeypatch):
    """Whatever constant chooses how models are solved, penalties and models are the same."""
    random = np.random.default_rng(2)
    X = random.normal(size=(200, 40))
    z = X[:, :2] @ [2.0, -2.0] + random.logistic(size=200)
    kind = BilevelRidge if classes == 1 else BilevelLogisticRegression
    y = z if classes == 1 else np.digitize(z, [-1, 1][: classes - 1])
    cv = [(np.arange(100), np.arange(100, 200)), (np.arange(100, 200), np.arange(100))]
    model = kind(penalty="all", cv=cv, random_state=0).fit(X, y)
    if threshold == "diagonal":
        monkeypatch.setattr(curvature, "choose", Diagonal)
        monkeypatch.setattr("untuned.estimators.penalties.glm.ROUGH", 1e-5)
    else:
        names = {
            "own": "MOST_OWN", "variables": "MOST_VARIABLES", "side": "MOST_SIDE",
            "each": "MOST_EACH", "pairs": "MOST_PAIRS",
        }  # fmt: skip
        monkeypatch.setattr(curvature, names[threshold], 1)
    other = kind(penalty="all", cv=cv, random_state=0).fit(X, y)
    np.testing.assert_allclose(other.regularization_, model.regularization_, rtol=0.12)
    side = "predict" if classes == 1 else "decision_function"
    ours, theirs = getattr(model, side)(X), getattr(other, side)(X)
    np.testing.assert_allclose(theirs, ours, atol=0.03 * abs(ours).max())


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "name", "few", "rows"),
    [
        ("folds", "FEW_ROWS", 1400, 1500), ("leave_one_out", "MOST_DIRECTIONS", 90, 320),
        ("standardisation", "SMALL", 20_000, 320), ("folds", "MANY_ROWS", 300, 320),
        ("curvature", "MOST_SIDE", 90, 320), ("curvature", "MOST_OWN", 10_000, 320),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [BilevelRidge, BilevelLogisticRegression])
def test_scores_do_not_fall_where_a_threshold_is_passed(module, name, few, rows, kind, monkeypatch):
    """Few of many features matter. Just above each constant the score is about that below it."""
    random = np.random.default_rng(0)
    X = random.normal(size=(rows + 1000, 100))
    z = X[:, :5] @ np.ones(5) + random.logistic(size=len(X))
    y = z if kind is BilevelRidge else (z > 0).astype(int)
    train, test = slice(0, rows), slice(rows, None)
    sides = []
    for passed in (False, True):
        with monkeypatch.context() as patch:
            if passed:
                patch.setattr(f"untuned.estimators.penalties.{module}.{name}", few)
                if name == "MANY_ROWS":
                    patch.setattr(folds, "ROWS_PER_FEATURE", 3)
            model = kind(random_state=0).fit(X[train], y[train])
        if kind is BilevelRidge:
            sides.append(r2_score(X[test, :5].sum(axis=1), model.predict(X[test])))
        else:
            sides.append(-log_loss(y[test], model.predict_proba(X[test])))
    assert sides[1] > sides[0] - 0.03


@pytest.mark.long
@pytest.mark.parametrize("rows", [980, 1050])
def test_no_cliff_where_leaving_out_each_row_ends(rows):
    """2,000 features of which 30 matter: it was .990 with 980 rows and .506 with 1,050."""
    random = np.random.default_rng(0)
    X, w = random.normal(size=(rows + 500, 2000)), np.zeros(2000)
    w[:30] = random.normal(size=30)
    y = X @ w
    y = y + 0.1 * y.std() * random.normal(size=len(y))
    model = BilevelRidge(random_state=0).fit(X[:rows], y[:rows])
    assert model.score(X[rows:], y[rows:]) > 0.95


def test_no_step_multiplies_a_penalty_by_more_than_ten():
    """From a pair of gradients alone L-BFGS leaps: 17 in one step on 800 rows of 1,000 features."""
    seen = [np.zeros((1, 3))]
    descent.minimize(
        lambda x: (50 * float(np.logaddexp(0, -x / 50).sum()), -1 / (1 + np.exp(x / 50))), seen[0],
        max_steps=20, limit=Limit(None), tol=1e-6, progress=False,
        callback=lambda step: seen.append(step.x),
    )  # fmt: skip
    moved = np.abs(np.diff(np.stack(seen), axis=0)).max(axis=(1, 2))
    assert moved.max() < 1.01 * np.log(10)
