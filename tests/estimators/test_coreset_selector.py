"""`CoresetSelector`: scikit-learn's rules, and models that are better than on uniform rows."""

import subprocess
import sys
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from untuned.coreset import bilevel
from untuned.estimators import CoresetSelector, coreset_selector

IRIS = load_iris(return_X_y=True)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["bilevel", "uniform", "kmeans", "herding"])
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_scikit_learn_checks(strategy):
    check_estimator(CoresetSelector(strategy=strategy, max_steps=5))


def noisy(seed):
    X, y = make_classification(
        3_000, n_features=15, n_informative=8, flip_y=0.2, weights=[0.8], random_state=seed
    )
    return X[:1500], y[:1500], X[1500:], y[1500:]


def bundled(load):
    def get(seed):
        X, y = load(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(X))
        X, y = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1), y
        train, test = order[: 2 * len(X) // 3], order[2 * len(X) // 3 :]
        return X[train], y[train], X[test], y[test]

    return get


def score(data, rows, weights=None):
    X, y, X_test, y_test = data
    if len(set(y[rows])) == 1:  # it happens to uniform choices
        return np.mean(y_test == y[rows[0]])
    return LogisticRegression(max_iter=1000).fit(X[rows], y[rows], weights).score(X_test, y_test)


@pytest.mark.parametrize(
    ("get", "size"),
    [(noisy, 0.01), (bundled(load_digits), 0.01), (bundled(load_breast_cancer), 8)],
    ids=["noisy", "digits", "breast-cancer"],
)
@pytest.mark.long
def test_models_are_better_than_on_uniform_rows(get, size):
    """Mean of five seeds, with the weights and without."""
    scores = {"uniform": [], "plain": [], "weighted": []}
    for seed in range(5):
        data = get(seed)
        X, y = data[:2]
        ours = CoresetSelector(size, random_state=seed).fit(X, y)
        base = CoresetSelector(size, strategy="uniform", random_state=seed).fit(X, y)
        scores["uniform"].append(score(data, base.indices_))
        scores["plain"].append(score(data, ours.indices_))
        scores["weighted"].append(score(data, ours.indices_, ours.weights_[ours.indices_]))
        assert set(y[ours.indices_]) == set(y)
    means = {name: np.mean(values) for name, values in scores.items()}
    assert means["plain"] > means["uniform"] + 0.01, means
    assert means["weighted"] > means["uniform"] + 0.01, means


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["bilevel", "uniform", "kmeans", "herding"])
@pytest.mark.parametrize("size", [1, 7, 0.1, 1.0 - 1e-9, 150])
def test_what_a_fit_leaves(strategy, size):
    X, y = IRIS
    fit = CoresetSelector(size, strategy=strategy, max_steps=5, random_state=0).fit(X, y)
    count = {0.1: 15, 1.0 - 1e-9: 150}.get(size, size)
    assert len(fit.indices_) == len(set(fit.indices_.tolist())) == count
    assert fit.weights_.shape == (150,)
    assert fit.weights_.min() >= 0
    assert fit.weights_.max() <= 1
    outside = np.setdiff1d(np.arange(150), fit.indices_)
    assert np.all(fit.weights_[outside] == 0)
    assert np.all(np.diff(fit.weights_[fit.indices_]) <= 0)  # the most important first
    if strategy in ("bilevel", "herding") and count >= 3:
        assert set(y[fit.indices_].tolist()) == {0, 1, 2}
    assert (fit.result_ is not None) == (strategy == "bilevel" and count < 150)


@pytest.mark.long
def test_a_class_of_one_row_is_kept():
    X, y = make_classification(250, n_features=16, random_state=0)
    y[17] = 2
    for strategy in ("bilevel", "herding"):
        fit = CoresetSelector(6, strategy=strategy, random_state=0).fit(X, y)
        assert 17 in fit.indices_


@pytest.mark.long
def test_seeds():
    X, y = make_classification(250, n_features=16, random_state=0)
    same, again, other = (CoresetSelector(10, random_state=seed).fit(X, y) for seed in (0, 0, 1))
    np.testing.assert_array_equal(same.indices_, again.indices_)
    np.testing.assert_array_equal(same.weights_, again.weights_)
    assert set(same.indices_) != set(other.indices_)


@pytest.mark.long
def test_kinds_of_input_agree():
    X, y = make_classification(250, n_features=16, random_state=0)
    X[np.abs(X) < 0.5] = 0
    X = X.astype(np.float32)
    names = [f"column {k}" for k in range(16)]
    selector = CoresetSelector(10, random_state=0)
    plain = clone(selector).fit(X, y)
    others = {
        "sparse": (sparse.csr_matrix(X), y),
        "coo": (sparse.coo_array(X), y),
        "pandas": (pd.DataFrame(X, columns=names), pd.Series(y)),
        "polars": (pl.DataFrame(X, schema=names), pl.Series(y)),
        "strings": (X, np.array(["no", "yes"])[y]),
        "float64": (X.astype(float), y),
        "other units": (X * 4096 + 512, y),
    }
    for kind, (X_kind, y_kind) in others.items():
        fit = clone(selector).fit(X_kind, y_kind)
        np.testing.assert_array_equal(fit.indices_, plain.indices_, err_msg=kind)
        # Weights have a flat minimum, and other units are other roundings.
        atol = 0.2 if kind == "other units" else 1e-3
        np.testing.assert_allclose(fit.weights_, plain.weights_, atol=atol, err_msg=kind)
        if kind in ("pandas", "polars"):
            assert list(fit.feature_names_in_) == names


