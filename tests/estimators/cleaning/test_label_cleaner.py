"""`LabelCleaner` on data whose wrong labels are known, and as scikit-learn's estimators must be."""

import gc
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize
from scipy.sparse import csr_matrix, hstack
from scipy.sparse import random as random_sparse
from scipy.special import log_softmax, logsumexp
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.utils.estimator_checks import check_estimator

import untuned
from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import (
    columns,
    cross_fit,
    labelled_rows,
    linear,
    models,
    noise,
    noise_limits,
    pool,
    softmax_regression,
)
from untuned.estimators.cleaning.cross_fit import Settings, Task

ROWS, TRUSTED, COLUMNS, CLASSES = 230, 24, 6, 3
SWAP = np.array([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.2, 0.8]])  # P(given | true)


def corrupt(labels, share, classes, rng):
    """Labels with a share replaced by another class, and where that happened."""
    wrong = np.zeros(len(labels), bool)
    wrong[rng.permutation(len(labels))[: round(share * len(labels))]] = True
    shifts = rng.integers(1, classes, len(labels))
    return np.where(wrong, (labels + shifts) % classes, labels), wrong


def table(seed=0, share=0.2, transition=None):
    """Three round clouds, some labels wrong, and trusted rows of the same kind."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, CLASSES, ROWS + TRUSTED)
    centres = 2.5 * np.eye(CLASSES, COLUMNS)
    X = (centres[true] + rng.normal(size=(len(true), COLUMNS))) * 10.0 ** np.arange(COLUMNS)
    y, y_trusted = true[:ROWS], true[ROWS:]
    if transition is None:
        given, wrong = corrupt(y, share, CLASSES, rng)
    else:
        given = (rng.random((ROWS, 1)) > transition[y].cumsum(1)).sum(1)
        wrong = given != y
    return X[:ROWS], given, wrong, y, X[ROWS:], y_trusted


def found(cleaner, wrong):
    """AUROC of the quality and F1 of the issues."""
    flagged = np.isin(np.arange(len(wrong)), cleaner.issues_)
    return roc_auc_score(~wrong, cleaner.quality_), f1_score(wrong, flagged)


@pytest.mark.long
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("transition", [None, SWAP], ids=["uniform", "by class"])
def test_wrong_labels_are_found(transition, trusted):
    X, given, wrong, y, *known = table(transition=transition)
    cleaner = LabelCleaner(random_state=0).fit(X, given, *(known if trusted else ()))
    auroc, f1 = found(cleaner, wrong)
    assert auroc > 0.97
    assert f1 > 0.85
    assert abs(cleaner.noise_rate_ - wrong.mean()) < 0.05
    assert (cleaner.suggested_ == y).mean() > 0.93
    assert (given == y).mean() < 0.85
    if transition is not None:
        assert cleaner.transition_[0, 1] > 0.25 > 0.05 > cleaner.transition_[1].min()


@pytest.mark.long
def test_results_fit_together():
    X, given, wrong, _, *known = table()
    cleaner = LabelCleaner(random_state=0).fit(X, given, *known)
    assert ((cleaner.weights_ >= 0) & (cleaner.weights_ <= 1)).all()
    assert roc_auc_score(~wrong, cleaner.weights_) > 0.97
    assert ((cleaner.quality_ >= 0) & (cleaner.quality_ <= 1)).all()
    assert (np.diff(cleaner.quality_[cleaner.issues_]) >= 0).all()
    changed = np.flatnonzero(cleaner.quality_ < 0.5)
    assert set(changed) <= set(cleaner.issues_)
    assert set(changed) == set(np.flatnonzero(cleaner.suggested_ != given))
    assert np.array_equal(cleaner.suggested_[changed], cleaner.alternative_[changed])
    assert (cleaner.alternative_ != given).all()
    assert cleaner.noise_rate_ == pytest.approx(1 - cleaner.quality_.mean())
    assert cleaner.transition_.sum(1) == pytest.approx(1)
    assert cleaner.coef_.shape == (CLASSES, COLUMNS)
    assert cleaner.regularization_.shape == (1,)
    assert isinstance(cleaner.result_, untuned.Result)
    assert cleaner.predict_proba(X).argmax(1).tolist() == cleaner.predict(X).tolist()


@pytest.mark.long
def test_digits_with_three_in_ten_labels_wrong():
    X, y = load_digits(return_X_y=True)
    X, y = X[:1000], y[:1000]
    given, wrong = corrupt(y, 0.3, 10, np.random.default_rng(0))
    cleaner = LabelCleaner(random_state=0).fit(X, given)
    auroc, f1 = found(cleaner, wrong)
    assert auroc > 0.99
    assert f1 > 0.92
    assert abs(cleaner.noise_rate_ - 0.3) < 0.03


@pytest.mark.long
def test_right_labels_are_left_alone():
    X, y = load_wine(return_X_y=True)
    cleaner = LabelCleaner(random_state=0).fit(X, y)
    assert len(cleaner.issues_) <= 0.02 * len(y)
    assert cleaner.noise_rate_ < 0.03


def test_overlapping_classes_are_no_noise():
    """Fifths of a number that is predicted with an error: neighbours overlap, no label is wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    number = X @ [2.0, 1.0, 0.5, 0.0] + rng.normal(size=len(X))
    y = np.digitize(number, np.quantile(number, [0.2, 0.4, 0.6, 0.8]))
    cleaner = LabelCleaner("linear", random_state=0).fit(X, y)
    assert (cleaner.predict(X) != y).mean() > 0.3
    assert cleaner.noise_rate_ < 0.1


