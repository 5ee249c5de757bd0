"""Which form of noise is believed, of several that explain the labels, and its least rate."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, softmax

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import em, noise
from untuned.estimators.cleaning.cross_fit import Settings, Task

CLASSES = 4
NEXT = 0.75 * np.eye(CLASSES) + 0.25 * np.roll(np.eye(CLASSES), 1, 1)


def noisiest_entries(transition, seed):
    """The largest and the smallest entry of the noise that is found, and its rate.

    The model is exactly right about given labels.
    """
    rng = np.random.default_rng(seed)
    probabilities = softmax(2 * rng.normal(size=(600, CLASSES)), axis=1) @ transition
    given = (rng.random((600, 1)) > probabilities.cumsum(axis=1)).sum(axis=1)
    cleaner = LabelCleaner(random_state=0).fit(None, given, pred_probs=probabilities)
    entries = cleaner.transition_[~np.eye(CLASSES, dtype=bool)]
    return entries.max(), entries.min(), cleaner.noise_rate_


@pytest.mark.parametrize("seed", range(3))
def test_of_noises_as_likely_the_one_that_is_a_single_number(seed):
    most, least, _ = noisiest_entries(noise.uniform(0.2, CLASSES), seed)
    assert most == pytest.approx(least)


def test_it_does_not_win_by_a_lower_rate():
    """No noise at all is as likely, since the model knows the noise."""
    most, least, rate = noisiest_entries(NEXT, 0)
    assert most > 10 * least
    assert rate > 0.2


def test_a_matrix_that_is_worth_its_entries_stays(monkeypatch):
    monkeypatch.setattr(em.Estimator, "_or_uniform", lambda self, logs_given, found: found)
    kept = [noisiest_entries(noise.uniform(0.2, CLASSES), seed)[:2] for seed in range(6)]
    assert any(most > 1.05 * least for most, least in kept)


ROWS, RATED = 1500, 3


def labelled(sureness, rate):
    """The logarithms of true probabilities, and labels given with so much noise."""
    rng = np.random.default_rng(0)
    logs = log_softmax(sureness * rng.normal(size=(ROWS, RATED)), axis=1)
    of_given = np.exp(logs) @ noise.uniform(rate, RATED)
    return logs, (rng.random((ROWS, 1)) > of_given.cumsum(axis=1)).sum(axis=1)


def by_scipy(logs, given, rate):
    """The share below the believed one at which likelihood has fallen by 2 (in logarithms), with a
    weight of the model and offsets that SciPy finds anew for each share."""

    def lost(share):
        likelihood = noise.uniform(share, RATED)[:, given].T

        def loss(x):
            p = np.exp(log_softmax(x[0] * logs + x[1:], axis=1))
            return -np.log((p * likelihood).sum(axis=1)).sum()

        return minimize(loss, np.append(1.0, np.zeros(RATED))).fun

    likeliest = min(lost(share) for share in np.linspace(0.5, 1.1, 7) * rate)
    if lost(1e-3) < likeliest + 2:
        return 0.0
    return brentq(lambda share: lost(share) - likeliest - 2, 1e-3, rate, xtol=1e-3)


@pytest.mark.parametrize(("sureness", "rate"), [(6, 0.05), (4, 0.2), (6, 0.4), (1, 0.2)])
def test_the_least_share_is_where_likelihood_has_fallen(sureness, rate):
    """Of a model that is sure of hardly any row, no noise is as likely."""
    logs, given = labelled(sureness, rate)
    nobody, one = np.zeros(ROWS, bool), np.zeros(ROWS, int)
    order, settings = np.arange(ROWS), Settings()
    task = Task(None, given, np.ones(ROWS), nobody, one, 1, RATED, 0, order, settings)
    estimator = em.Estimator(task)
    found = estimator.pooled(lambda _: logs[None], noise.uniform(rate, RATED), np.ones(1))
    least = estimator.least_rate(lambda _: logs[None], found)
    assert least == pytest.approx(by_scipy(logs, given, rate), abs=0.012)
    assert (least == 0) == (sureness == 1)
    hurried = em.Estimator(replace(task, settings=Settings(seconds=-np.inf)))
    assert hurried.least_rate(lambda _: logs[None], found) == 0


def test_people_who_err_where_classes_look_alike():
    """Labels of clear rows are all right, those near the border wrong in two of five cases: what
    looks like overlap is no suspect, but it is disputed, and the range goes up to it."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 2)).astype(np.float32)
    true = (X[:, 0] > 0).astype(int)
    wrong = (abs(X[:, 0]) < 0.5) & (rng.random(1000) < 0.4)
    cleaner = LabelCleaner(random_state=0).fit(X, np.where(wrong, 1 - true, true))
    low, high = cleaner.noise_range_
    assert low <= cleaner.noise_rate_ < 0.5 * wrong.mean() < high == len(cleaner.disputed_) / 1000
    assert np.isin(np.flatnonzero(wrong), cleaner.disputed_).mean() > 0.7
    assert (np.diff(cleaner.quality_[cleaner.disputed_]) >= 0).all()
