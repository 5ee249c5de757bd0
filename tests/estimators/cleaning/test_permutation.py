"""Noise that takes each class for one other."""

from itertools import permutations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import make_friedman1
from sklearn.metrics import roc_auc_score

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import noise
from untuned.estimators.cleaning import simple_transitions as forms
from untuned.estimators.cleaning.noise import Predicted

ROWS = 3000


def drawn(transition, seed=0, sure=2.0, rows=ROWS):
    """Rows whose labels come of such noise, with probabilities of true labels that are right."""
    rng = np.random.default_rng(seed)
    p = softmax(sure * rng.normal(size=(rows, len(transition))), axis=1)
    said = p @ transition
    given = (rng.random((rows, 1)) > said.cumsum(axis=1)).sum(axis=1)
    return Predicted(p, given, np.ones(rows))


@pytest.mark.parametrize("other", [[1, 2, 0], [2, 0, 3, 1], [3, 4, 0, 1, 5, 2]])
def test_which_class_each_is_taken_for_and_how_often(other):
    true = forms.Permutation(np.array(other), 0.25, 0.06)
    found = forms.fit_permutation(drawn(true.matrix()))
    np.testing.assert_array_equal(found.permutation, other)
    assert found.to_it == pytest.approx(0.25, abs=0.03)
    assert found.to_any == pytest.approx(0.06, abs=0.03)
    again = forms.fit_permutation(drawn(true.matrix()), np.array(other))
    assert again.to_it == pytest.approx(found.to_it, abs=1e-3)


def test_the_permutation_is_the_likeliest_of_all():
    """Judge: every permutation without a class that stays, one by one."""
    rows = drawn(noise.uniform(0.3, 4), rows=300)  # that shows none, so any may be best
    found = forms.fit_permutation(rows)

    def likelihood(other):
        matrix = forms.Permutation(np.array(other), found.to_it, found.to_any).matrix()
        return np.log((rows.probabilities * matrix.T[rows.given]).sum(axis=1)).sum()

    moved = [each for each in permutations(range(4)) if all(np.array(each) != np.arange(4))]
    assert max(moved, key=likelihood) == tuple(found.permutation)


def test_the_matrix_has_no_more_noise_than_it_may():
    some = forms.Permutation(np.array([1, 2, 0]), 0.3, 0.1)
    for most, rate in ((1.0, 0.4), (0.2, 0.2)):
        matrix = some.matrix(most)
        np.testing.assert_allclose(matrix.sum(axis=1), 1)
        np.testing.assert_allclose(np.diagonal(matrix), 1 - rate)
        np.testing.assert_allclose(matrix[[0, 1, 2], [1, 2, 0]], rate * (0.75 + 0.125))


@pytest.mark.parametrize(
    ("other", "mutual"), [([1, 2, 0, 4, 5, 3], False), ([1, 0, 3, 4, 2], True)]
)
def test_classes_that_are_taken_for_each_other(other, mutual):
    assert forms.Permutation(np.array(other), 0.1, 0.1).mutual() is mutual


def test_entries_cost_what_is_learned_of_them():
    """Next to nothing where all are alike, about half the logarithm of rows for each where not."""
    rng = np.random.default_rng(0)
    free = 0.7 * np.eye(4) + 0.3 * rng.dirichlet(np.ones(4), 4)
    alike, several = noise.uniform(0.2, 4), drawn(free)
    assert abs(forms.price_of_entries(drawn(alike), alike)) < 6
    found = noise.fit_transition(several, free)
    assert 20 < forms.price_of_entries(several, found) < 12 * 0.5 * np.log(ROWS)


def test_ordered_classes_are_not_taken_for_both_neighbours():
    """Fifths of a number: a matrix says that the second is taken for the first, and likelier."""
    X, number = make_friedman1(700, 6, noise=1.0, random_state=0)
    true = np.digitize(number, np.quantile(number, [0.2, 0.4, 0.6, 0.8]))
    wrong = np.random.default_rng(0).random(700) < 0.35
    cleaner = LabelCleaner(random_state=0).fit(X, np.where(wrong, (true + 1) % 5, true))
    entries = cleaner.transition_ * (1 - np.eye(5))
    np.testing.assert_array_equal(entries.argmax(axis=1), [1, 2, 3, 4, 0])
    assert roc_auc_score(wrong, -cleaner.quality_) > 0.75


def test_labels_that_go_to_two_others_are_not_put_down_to_one():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 5, 600)
    X = 2 * rng.normal(size=(5, 5))[true] + 0.5 * rng.normal(size=(600, 5))
    to = (true + rng.integers(1, 3, 600)) % 5
    given = np.where(rng.random(600) < 0.4, to, true)
    found = LabelCleaner(random_state=0).fit(X, given).transition_
    for away in (1, 2):
        assert found[np.arange(5), (np.arange(5) + away) % 5].min() > 0.1