def test_a_model_of_one_class_gives_a_column_for_each():
    """Of a rare class all labels may be taken for wrong."""
    X = np.arange(40.0, dtype=np.float32).reshape(20, 2)
    model = models.boosting(6, 2).make(0, 3)
    models.fit_classifier(model, X, np.full(20, 1), np.ones(20))
    found = models.predict(model, X, 3)
    assert found.shape == (20, 3)
    assert (found.argmax(axis=1) == 1).all()
    assert found.sum(axis=1) == pytest.approx(1)


def test_a_model_of_a_sample_is_refitted_on_all_rows(monkeypatch):
    X, given, wrong, *_ = table()
    monkeypatch.setattr(linear, "FEWEST_SAMPLED", 50)
    monkeypatch.setattr(linear, "MOST_SAMPLED", 100)
    auroc, f1 = found(LabelCleaner("linear", random_state=0).fit(X, given), wrong)
    assert auroc > 0.97
    assert f1 > 0.85


@pytest.mark.real_data("mnist")
def test_mnist_subset():
    with np.load(Path(os.environ["UNTUNED_DATA"]) / "mnist.npz") as file:
        X, y = file["X_train"][:1000].reshape(1000, -1), file["y_train"][:1000]
    given, wrong = corrupt(y.astype(int), 0.3, 10, np.random.default_rng(0))
    auroc, f1 = found(LabelCleaner(random_state=0).fit(X, given), wrong)
    assert auroc > 0.95
    assert f1 > 0.8


def small_problem():
    """The bilevel problem of the linear models on few rows, in float64."""
    rng = np.random.default_rng(0)
    fold = np.arange(12) // 6
    rows = softmax_regression.Training(
        features=rng.normal(size=(12, 2)),
        target=np.moveaxis(rng.dirichlet(np.ones(3), (2, 12)), 2, 1),
        weight=rng.uniform(0.5, 2, 12),
        seen=(fold != np.arange(2)[:, None]).astype(float),
        unseen_by=fold,
        likelihood=rng.dirichlet(np.ones(3), 12),
    )
    return softmax_regression.Inner(rows, np.array([0.1, 1.0]))


def test_derivatives_of_the_pool():
    """Judge: differences of the loss."""
    rng = np.random.default_rng(0)
    rows = pool.Stacked(
        pool.logs_of(rng.dirichlet(np.ones(4), (3, 40))).swapaxes(1, 2),
        rng.dirichlet(np.ones(4), 40).T,
        rng.uniform(0.5, 2, 40),
    )
    x, steps = rng.uniform(0.1, 1, 7), 1e-5 * np.eye(7)
    differences = [(rows.loss(x + step)[0] - rows.loss(x - step)[0]) / 2e-5 for step in steps]
    np.testing.assert_allclose(rows.loss(x)[1], differences, rtol=1e-6, atol=1e-9)


