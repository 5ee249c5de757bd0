"""The range of shares of wrong labels, and the labels that judges would not give."""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import hearing, noise
from untuned.estimators.cleaning.folds import Task
from untuned.estimators.cleaning.least_rate import least_rate

ROWS, CLASSES = 1500, 3


def labelled(sureness, rate):
    """What a judge who is right says of true labels, and labels given with so much noise."""
    rng = np.random.default_rng(0)
    said = log_softmax(sureness * rng.normal(size=(ROWS, CLASSES)), axis=1)
    of_given = np.exp(said) @ noise.uniform(rate, CLASSES)
    return said, (rng.random((ROWS, 1)) > of_given.cumsum(axis=1)).sum(axis=1)


def by_scipy(said, given, rate):
    """The share below the believed one at which likelihood has fallen by 2 (in logarithms), with a
    weight of the judge and offsets that SciPy finds anew for each share."""

    def lost(share):
        likelihood = noise.uniform(share, CLASSES)[:, given].T

        def loss(x):
            p = np.exp(log_softmax(x[0] * said + x[1:], axis=1))
            return -np.log((p * likelihood).sum(axis=1)).sum()

        return minimize(loss, np.append(1.0, np.zeros(CLASSES))).fun

    likeliest = min(lost(share) for share in np.linspace(0.5, 1.1, 7) * rate)
    if lost(1e-3) < likeliest + 2:
        return 0.0
    return brentq(lambda share: lost(share) - likeliest - 2, 1e-3, rate, xtol=1e-3)


@pytest.mark.parametrize(("sureness", "rate"), [(6, 0.05), (4, 0.2), (6, 0.4), (1, 0.2)])
def test_the_least_share_is_where_likelihood_has_fallen(sureness, rate):
    """Of a judge who is sure of hardly any row, no noise is as likely."""
    said, given = labelled(sureness, rate)
    nobody, one = np.zeros(ROWS, bool), np.zeros(ROWS, int)
    task = Task(None, given, np.ones(ROWS), nobody, one, 1, CLASSES, 0, np.arange(ROWS))
    heard = hearing.Hearing(task, {}, np.inf)
    found = heard.pooled(lambda _: said[None], noise.uniform(rate, CLASSES), np.ones(1))
    least = least_rate(heard, lambda _: said[None], found)
    assert least == pytest.approx(by_scipy(said, given, rate), abs=0.012)
    assert (least == 0) == (sureness == 1)
    assert least_rate(hearing.Hearing(task, {}, -np.inf), lambda _: said[None], found) == 0


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
