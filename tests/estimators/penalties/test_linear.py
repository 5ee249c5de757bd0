"""Linear models that find their own penalty strengths, against scikit-learn and closed forms."""

import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from untuned.estimators import (
    BilevelGamma,
    BilevelLasso,
    BilevelLogisticRegression,
    BilevelPoisson,
    BilevelRidge,
)
from untuned.estimators.penalties import folds, search
from untuned.estimators.penalties import standardisation as tables


def rows(count=120, features=6, classes=2, seed=0):
    """The first feature decides, the others are noise; units differ."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, features))
    edges = np.linspace(-0.5, 0.5, classes - 1) if classes > 2 else [0.0]
    y = np.digitize(2 * X[:, 0] + random.logistic(size=count), edges)
    return X * 10.0 ** np.arange(-1, features - 1) + 5, y


def small(**parameters):
    return BilevelLogisticRegression(**{"cv": 3, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    return small().fit(X, y)


@pytest.mark.parametrize("model", [BilevelLogisticRegression, BilevelRidge])
@pytest.mark.long
def test_scikit_learn_conventions(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks that cannot run here are skipped with a warning
        check_estimator(model(max_steps=5, cv=3))


@pytest.mark.parametrize(("classes", "sampled"), [(2, None), (3, None), (2, 100)])
def test_coefficients_are_those_of_scikit_learn_at_the_strengths_found(
    classes, sampled, monkeypatch
):
    X, y = rows(classes=classes)
    searched = []
    if sampled:  # the strengths are those of a sample, the model is that of all rows
        monkeypatch.setattr(folds, "MANY_ROWS", sampled)
    search_all = search.search
    monkeypatch.setattr(
        search, "search", lambda *a: [searched.append(len(a[0].weight)), search_all(*a)][1]
    )
    model = small(max_steps=6, cv=None if sampled else 3).fit(X, y)
    assert searched == [sampled or len(y)]
    scaler = StandardScaler().fit(X)
    # A penalty s w^2 is that of C = 1 for a feature divided by sqrt(s).
    stretch = model.regularization_**-0.5
    judge = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000)
    judge.fit(scaler.transform(X) * stretch, y)
    coef = judge.coef_ * stretch / scaler.scale_
    np.testing.assert_allclose(model.coef_, coef, rtol=2e-4, atol=1e-6 * abs(coef).max())
    np.testing.assert_allclose(
        model.predict_proba(X), judge.predict_proba(scaler.transform(X) * stretch), atol=1e-4
    )


def test_one_strength_per_class_is_that_of_a_hand_made_optimum():
    X, y = rows(classes=3)
    model = small(penalty="class", max_steps=6).fit(X, y)
    assert model.regularization_.shape == (3,)
    assert list(model.groups_) == [0, 1, 2]
    z = StandardScaler().fit_transform(X)
    coef = model.coef_ * X.std(axis=0)
    probabilities = model.predict_proba(X)
    # Where the gradient of the penalized loss is zero: sum (p - t) x + s w = 0.
    gradient = (probabilities - np.eye(3)[y]).T @ z + model.regularization_[:, None] * coef
    assert abs(gradient).max() < 1e-6
    assert abs((probabilities - np.eye(3)[y]).sum(axis=0)).max() < 1e-6


def test_ridge_is_the_closed_form_at_the_strengths_found():
    X, y = rows(classes=2)
    target = X[:, 0] * 3 + y
    model = BilevelRidge(cv=3, random_state=0, max_steps=6).fit(X, target)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    normal = z.T @ z + np.diag(model.regularization_)
    coef = np.linalg.solve(normal, z.T @ (target - target.mean())) / X.std(axis=0)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-6, atol=1e-9)
    judge = Ridge(alpha=1.0).fit(z * model.regularization_**-0.5, target)
    np.testing.assert_allclose(
        model.predict(X), judge.predict(z * model.regularization_**-0.5), rtol=1e-7
    )


def test_one_strength_is_where_the_closed_form_validates_best():
    """Judge: the error of ridge solutions over the same folds, on a fine grid."""
    X, _ = rows(features=6, seed=3)
    random = np.random.default_rng(1)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    target = z @ np.array([1, 0.5, 0.2, 0, 0, 0]) + 3 * random.normal(size=len(z))
    cv = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = BilevelRidge(penalty="all", cv=cv).fit(X, target)

    def error(s):
        total = 0.0
        for train, test in cv:
            a, b = z[train] - z[train].mean(axis=0), target[train] - target[train].mean()
            w = np.linalg.solve(a.T @ a + s * np.eye(6), a.T @ b)
            guess = (z[test] - z[train].mean(axis=0)) @ w + target[train].mean()
            total += ((target[test] - guess) ** 2).sum()
        return total

    grid = np.geomspace(1e-2, 1e4, 601)
    best = grid[np.argmin([error(s) for s in grid])]
    assert model.regularization_[0] == pytest.approx(best, rel=0.1)


def drawn(rows, seed=0):
    random = np.random.default_rng(seed)
    return folds.Draw(random.integers(2**60, size=rows), random)


def test_every_row_is_an_honest_judge_once():
    """No row that judges had a part in what it judges: not in training, not in validation."""
    labels = np.arange(60) % 3
    for cv in (5, 0.3, 2):
        pairs = folds.splits(cv, np.zeros((60, 1)), labels, drawn(60))
        plan = folds.plan(pairs, labels, np.ones(60), True, drawn(60))
        for vector in range(plan.mix.shape[1]):
            own = plan.mix[:, vector] == 1
            judges = plan.judge[:, own].any(axis=1)
            assert judges.any()
            assert not (judges & plan.valid[:, own].any(axis=1)).any()
            assert not (judges & plan.train[:, own].any(axis=1)).any()
            assert not (plan.valid & plan.train).any()
        judged = plan.judge.sum(axis=1)
        assert judged.max() == 1
        assert judged.sum() == (60 if cv != 0.3 else 18)


def test_folds_have_their_share_of_each_class():
    labels = np.repeat([0, 1, 2], [60, 30, 9])
    for train, test in folds.splits(3, None, labels, drawn(99)):
        assert np.bincount(labels[test]).tolist() == [20, 10, 3]
        assert len(train) + len(test) == 99
    ((_, test),) = folds.splits(0.2, None, labels, drawn(99))
    assert abs(np.bincount(labels[test]) - [12, 6, 1.8]).max() <= 1


@pytest.mark.long
def test_noise_is_told_from_what_matters():
    """Better than cross-validated scikit-learn where few of many features matter."""
    random = np.random.default_rng(1)
    X = random.normal(size=(2300, 60))
    y = (X[:, :3].sum(axis=1) + random.logistic(size=2300) > 0).astype(int)
    model = BilevelLogisticRegression(random_state=0).fit(X[:300], y[:300])
    peer = LogisticRegressionCV(
        Cs=10, cv=5, scoring="neg_log_loss", l1_ratios=(0,), use_legacy_attributes=False
    )
    peer.fit(X[:300], y[:300])
    ours = log_loss(y[300:], model.predict_proba(X[300:]))
    assert ours < log_loss(y[300:], peer.predict_proba(X[300:])) - 0.02
    assert model.regularization_[:3].max() < 0.2 * np.median(model.regularization_[3:])


def test_pure_noise_is_not_believed():
    random = np.random.default_rng(2)
    X, y = random.normal(size=(120, 6)), random.integers(0, 2, 120)
    free = LogisticRegression(C=1e6).fit(X, y).predict_proba(X)
    sides = [small(random_state=seed).fit(X, y).predict_proba(X) for seed in range(4)]
    assert abs(np.mean(sides, axis=0) - 0.5).max() < 0.75 * abs(free - 0.5).max()


def test_groups_by_name(fitted):
    X, y = rows()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    by_list = small(penalty=["in", "out", "out", "out", "out", "out"], max_steps=6).fit(X, y)
    groups = {name: "in" if name == "a" else "out" for name in frame}
    by_name = small(penalty=groups, max_steps=6).fit(frame, y)
    assert list(by_name.groups_) == ["in", "out"]
    np.testing.assert_array_equal(by_list.regularization_, by_name.regularization_)
    np.testing.assert_allclose(by_list.coef_, by_name.coef_)
    assert fitted.regularization_.shape == (6,)


def test_frames_of_either_kind_and_string_labels(fitted):
    X, y = rows()
    names = [f"f{k}" for k in range(6)]
    words = np.array(["no", "yes"])[y]
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        model = small().fit(frame, words)
        assert list(model.feature_names_in_) == names
        np.testing.assert_allclose(model.coef_, fitted.coef_, rtol=1e-9)
        assert set(model.predict(frame)) <= {"no", "yes"}


def test_sparse_is_dense(fitted, monkeypatch):
    X, y = rows()
    np.testing.assert_allclose(small().fit(sparse.csr_array(X), y).coef_, fitted.coef_)
    # The path of a sparse matrix that is too large to be made dense.
    dense = small(penalty="all").fit(X, y)
    monkeypatch.setattr(tables, "stays_sparse", sparse.issparse)
    some = sparse.csr_array(X)
    assert sparse.issparse(tables.make(some, tables.moments(some, np.ones(len(X)))).X)
    model = small(penalty="all").fit(sparse.csr_array(X), y)
    np.testing.assert_array_equal(model.regularization_, dense.regularization_)
    np.testing.assert_allclose(model.decision_function(X), dense.decision_function(X), rtol=1e-5)


def test_pipeline_grid_and_clone():
    X, y = rows()
    pipe = make_pipeline(StandardScaler(), small(max_steps=4))
    search_ = GridSearchCV(pipe, {"bilevellogisticregression__penalty": ["all", "feature"]}, cv=2)
    search_.fit(X, y)
    assert search_.best_score_ > 0.7
    assert clone(small(penalty="all")).get_params()["penalty"] == "all"


def test_units_of_x_change_nothing():
    X, y = rows()
    a = small(max_steps=6).fit(X, y)
    b = small(max_steps=6).fit(X * np.array([1e-6, 1e6, 1, 1, 1, 1e3]), y)
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(
        X * np.array([1e-6, 1e6, 1, 1, 1, 1e3])), rtol=1e-4)  # fmt: skip


def test_outputs_agree(fitted):
    X, _ = rows()
    odds = fitted.decision_function(X)
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-odds)))
    np.testing.assert_allclose(np.log(probabilities), fitted.predict_log_proba(X))
    np.testing.assert_array_equal(fitted.predict(X), (odds > 0).astype(int))
    assert fitted.n_iter_ > 1
    assert fitted.result_.status in ("converged", "callback", "max_steps")


def test_many_targets():
    X, _ = rows()
    targets = np.column_stack([X[:, 0], 1e3 * X[:, 1]])
    model = BilevelRidge(penalty="target", cv=3, random_state=0, max_steps=6).fit(X, targets)
    assert model.coef_.shape == (2, 6)
    assert model.regularization_.shape == (2,)
    assert model.score(X, targets) > 0.99


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"penalty": "featur"}, "nearest name is 'feature'"),
        ({"penalty": ["a", "b"]}, "groups of 2 features and X has 6"),
        ({"penalty": 3}, "penalty is 3; expected"),
        ({"penalty": {0: "a"}}, "no group for 5 of 6 features"),
        ({"penalty": {9: "a"}}, "There is no feature 9"),
        ({"cv": 1}, "cv=1 is not usable"),
        ({"cv": 1.5}, "cv=1.5 is not usable"),
        ({"cv": "three"}, "cv='three' is not usable"),
        ({"cv": [(np.arange(10), np.array([], int))]}, "no rows of positive weight to validate"),
        ({"cv": [(np.array([], int), np.arange(10))]}, "no rows of positive weight to train"),
        ({"method": "s-tbfo"}, "nearest name"),
        ({"max_steps": 0}, "max_steps"),
        ({"verbose": "yes"}, "verbose='yes'"),
    ],
)
def test_bad_parameters(parameters, words):
    X, y = rows()
    with pytest.raises(ValueError, match=words):
        small(**parameters).fit(X, y)


def test_a_surplus_name_of_groups_is_named():
    """Of {"a": ..., "b": ..., "c": ...} for columns a and b it was 'a' that did not exist."""
    X, y = rows()
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    with pytest.raises(ValueError, match="There is no feature 'c'"):
        small(penalty={"a": 1, "b": 1, "c": 2}).fit(frame, y)


def test_bad_rows():
    X, y = rows()
    with pytest.raises(ValueError, match=r"one class only, [0-9]+; expected"):
        small().fit(X, np.ones_like(y))
    for bad in (np.nan, np.inf):
        spoilt = X.copy()
        spoilt[3, 2] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            small().fit(spoilt, y)
    for weight, words in (
        (np.full(len(y), -1.0), "[Nn]egative"),
        (np.full(len(y), np.nan), "NaN"),
        (np.zeros(len(y)), "zero"),
    ):
        with pytest.raises(ValueError, match=words):
            small().fit(X, y, sample_weight=weight)


def test_splitters_are_welcome():
    X, y = rows()
    model = small(cv=StratifiedKFold(3), max_steps=4).fit(X, y)
    same = small(cv=list(StratifiedKFold(3).split(X, y)), max_steps=4).fit(X, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)


def test_units_that_a_dtype_cannot_hold():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    faint = np.float32(1e-41) * X.astype(np.float32)
    assert not BilevelRidge(max_steps=3).fit(faint, y).coef_.any()
    small = (1e-37 * X).astype(np.float32)
    with pytest.raises(ValueError, match="is too large for float32, the dtype of X"):
        BilevelRidge(max_steps=3).fit(small, 1e4 * X[:, 0])
    fitted = BilevelRidge(max_steps=3).fit(small, X[:, 0])
    assert fitted.coef_.dtype == np.float32
    assert np.corrcoef(fitted.predict(small), X[:, 0])[0, 1] > 0.99


def test_a_constant_column_gets_no_weight():
    X, y = rows()
    X[:, 4] = 7.0
    assert small(max_steps=4).fit(X, y).coef_[0, 4] == 0


def test_a_sample_has_the_shares_of_all_rows_and_every_class(monkeypatch):
    random = np.random.default_rng(0)
    y = random.integers(2, size=900) + 2 * (np.arange(900) == 7)
    monkeypatch.setattr(folds, "MANY_ROWS", 300)
    part = folds.sample(y, 4, drawn(900))
    assert 300 <= len(part) <= 303
    assert set(part) >= {7}
    assert np.mean(y[part] == 1) == pytest.approx(np.mean(y == 1), abs=0.01)
    assert len(folds.sample(y, 90, drawn(900))) == 900


EVERY = [
    (BilevelRidge, lambda z: z),
    (BilevelLasso, lambda z: z),
    (BilevelPoisson, lambda z: np.rint(np.exp(0.5 * z))),
    (BilevelGamma, lambda z: np.exp(0.5 * z)),
    (BilevelLogisticRegression, lambda z: np.digitize(z, [-1, 1])),
]


@pytest.mark.parametrize("penalty", ["all", "feature"])
@pytest.mark.parametrize(("kind", "target"), EVERY)
def test_the_order_of_rows_does_not_matter(kind, target, penalty):
    """Folds are drawn by what is in the rows; rows without a weight are as good as absent."""
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 6)) * np.geomspace(1e-3, 1e3, 6) + 5
    z = (X[:, 0] - 5) * 2000 + random.normal(size=150)
    order = random.permutation(170)
    model = kind(penalty=penalty, random_state=0).fit(X, target(z))
    longer, weight = np.vstack([X, 9 * X[:20]])[order], np.r_[np.ones(150), np.zeros(20)][order]
    other = kind(penalty=penalty, random_state=0).fit(
        longer, target(np.r_[z, z[:20]])[order], weight
    )
    np.testing.assert_allclose(other.regularization_, model.regularization_)
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("penalty", ["all", "feature"])
@pytest.mark.parametrize(("kind", "target"), EVERY)
def test_a_weight_is_as_many_rows(kind, target, penalty):
    """In the same folds. And with one penalty all weights times ten change nothing."""
    random = np.random.default_rng(1)
    X = random.normal(size=(120, 5))
    y = target(X[:, 0] + random.normal(size=120))
    weight = random.integers(1, 4, size=120)
    fold, twice = np.arange(120) % 3, np.repeat(np.arange(120), weight)
    pairs = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    longer = [tuple(np.flatnonzero(np.isin(twice, part)) for part in pair) for pair in pairs]
    weighted = kind(penalty=penalty, cv=pairs, random_state=0).fit(X, y, weight)
    repeated = kind(penalty=penalty, cv=longer, random_state=0).fit(X[twice], y[twice])
    np.testing.assert_allclose(weighted.regularization_, repeated.regularization_, rtol=0.06)
    size = abs(weighted.coef_).max()
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=5e-3 * size)
    if penalty == "all":
        tenfold = kind(penalty=penalty, cv=pairs, random_state=0).fit(X, y, 10 * weight)
        np.testing.assert_allclose(tenfold.coef_, weighted.coef_, atol=1e-4 * size)


def test_one_penalty_is_the_minimum_of_its_own_criterion():
    """Judge: scikit-learn on a fine grid over the same folds. It was .14 where .07 was best."""
    X, y = load_iris(return_X_y=True)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    found = BilevelLogisticRegression(penalty="all", cv=pairs).fit(X, y).regularization_[0]

    def loss(s):
        judge = LogisticRegression(C=1 / s, tol=1e-8, max_iter=10_000)
        return np.mean([
            log_loss(y[b], judge.fit(Z[a], y[a]).predict_proba(Z[b])) for a, b in pairs
        ])  # fmt: skip

    assert loss(found) < 1.001 * min(map(loss, np.geomspace(1e-3, 1, 31)))


def test_weak_penalties_of_separable_classes_have_the_loss_of_scikit_learn():
    """Intercepts are free: with a penalty of 1e-6 the loss fell for ever (.029 for .042)."""
    X, y = load_wine(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, random_state=7, stratify=y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    path = BilevelLogisticRegression(penalty="all", cv=pairs).fit(X, y).path_
    assert path.strengths[-1] < 1e-3
    for strength, found in zip(path.strengths[-4:], path.loss[-4:], strict=True):
        judge = LogisticRegression(C=1 / strength, tol=1e-9, max_iter=20_000)
        p = np.empty((len(y), 3))
        for a, b in pairs:
            p[b] = judge.fit(Z[a], y[a]).predict_proba(Z[b])
        assert found == pytest.approx(log_loss(y, p), rel=1e-3)


def test_max_seconds_counts_all_of_fit(monkeypatch):
    """Also what comes before the search: here a draw of folds that takes longer than the limit."""
    X, y = rows(300)
    draw = folds.draw
    monkeypatch.setattr(folds, "draw", lambda *given: [time.sleep(0.3), draw(*given)][1])
    model = small(max_seconds=0.2).fit(X, y)
    assert model.result_.status == "max_seconds"
    assert len(model.path_.strengths) == 1


def test_a_bar_and_other_methods_find_about_the_same():
    X, y = rows(300)
    model, bar = small().fit(X, y), small(verbose=True).fit(X, y)
    np.testing.assert_array_equal(bar.coef_, model.coef_)
    other = small(method="d-tfbo", max_steps=5).fit(X, y)
    assert other.score(X, y) > 0.7
