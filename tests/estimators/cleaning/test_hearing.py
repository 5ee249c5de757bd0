"""Which noise is believed, of several that explain the labels."""

import numpy as np
import pytest
from scipy.special import softmax

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import hearing, noise

CLASSES = 4
NEXT = 0.75 * np.eye(CLASSES) + 0.25 * np.roll(np.eye(CLASSES), 1, 1)


def noisiest_entries(transition, seed):
    """The largest and the smallest entry of the noise that is found, and its rate.

    The judge is exactly right about the labels as they were given.
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
    """No noise at all is as likely, since the judge knows the noise."""
    most, least, rate = noisiest_entries(NEXT, 0)
    assert most > 10 * least
    assert rate > 0.2


def test_a_matrix_that_is_worth_its_entries_stays(monkeypatch):
    monkeypatch.setattr(hearing, "ABOUT_AS_LIKELY", -1e9)  # nothing is about as likely
    kept = [noisiest_entries(noise.uniform(0.2, CLASSES), seed)[:2] for seed in range(6)]
    assert any(most > 1.05 * least for most, least in kept)
