"""Every estimator in pipelines and frames, with weights, kept in files; and what says nothing."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skops import io as skops

from untuned.estimators import (
    BilevelElasticNet,
    BilevelGamma,
    BilevelLasso,
    BilevelLogisticRegression,
    BilevelPoisson,
    BilevelRidge,
)

MODELS = [
    BilevelRidge(random_state=0),
    BilevelLasso(cv=3, max_steps=2, random_state=0),
    BilevelElasticNet(cv=3, max_steps=2, penalty="all", random_state=0),
    BilevelLogisticRegression(cv=3, max_steps=2, random_state=0),
    BilevelLogisticRegression(cv=3, max_steps=2, norm="l1", random_state=0),
    BilevelPoisson(cv=3, max_steps=2, random_state=0),
    BilevelGamma(cv=3, max_steps=2, random_state=0),
]


def table(model):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(120, 5)), columns=list("abcde"))
    y = frame["a"].to_numpy() + random.normal(size=120)
    if isinstance(model, BilevelLogisticRegression):
        return frame, np.where(y > 0, "yes", "no")
    if isinstance(model, BilevelPoisson):
        return frame, np.round(np.exp(0.5 * y))
    return frame, np.exp(y) if isinstance(model, BilevelGamma) else y


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__} {m.norm}")
def test_kept_in_files(model):
    frame, y = table(model)
    fitted = make_pipeline(StandardScaler().set_output(transform="pandas"), model).fit(frame, y)
    assert list(fitted[-1].feature_names_in_) == list("abcde")
    kept = skops.dumps(fitted)
    foreign = skops.get_untrusted_types(data=kept)
    assert all(name.startswith("untuned.") for name in foreign)
    for again in (pickle.loads(pickle.dumps(fitted)), skops.loads(kept, trusted=foreign)):
        np.testing.assert_array_equal(again.predict(frame), fitted.predict(frame))
        history, before = again[-1].result_.history, fitted[-1].result_.history
        assert history.records == before.records
        np.testing.assert_array_equal(history["outer"], before["outer"])
        np.testing.assert_array_equal(again[-1].path_.loss, fitted[-1].path_.loss)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__} {m.norm}")
def test_a_weight_of_zero_leaves_a_row_out(model):
    frame, y = table(model)
    X, weight = frame.to_numpy(), np.r_[np.zeros(20), np.ones(100)]
    pairs = [(np.arange(20, 70), np.arange(70, 120)), (np.arange(70, 120), np.arange(20, 70))]
    model = type(model)(**model.get_params() | {"cv": pairs, "penalty": "all"})
    part = type(model)(**model.get_params() | {"cv": [(a - 20, b - 20) for a, b in pairs]})
    spoilt = X.copy()
    spoilt[:20] += 1.0
    model.fit(spoilt, y, sample_weight=weight)
    part.fit(X[20:], y[20:])
    np.testing.assert_allclose(model.coef_, part.coef_, rtol=1e-3, atol=1e-5)


def test_more_folds_than_rows_of_a_class():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 3)), np.r_[np.zeros(56, int), np.ones(4, int)]
    words = "cv=6 asks for more folds than the rarest class has rows, 4; in some folds it is not"
    with pytest.warns(UserWarning, match=words):
        BilevelLogisticRegression(cv=6, penalty="all", random_state=0).fit(X, y)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__} {m.norm}")
def test_rows_and_columns_of_zeros(model):
    """They say nothing: a column gets no weight, and a row is like any other."""
    frame, y = table(model)
    X = frame.to_numpy().copy()
    X[:, 3] = 0
    X[5:8] = 0
    fitted = model.fit(X, y)
    assert not np.atleast_2d(fitted.coef_)[:, 3].any()
    assert np.isfinite(fitted.coef_).all()
    fitted.fit(0 * X, y)
    assert not np.atleast_2d(fitted.coef_).any()


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_class_of_one_row(norm):
    """Folds without that row have nothing to say about its intercept, and say it."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2))
    y = np.r_[2, (X[1:, 0] > 0).astype(int)]
    model = BilevelLogisticRegression(norm=norm, random_state=0).fit(X, y)
    chances = model.predict_proba(X)
    assert np.isfinite(chances).all()
    assert chances[:, 2].mean() == pytest.approx(1 / 60, rel=0.01)