def test_a_pool_goes_on_from_another():
    """The second starts where slopes are already no larger than chance."""
    rng = np.random.default_rng(0)
    given = rng.integers(0, 3, 300)
    rows = pool.Stacked(made_up_logs(rng, given), np.eye(3)[given].T, np.ones(300))
    first = pool.learn(rows, np.full(4, 0.25))
    assert first.result.status == "converged"
    again = pool.learn(rows, first)
    assert again.result.steps == 0 < first.result.steps
    np.testing.assert_array_equal(again.weights, first.weights)


def made_up_logs(rng, given, helpful=2):
    """Two judges who know something, the others nothing, as a pool's rows."""
    said = rng.dirichlet(np.ones(3), (4, len(given)))
    said[:helpful, np.arange(len(given)), given] += 1
    return pool.logs_of(said / said.sum(axis=2, keepdims=True)).swapaxes(1, 2)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_the_weights_of_a_pool(rate):
    """Judge: SciPy's SLSQP on the same loss, written anew, to the end."""
    rng = np.random.default_rng(0)
    given = rng.integers(0, 3, 400)
    logs, likelihood = made_up_logs(rng, given), noise.uniform(rate, 3)[:, given]
    found = pool.learn(pool.Stacked(logs, likelihood, np.ones(400)), np.full(4, 0.25))
    assert found.result.history["hypergrad_norm"][-1] <= pool.CHANCE / 20 * 7**0.5
    assert not found.weights[2:].any()

    def loss(x):
        pooled = log_softmax(np.tensordot(x[:4], logs, 1) + x[4:, None], axis=0)
        prior = x[:4].sum() + np.square(x[4:]).sum() / 2
        return (prior - logsumexp(pooled, b=likelihood, axis=0).sum()) / 400

    bounds = Bounds(np.r_[np.zeros(4), np.full(3, -np.inf)], np.inf)
    start = np.r_[np.full(4, 0.5), np.zeros(3)]
    exact = scipy_minimize(loss, start, method="SLSQP", bounds=bounds, tol=1e-12)
    np.testing.assert_allclose(exact.x[:2], found.weights[:2], rtol=0.05)
    assert found.result.history["outer"][-1] <= exact.fun + 1e-5


def test_a_pool_without_information_ends():
    """All judges say the same of all rows: nothing can be learned, and nothing breaks."""
    logs = np.log(np.full((2, 3, 50), 1 / 3))
    given = np.arange(50) % 3
    rows = pool.Stacked(logs, np.eye(3)[given].T, np.ones(50))
    found = pool.learn(rows, np.full(2, 0.5))
    assert np.isfinite([*found.offsets, *found.weights]).all()
    assert found.weights.max() > 0  # some model counts


def test_models_of_pairs_of_folds_trained_together(monkeypatch):
    """Judge: the same models one by one."""
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(120, 3)).astype(np.float32), rng.integers(0, 3, 120)
    X[:, 0] += label
    weight, nobody = rng.uniform(0.5, 2, 120), np.zeros(120, bool)
    order = np.arange(120)
    task = Task(X, label, weight, nobody, order % 4, 4, 3, 5, order, Settings())
    monkeypatch.setattr(softmax_regression, "LEFT", 1e-5)
    together = linear.Linear().first(task)
    monkeypatch.setattr(linear, "TOGETHER", 0)
    np.testing.assert_allclose(linear.Linear().first(task), together, atol=2e-4)


def test_derivatives():
    """Judge: differences of the value function and of g."""
    inner = small_problem()
    outer = softmax_regression.Outer(inner)
    rng = np.random.default_rng(1)
    x, y = np.array([0.3]), rng.normal(size=(2, 3, 3))
    assert untuned.check_hypergradient(outer, inner, x, y).relative_error < 1e-4
    step = np.array([1e-6])
    change = inner(x + step, y) - inner(x - step, y)
    assert change / 2 == pytest.approx(inner.value_and_grads(x, y)[1] @ step, rel=1e-5)
    v, move = rng.normal(size=(2, *y.shape))
    change = inner.grad_y(x, y + 1e-6 * move) - inner.grad_y(x, y - 1e-6 * move)
    product = inner.products(x, y)(v, "y")
    assert np.vdot(change, v) / 2e-6 == pytest.approx(np.vdot(product, move), rel=1e-5)


