"""Noise of few pairs of classes, against counts of a known kind and brute force."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import softmax
from sklearn.metrics import average_precision_score

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import em, noise
from untuned.estimators.cleaning import simple_transitions as pairs
from untuned.estimators.cleaning.cross_fit import Settings, Task

CLASSES = 8
NEXT = 0.75 * np.eye(CLASSES) + 0.25 * np.roll(np.eye(CLASSES), 1, 1)
ANY = np.ones(CLASSES)


def sample(transition, rows=400, seed=0):
    """A model of true labels, and labels that were given by such noise; about fifty per class."""
    rng = np.random.default_rng(seed)
    probabilities = softmax(4 * rng.normal(size=(rows, CLASSES)), axis=1)
    given = (rng.random((rows, 1)) > (probabilities @ transition).cumsum(1)).sum(1)
    return noise.Predicted(probabilities, given, rng.uniform(0.5, 1.5, rows))


def test_each_class_and_the_one_it_is_taken_for_are_found():
    rows = sample(NEXT)
    found, kept = pairs.with_pairs(rows, noise.uniform(0.3, CLASSES), ANY)
    assert kept.tolist() == np.roll(np.eye(CLASSES, dtype=bool), 1, 1).tolist()
    drawn = noise.fit_transition(rows, noise.uniform(0.3, CLASSES))
    assert abs(found - NEXT).sum() < 0.7 * abs(drawn - NEXT).sum()


def test_noise_that_is_alike_has_next_to_no_pairs():
    """Of 560 that there could be in ten samples, by chance."""
    count = 0
    for seed in range(10):
        rows = sample(noise.uniform(0.25, CLASSES), seed=seed)
        found, kept = pairs.with_pairs(rows, noise.uniform(0.3, CLASSES), ANY)
        count += np.count_nonzero(kept)
        if not kept.any():
            assert found == pytest.approx(noise.uniform(1 - found[0, 0], CLASSES))
            assert found[0, 0] == pytest.approx(0.75, abs=0.07)
    assert count <= 2


def test_there_is_no_more_noise_than_there_may_be():
    most = np.linspace(0.05, 0.4, CLASSES)
    found, kept = pairs.with_pairs(sample(NEXT), noise.uniform(0.3, CLASSES), most)
    assert found.sum(axis=1) == pytest.approx(1)
    assert (1 - np.diagonal(found) <= most + 1e-12).all()
    assert 1 - found[0, 0] == pytest.approx(most[0])
    assert np.diagonal(np.roll(kept, -1, 1)).all()


def test_the_worth_of_a_pair_is_what_the_likelihood_loses_without_it():
    rows = sample(NEXT)
    probabilities, given, weight = rows
    own = np.zeros((CLASSES, CLASSES))
    own[0, 1], own[3, 6] = 0.2, 0.01
    worth = pairs._worth(rows, NEXT + own - np.diag(own.sum(axis=1)), own)

    def likelihood(transition):
        return weight @ np.log((probabilities @ transition)[np.arange(len(given)), given])

    for pair in ((0, 1), (3, 6)):
        without = NEXT + own - np.diag(own.sum(axis=1))
        full = likelihood(without)
        without[pair] -= own[pair]
        without[pair[0], pair[0]] += own[pair]
        assert worth[pair] == pytest.approx(full - likelihood(without))
    assert np.count_nonzero(worth) == 2


def test_of_short_texts_whose_labels_went_to_the_next_class(monkeypatch):
    """Fifty texts of twelve words for each class: models are sure of few of them."""

    def precision(seed):
        rng = np.random.default_rng(seed)
        true = np.arange(500) % 10
        often = np.where(np.arange(300) % 10 == np.arange(10)[:, None], 6.0, 1.0)
        X = np.sqrt([rng.multinomial(12, often[each] / often[each].sum()) for each in true])
        X = csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True))
        wrong = rng.random(500) < 0.25
        cleaner = LabelCleaner("linear", folds=4, random_state=0).fit(X, (true + wrong) % 10)
        return average_precision_score(wrong, -cleaner.quality_)

    seeds = range(1, 4)
    assert np.mean([precision(seed) for seed in seeds]) > 0.8
    monkeypatch.setattr(em, "ABOUT_AS_LIKELY", np.inf)
    assert np.mean([precision(seed) for seed in seeds]) < 0.75


def test_pairs_are_believed_if_clear_rows_show_them_and_most_classes_have_one():
    """Three classes, two of which nobody tells apart, and labels of one of these that go astray.

    The noise of pairs is likelier, but by rows between the two classes alone.
    """
    rows = 200
    undecided, clear = np.tile([0.5, 0.5, 0.0], (rows, 1)), np.tile([0.0, 0.02, 0.98], (rows, 1))
    probabilities = np.concatenate([undecided, clear])
    task = Task(
        None, np.repeat([0, 2], rows), np.ones(2 * rows), np.zeros(2 * rows, bool),
        np.zeros(2 * rows, int), 1, 3, 0, np.arange(2 * rows), Settings(),
    )  # fmt: skip
    estimator = em.Estimator(task)
    none, astray = np.eye(3), np.array([[1.0, 0, 0], [0.4, 0.6, 0], [0, 0, 1.0]])
    both = np.array([[False, True, False], [True, False, False], [False, False, False]])
    found = em.Estimate(None, none, none, probabilities)
    other = em.Estimate(None, astray, astray, probabilities, em.Form(pairs=both))
    assert estimator.log_likelihood(other) > estimator.log_likelihood(found) + 50
    assert not estimator._pairs_are_better(found, other)
    surer = np.concatenate([undecided, np.tile([0, 0.002, 0.998], (rows, 1))])
    seen = other._replace(probabilities=surer)
    assert estimator.log_likelihood(seen) < estimator.log_likelihood(other) + 4
    assert not estimator._pairs_are_better(found, seen)  # 3.6 is too little for two pairs
    seen = other._replace(probabilities=np.concatenate([undecided, np.tile([0, 0, 1.0], (200, 1))]))
    assert estimator._pairs_are_better(found, seen)
    fewer = seen._replace(form=em.Form(pairs=both & [[True], [False], [False]]))
    assert not estimator._pairs_are_better(found, fewer)