def test_resampled_rows_are_of_the_kind_given():
    X, y = IRIS
    frame, labels = pd.DataFrame(X), pd.Series(y)
    selector = CoresetSelector(6, strategy="herding", random_state=0)
    X_few, y_few = selector.fit_resample(frame, labels)
    assert list(X_few.index) == list(selector.indices_)
    np.testing.assert_array_equal(y_few, y[selector.indices_])


@pytest.mark.long
def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr(coreset_selector, "MOST_ROWS", 200)
    X, y = make_classification(2_000, n_features=16, weights=[0.995], random_state=0)
    fit = CoresetSelector(10, max_steps=20, random_state=0).fit(X, y)
    assert len(fit.result_.x) == 256
    assert fit.weights_.shape == (2_000,)
    assert set(y[fit.indices_].tolist()) == {0, 1}
    large = CoresetSelector(100, strategy="herding", random_state=0).fit(X, y)
    assert len(large.indices_) == 100


@pytest.mark.long
def test_kernel_features_tell_rings_apart(monkeypatch):
    monkeypatch.setattr(coreset_selector, "COMPONENTS", 16)  # as other tests have compiled for
    rng = np.random.default_rng(0)
    X = rng.standard_normal((250, 2))
    y = (np.linalg.norm(X, axis=1) > 1.18).astype(int)

    def score(selector):
        rows = selector.fit(X, y).indices_
        return SVC().fit(X[rows], y[rows]).score(X, y) if len(set(y[rows])) > 1 else 0.5

    ours, base = (
        np.mean([
            score(CoresetSelector(12, strategy=s, features="kernel", random_state=seed))
            for seed in range(5)
        ])
        for s in ("bilevel", "uniform")
    )  # fmt: skip
    assert ours > base + 0.03


X_BAD, Y_BAD = IRIS[0].copy(), IRIS[1]
X_BAD[3, 1] = np.inf


@pytest.mark.parametrize(
    ("settings", "data", "sentence"),
    [
        ({"size": 151}, IRIS, "size=151 is above the 150 rows that X has"),
        ({"size": 0}, IRIS, "size=0 is not usable"),
        ({"size": -3}, IRIS, "size=-3 is not usable"),
        ({"size": float("nan")}, IRIS, "size=nan is not usable"),
        ({"size": True}, IRIS, "size=True is not usable"),
        ({"size": "ten"}, IRIS, "size='ten' is not usable"),
        ({"size": 1.0}, IRIS, "size=1.0 may mean one row or all of them; give size=1 or size=150"),
        ({"size": 2.5}, IRIS, "neither a whole number of rows nor a share below 1"),
        ({"strategy": "bilvel"}, IRIS, "the nearest name is 'bilevel'"),
        ({"features": "kernl"}, IRIS, "the nearest name is 'kernel'"),
        ({"method": "atuo"}, IRIS, "the nearest name is 'auto'"),
        ({"max_steps": 0}, IRIS, "max_steps=0 is not usable"),
        ({}, (IRIS[0], np.zeros(150)), "y holds one class only, 0.0; expected"),
        ({}, (IRIS[0], IRIS[0][:, 0]), "Unknown label type: continuous"),
        ({}, (X_BAD, Y_BAD), "Input X contains infinity"),
        ({}, (IRIS[0], IRIS[1][:-1]), "inconsistent numbers of samples"),
    ],
)
def test_refusals(settings, data, sentence):
    with pytest.raises(ValueError, match=sentence):
        CoresetSelector(**settings).fit(*data)


@pytest.mark.process
def test_its_name_costs_no_import():
    code = (
        "import sys, untuned.estimators; "
        "sys.exit(bool({'jax', 'sklearn', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_limit_is_one_of_all_of_fit(monkeypatch):
    """What is left of it is all that a later part is given, and nothing where nothing is."""
    X, y = load_breast_cancer(return_X_y=True)
    limits, real = [], bilevel.minimize

    def watched(*given, **settings):
        limits.append((settings.get("max_seconds"), "callback" in settings))
        return real(*given, **settings)

    monkeypatch.setattr(bilevel, "minimize", watched)
    whole = CoresetSelector(size=10, max_seconds=1000.0, random_state=0).fit(X, y)
    assert [limit is None for limit, _ in limits] == [True, True, False, True]
    assert 900 < limits[2][0] < 1000  # what the start took is taken off
    assert limits[3][1]
    began = time.monotonic()
    none_left = bilevel.select(
        X / X.std(axis=0), y, 2, [np.arange(10) * 50], began=began - 60, max_seconds=60.0
    )
    assert none_left.result.steps == 0
    assert sorted(none_left.rows) == list(range(0, 500, 50))
    assert (none_left.weights == 1).all()
    assert whole.result_.status == "converged"
    with pytest.raises(ValueError, match="max_seconds=-1 is not usable"):
        CoresetSelector(size=10, max_seconds=-1).fit(X, y)