def test_the_search_for_a_ridge_ends_where_a_fine_grid_has_its_minimum(monkeypatch):
    """Oracle: the value at many ridges. A search of one step stays where it starts."""
    monkeypatch.setattr(softmax_regression, "LEFT", 1e-6)
    monkeypatch.setattr(softmax_regression, "TOL", 1e-3)
    rng = np.random.default_rng(0)
    label, fold = rng.integers(0, 3, 90), np.arange(90) % 3
    X = rng.normal(size=(90, 8))
    X[:, 0] += label
    given = np.eye(3)[label]
    rows = softmax_regression.Training(
        X, given.T[None], np.ones(90), fold != np.arange(3)[:, None], fold, given
    )
    inner, start = softmax_regression.Inner(rows, np.ones(8)), np.zeros((3, 9, 3))
    outer, grid = softmax_regression.Outer(inner), np.linspace(-1, 2, 61)[:, None]
    values = [outer(x, softmax_regression.fit(x, start, inner)) for x in grid]
    best = grid[int(np.argmin(values)), 0]
    assert -0.9 < best < 1.9
    for at in (-1.0, 2.0):
        x, y = softmax_regression.search(np.array([at]), start, inner, 20, bool)
        assert x[0] == pytest.approx(best, abs=0.05)
        assert outer(x, y) <= min(values) + 1e-6
        assert softmax_regression.search(np.array([at]), start, inner, 1, bool)[0] == at


def test_softmax_regressions_are_scikit_learns(monkeypatch):
    """Oracle of whitening, ridge, weights, targets and folds at once: a row with a soft target is
    one row for each class, with the weight that its target has there."""
    monkeypatch.setattr(softmax_regression, "LEFT", 1e-8)
    X, *_ = table()
    rng = np.random.default_rng(1)
    weight, fold = rng.uniform(0.5, 2, ROWS), np.arange(ROWS) % 2
    target = rng.dirichlet(np.ones(CLASSES), (2, ROWS))
    white = columns.fit(lambda start: X[start:], weight, 0.01)
    rows = softmax_regression.Training(
        white.apply(X), np.moveaxis(target, 2, 1), weight, fold != np.arange(2)[:, None], fold,
        np.ones((ROWS, CLASSES)),
    )  # fmt: skip
    x, y = np.array([1.0]), np.zeros((2, COLUMNS + 1, CLASSES))
    y = softmax_regression.fit(x, y, softmax_regression.Inner(rows, white.penalty))
    ridge = softmax_regression.ridge_at(x)
    mean = np.average(X, axis=0, weights=weight)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    for model in range(2):
        seen = np.flatnonzero(fold != model)
        theirs = LogisticRegression(C=1 / (ridge * weight.sum()), tol=1e-10, max_iter=10_000).fit(
            np.repeat(((X - mean) / scale)[seen], CLASSES, axis=0),
            np.tile(np.arange(CLASSES), len(seen)),
            (weight[:, None] * target[model])[seen].ravel(),
        )
        ours, _ = white.coefficients(y[model, :-1], y[model, -1])
        assert ours * scale[:, None] == pytest.approx(theirs.coef_.T, rel=1e-3, abs=1e-4)


def test_soft_targets_are_probabilities_and_trusted_labels_are_true():
    p = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.2, 0.3, 0.5]])
    label, trusted, every = np.zeros(3, int), np.array([False, False, True]), np.arange(3)
    task = Task(None, label, np.ones(3), trusted, every, 3, 3, 0, every, Settings())
    found = linear._soft(task, p, every)
    np.testing.assert_allclose(found[0], p[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], [1e-4, 0.49995, 0.49995], rtol=1e-5)
    assert found[2].tolist() == [1, 0, 0]


def test_a_ridge_stays_within_its_bounds():
    for ridge in (1e-4, 0.01, 3.0):
        assert softmax_regression.ridge_at(softmax_regression.x_of(ridge)) == pytest.approx(ridge)
    assert 0 < softmax_regression.ridge_at(softmax_regression.x_of(1e-30)) < 1e-5


@pytest.mark.long
def test_scikit_learn_has_no_complaint():
    # What is skipped needs an array library in its experimental form.
    check_estimator(LabelCleaner("linear", folds=2, max_steps=1), on_skip=None)


def same(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("quality_", "weights_", "issues_", "suggested_", "coef_", "intercept_")
    )


