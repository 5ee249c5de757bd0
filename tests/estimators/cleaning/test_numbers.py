"""Wrong numbers: found by how far unseen predictions are off, in units of their own spread."""

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.datasets import load_diabetes
from sklearn.metrics import roc_auc_score

from untuned.estimators.cleaning import numbers
from untuned.estimators.cleaning.numbers import rate


def uneven(rows=400, seed=0):
    """A straight line whose labels scatter ten times as much on one side."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 2))
    scatter = np.where(X[:, 1] > 0, 1.0, 0.1)
    return X, 3 * X[:, 0] + scatter * rng.standard_normal(rows), scatter


@pytest.fixture(scope="module")
def found():
    X, y, scatter = uneven()
    wrong = np.zeros(len(y), bool)
    wrong[::20] = True
    y = np.where(wrong, y + np.where(scatter > 0.5, 8.0, 2.0), y)
    return rate(X, y), wrong, scatter, y


@pytest.mark.long
def test_wrong_numbers_have_the_lowest_quality(found):
    judged, wrong, _, _ = found
    assert roc_auc_score(wrong, -judged.quality) > 0.97
    assert wrong[judged.issues].mean() > 0.8
    assert (np.diff(judged.quality[judged.issues]) >= 0).all()
    assert judged.noise_rate == pytest.approx(0.05, abs=0.03)


def test_spread_is_that_of_the_rows_around(found):
    """An error of 2 is nothing on one side and much on the other."""
    judged, wrong, scatter, y = found
    wide, narrow = (np.median(judged.spread[scatter == size]) for size in (1.0, 0.1))
    assert wide > 2 * narrow
    beaten = roc_auc_score(wrong, np.abs(y - judged.predicted))
    assert roc_auc_score(wrong, -judged.quality) > beaten


@pytest.mark.parametrize(("share", "within"), [(0.0, 0.01), (0.2, 0.04), (0.4, 0.06)])
def test_the_share_of_swapped_numbers_is_found(share, within):
    """Predictions that explain nine tenths of the variance, with half of the spread too much."""
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=1500)
    y = predicted + 0.33 * rng.normal(size=1500)
    wrong = rng.random(1500) < share
    y[wrong] = rng.permutation(y[wrong])
    found = numbers._labelling(y, predicted, np.full(1500, 0.5), 0)
    assert found.rate == pytest.approx(share, abs=within)
    assert found.scale == pytest.approx(0.66, abs=0.1)


def test_where_nothing_is_predicted_few_numbers_are_doubted():
    """Any share of wrong ones explains such numbers equally well."""
    rng = np.random.default_rng(0)
    y, predicted, spread = rng.normal(size=300), 0.1 * rng.normal(size=300), np.ones(300)
    found = numbers._labelling(y, predicted, spread, 0)
    assert (found.quality(y, predicted, spread) < 0.5).mean() < 0.05


def test_the_density_of_labels_sums_to_one_and_is_known_far_out():
    y = np.append(np.random.default_rng(0).normal(size=3000), 500.0)
    places, density = numbers._density(y)
    assert np.trapezoid(density[:-1], places[:-1]) == pytest.approx(1, abs=0.01)
    assert np.interp(0.0, places, density) == pytest.approx(stats.norm.pdf(0), rel=0.1)
    assert density[-1] > 0


@pytest.mark.long
def test_units_make_no_difference(found):
    judged, _, _, y = found
    X, _, _ = uneven()
    other = rate(X, 1e6 * y - 5e8)
    # A tie between two splits of a tree may be decided by rounding, which moves a few rows.
    for these, those in (
        (other.quality, judged.quality),
        ((other.predicted + 5e8) / 1e6, judged.predicted),
    ):
        assert np.quantile(np.abs(these - those), 0.98) < 0.02


@pytest.mark.long
def test_trusted_rows_are_learned_from_and_not_judged():
    X, y = load_diabetes(return_X_y=True)
    judged = rate(X[:150], y[:150], X[150:], y[150:])
    assert judged.quality.shape == judged.predicted.shape == (150,)
    alone = rate(X[:150], y[:150])
    error = lambda found: np.abs(found.predicted - y[:150]).mean()
    assert error(judged) < error(alone)


@pytest.mark.long
def test_sparse_rows_are_judged_too():
    X, y, _ = uneven()
    y[7] = 100.0
    judged = rate(sparse.csr_matrix(X), y)
    assert 7 in judged.issues[:2]
    assert judged.weights == {"linear": 1.0}


def test_the_model_is_one_of_the_numbers_believed(found):
    judged, wrong, _, y = found
    X, _, _ = uneven()
    error = y - X @ judged.coef - judged.intercept
    assert np.abs(error[~wrong]).mean() < 0.8
    np.testing.assert_allclose(judged.coef, [3, 0], atol=0.3)


def test_few_numbers_are_refused():
    with pytest.raises(ValueError, match="There are 5 numbers; expected at least 10"):
        rate(np.ones((5, 1)), np.arange(5.0))