@pytest.mark.long
def test_frames_and_strings_change_nothing():
    X, given, _, _, X_trusted, y_trusted = table()
    names = np.array(["cat", "dog", "owl"])
    plain = LabelCleaner(random_state=0).fit(X, given, X_trusted, y_trusted)
    titles = [f"c{number}" for number in range(COLUMNS)]
    for frame in (pandas.DataFrame, polars.DataFrame):
        data = {name: X[:, number] for number, name in enumerate(titles)}
        # In another order: names decide.
        known = {name: X_trusted[:, titles.index(name)] for name in reversed(titles)}
        cleaner = LabelCleaner(random_state=0).fit(
            frame(data), names[given], frame(known), names[y_trusted]
        )
        assert cleaner.feature_names_in_.tolist() == titles
        assert np.array_equal(cleaner.quality_, plain.quality_)
        assert np.array_equal(cleaner.suggested_, names[plain.suggested_])
        assert np.array_equal(cleaner.predict(frame(data)), names[plain.predict(X)])


@pytest.mark.long
def test_weights_are_repetitions_and_order_is_nothing():
    X, given, *_ = table()
    times = np.random.default_rng(0).integers(0, 3, ROWS)
    weighted = LabelCleaner(random_state=0).fit(X, given, sample_weight=times)
    again = np.repeat(np.arange(ROWS), times)
    again = np.random.default_rng(1).permutation(again)
    repeated = LabelCleaner(random_state=0).fit(X[again], given[again])
    assert np.array_equal(weighted.coef_, repeated.coef_)
    assert np.array_equal(weighted.quality_[again], repeated.quality_)
    assert weighted.noise_rate_ == pytest.approx(repeated.noise_rate_)


@pytest.mark.long
def test_names_of_classes_change_no_more_than_chance():
    """Judge: other seeds, where new names put the classes into another order."""
    X, given, wrong, *_ = table()
    first = LabelCleaner(random_state=0).fit(X, given)
    in_order = LabelCleaner(random_state=0).fit(X, np.array(["ant", "bee", "cat"])[given])
    assert np.array_equal(first.quality_, in_order.quality_)
    assert np.array_equal(first.issues_, in_order.issues_)
    other = LabelCleaner(random_state=0).fit(X, np.array(["cat", "ant", "bee"])[given])
    seeds = [LabelCleaner(random_state=seed).fit(X, given) for seed in range(1, 5)]
    moved = [np.abs(each.quality_ - first.quality_).mean() for each in (other, *seeds)]
    assert moved[0] <= 2 * max(moved[1:])
    scores = [roc_auc_score(~wrong, each.quality_) for each in (other, *seeds)]
    assert scores[0] >= min(scores[1:]) - 0.01


@pytest.mark.long
def test_rows_without_weight_are_judged_all_the_same():
    X, given, wrong, *_ = table()
    weight = (np.arange(ROWS) % 5 > 0).astype(float)
    cleaner = LabelCleaner(random_state=0).fit(X, given, sample_weight=weight)
    assert roc_auc_score(~wrong[weight == 0], cleaner.quality_[weight == 0]) > 0.95


def test_equal_rows_are_in_one_fold():
    X = np.repeat(np.arange(30, dtype=np.float32)[:, None], 2, axis=0)
    label = np.arange(60) % 2
    rows = labelled_rows.Table(X, label, np.ones(60), np.zeros(60, bool))
    merged = labelled_rows.merge(rows)
    fold = cross_fit.stratified(merged.group, label[merged.first], 3, np.random.RandomState(0))
    by_value = {value: set(fold[X[merged.first, 0] == value]) for value in range(30)}
    assert all(len(each) == 1 for each in by_value.values())
    assert np.bincount(fold).tolist() == [20, 20, 20]


def test_classes_are_told_apart_as_far_as_their_rows_are_clear():
    """Classes 0 and 1 overlap in all rows of 1, and in three of four rows of 0; 2 is clear."""
    said = np.array([[1.0, 0, 0], *[[0.7, 0.3, 0]] * 3, *[[0.4, 0.6, 0]] * 4, *[[0, 0, 1.0]] * 4])
    found = noise_limits.separated(said, np.ones(len(said)))
    assert found.tolist() == [[0.5, 0, 1], [0, 0, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    ("shape", "classes", "count"),
    [((200, 60), 2, 8), ((1000, 57), 2, 7), ((500, 64), 10, 5), ((400, 784), 10, 4),
     ((1999, 2), 2, 8), ((2000, 2), 2, 4)],
)  # fmt: skip
def test_few_rows_have_more_folds_while_that_is_cheap(shape, classes, count):
    assert cross_fit.default_folds(np.ones(shape, np.float32), classes) == count
    assert cross_fit.default_folds(csr_matrix(np.ones(shape)), classes) == count


@pytest.mark.long
def test_sparse_rows_and_probabilities_alone_and_a_model_of_ones_own():
    X, given, wrong, *_ = table()
    scaled = csr_matrix(X / 10.0 ** np.arange(COLUMNS))
    sparse = LabelCleaner(random_state=0).fit(scaled, given)
    assert found(sparse, wrong)[0] > 0.95
    own = LabelCleaner(GaussianNB(), random_state=0).fit(X, given)
    assert set(own.judges_) == {"GaussianNB"}
    assert found(own, wrong)[0] > 0.95
    P = cross_val_predict(GaussianNB(), X, given, cv=5, method="predict_proba")
    alone = LabelCleaner(random_state=0).fit(None, given, pred_probs=P)
    assert found(alone, wrong)[0] > 0.95
    with pytest.raises(ValueError, match="fitted with probabilities and no X"):
        alone.predict(X)


@pytest.mark.long
def test_memory_on_sparse_rows_is_that_of_a_few_models():
    """Nothing waits for the garbage collector: here models weigh as much as the rows."""
    rng = np.random.default_rng(0)
    given = rng.integers(0, 4, 300)
    rest = random_sparse(300, 20_000, 1e-2, "csr", np.float32, random_state=0)
    X = hstack([csr_matrix(np.eye(4, dtype=np.float32)[given]), rest], format="csr")
    before = X.copy()
    cleaner = LabelCleaner("linear", random_state=0).fit(X[:, :50], given)  # imports what is needed
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        cleaner.fit(X, given)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    model = 4 * 20_000 * 4
    assert peak / model < 19
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(X, part), getattr(before, part))


def sparse_with_labels():
    rng = np.random.default_rng(0)
    given = rng.integers(0, 3, 200)
    rest = random_sparse(200, 60, 0.05, "csr", np.float32, random_state=0)
    return hstack([csr_matrix(np.eye(3, dtype=np.float32)[given]), rest], format="csr"), given


def test_sparse_columns_that_never_occur_cost_nothing_and_change_nothing():
    X, given = sparse_with_labels()
    wide = csr_matrix((X.data, X.indices, X.indptr), shape=(200, 10_000))
    narrow, other = (LabelCleaner("linear", random_state=0).fit(each, given) for each in (X, wide))
    assert np.array_equal(narrow.quality_, other.quality_)
    assert np.array_equal(narrow.coef_, other.coef_[:, : X.shape[1]])
    assert not other.coef_[:, X.shape[1] :].any()


def test_columns_of_some_rows_are_those_that_occur_in_them_the_most_frequent_first():
    X, _ = sparse_with_labels()
    some = X[:20]
    occurring, rows = columns.occurring(some)
    counts = (some.toarray() != 0).sum(axis=0)
    assert np.array_equal(np.sort(occurring), np.flatnonzero(counts))
    assert (np.diff(counts[occurring]) <= 0).all()
    assert np.array_equal(rows.toarray(), some.toarray()[:, occurring])
    assert len(occurring) < X.shape[1]
    assert np.array_equal(some.toarray(), X[:20].toarray())


def test_sparse_rows_of_length_one_are_not_copied():
    X, given = sparse_with_labels()
    unit = normalize(X)

    def task(rows):
        some = np.zeros(200, int)
        order = np.arange(200)
        return Task(rows, given, np.ones(200), some > 0, some, 4, 3, 0, order, Settings())

    assert columns.prepared(task(unit), 0.01)[1] is unit
    white, changed = columns.prepared(task(3 * unit), 0.01)
    np.testing.assert_allclose(changed.toarray(), unit.toarray(), rtol=1e-5)
    np.testing.assert_allclose(white.matrix, 1 / 3, rtol=1e-5)


@pytest.mark.long
def test_in_a_pipeline_and_with_a_time_limit():
    X, given, wrong, *_ = table()
    pipeline = make_pipeline(StandardScaler(), LabelCleaner(random_state=0, max_seconds=30))
    pipeline.fit(X, given)
    assert pipeline.score(X[~wrong], given[~wrong]) > 0.9
    first = LabelCleaner(random_state=0).fit(X, given)
    assert same(first, LabelCleaner(random_state=0).fit(X, given))
    hasty = LabelCleaner(random_state=0, max_seconds=1e-9).fit(X, given)
    assert hasty.result_.status == "max_seconds"


X, GIVEN, _, _, X_TRUSTED, Y_TRUSTED = table()
GOOD = {"X": X, "y": GIVEN}
KNOWN = {"X_trusted": X_TRUSTED, "y_trusted": Y_TRUSTED}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"X_trusted": X_TRUSTED}, "X_trusted came without y_trusted; give both"),
        ({"y_trusted": Y_TRUSTED}, "y_trusted came without X_trusted; give both"),
        (KNOWN | {"X_trusted": X_TRUSTED[:, :4]}, "X_trusted has 4 columns; expected 6"),
        (KNOWN | {"y_trusted": Y_TRUSTED[:5]}, "y_trusted has 5 labels; expected 24"),
        (KNOWN | {"y_trusted": Y_TRUSTED + 1}, "y_trusted has the class 3, which is not in y"),
        ({"X_trusted": X[:2], "y_trusted": [0, 1]}, "2 trusted rows for 3 classes; give at least"),
        ({"y": np.zeros(ROWS, int)}, r"y has one class only \(0\) among rows of positive"),
        ({"y": [None] * ROWS}, "y contains NaN or None in 230 of 230 labels; leave"),
        ({"y": np.where(GIVEN == 1, np.nan, GIVEN)}, "y contains NaN or None in .* labels; leave"),
        ({"sample_weight": np.full(ROWS, -1.0)}, "sample_weight has a negative entry, -1; give"),
        ({"sample_weight": np.full(ROWS, np.nan)}, "Input sample_weight contains NaN"),
        ({"sample_weight": np.zeros(ROWS)}, "y has one class only|all zero|zero"),
        ({"X": np.where(X > 0, np.inf, X)}, "Input X contains infinity"),
        ({"pred_probs": np.ones((ROWS, 2)) / 2}, r"pred_probs is of shape \(230, 2\)"),
        ({"pred_probs": np.ones((ROWS, 3))}, "pred_probs has rows that are no probabilities"),
        ({"pred_probs": np.eye(3)[GIVEN]}, "pred_probs is certain of every given label"),
        ({"y": np.r_[7, GIVEN[1:]]}, "The class 7 has one row"),
        ({"y": np.array(["x", *["abc"[each] for each in GIVEN[1:]]], object)}, "class 'x' has one"),
        ({"y": np.array(["a"] * ROWS, object)}, r"y has one class only \('a'\)"),
        (
            {
                "y": np.array(["abc"[each] for each in GIVEN], object),
                "X_trusted": X_TRUSTED,
                "y_trusted": np.array(["z"] * len(Y_TRUSTED), object),
            },
            "y_trusted has the class 'z', which is not in y",
        ),
        (
            KNOWN | {"X_trusted": np.where(X_TRUSTED > 0, np.inf, X_TRUSTED)},
            "Input X_trusted contains",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(bad, sentence):
    with pytest.raises(ValueError, match=sentence):
        LabelCleaner().fit(**(GOOD | bad))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"folds": 1}, "folds=1 is no number of folds; give a whole number from 2"),
        ({"folds": 2.5}, "folds=2.5 is no number of folds"),
        ({"folds": "many"}, "folds='many' is no number of folds; .* or 'auto'"),
        ({"max_seconds": 0}, "max_seconds=0 is no time; give a positive number"),
        ({"max_steps": 0}, "max_steps"),
        ({"method": "atuo"}, "nearest name is 'auto'"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        LabelCleaner(**settings).fit(X, GIVEN)


def test_trusted_frame_with_other_columns_is_refused():
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    other = pandas.DataFrame(X_TRUSTED, columns=list("abcdeg"))
    with pytest.raises(ValueError, match="X_trusted has no column 'f'; expected the 6 columns"):
        LabelCleaner().fit(frame, GIVEN, other, Y_TRUSTED)
