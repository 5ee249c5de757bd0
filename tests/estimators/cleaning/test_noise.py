"""The noise model against brute force, closed forms and counts of a known kind."""

import numpy as np
import pytest
from scipy import optimize
from scipy.special import softmax

from untuned.estimators.cleaning import noise

TRANSITION = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.0, 0.3, 0.7]])


def sample(rows=400, transition=TRANSITION, seed=0):
    """A model's probabilities, right in the mean, and given labels; weights that are not alike."""
    rng = np.random.default_rng(seed)
    probabilities = softmax(3 * rng.normal(size=(rows, len(transition))), axis=1)
    of_given = probabilities @ transition
    given = (rng.random((rows, 1)) > of_given.cumsum(1)).sum(1)
    return probabilities, given, rng.uniform(0.5, 2, rows)


def test_estimate_is_the_most_likely_matrix(monkeypatch):
    """With nothing believed beforehand, brute force over matrices finds the same."""
    monkeypatch.setattr(noise, "PSEUDO_ROWS", (1e-6,))
    monkeypatch.setattr(noise, "SMALL", 1e-10)
    monkeypatch.setattr(noise, "MOST_ROUNDS", 20_000)
    probabilities, given, weight = sample()

    def unlikelihood(logits):
        mixture = probabilities @ softmax(logits.reshape(3, 3), axis=1)
        return -weight @ np.log(mixture[np.arange(len(given)), given])

    start = noise.uniform(0.2, 3)
    brute = optimize.minimize(unlikelihood, np.log(start).ravel(), tol=1e-10)
    found = noise.fit_transition(probabilities, given, weight, start)
    assert found == pytest.approx(softmax(brute.x.reshape(3, 3), axis=1), abs=2e-3)


def test_estimate_nears_the_truth():
    probabilities, given, _ = sample(20_000)
    found = noise.fit_transition(probabilities, given, np.ones(len(given)), noise.uniform(0.1, 3))
    assert found == pytest.approx(TRANSITION, abs=0.04)


def test_classes_are_drawn_together_where_they_are_alike():
    rng = np.random.default_rng(0)
    alike = np.stack([rng.multinomial(60, row) for row in noise.uniform(0.3, 4)])
    apart = np.stack([rng.multinomial(60, row) for row in np.roll(noise.uniform(0.0, 4), 1, 1)])
    apart = 0.5 * (apart + 60 * np.eye(4))

    def distance(joint):
        counted = joint / joint.sum(1, keepdims=True)
        return abs(noise.shrunk(joint.astype(float)) - counted).max()

    rate = 1 - np.trace(alike) / alike.sum()
    assert noise.shrunk(alike.astype(float)) == pytest.approx(noise.uniform(rate, 4), abs=0.05)
    assert distance(apart) < 0.03 < distance(alike)


def test_posterior_is_bayes_rule():
    found = noise.posterior(np.array([[0.5, 0.3, 0.2]]), TRANSITION, np.array([1]))
    joint = np.array([0.5 * 0.2, 0.3 * 0.9, 0.2 * 0.3])
    assert found[0] == pytest.approx(joint / joint.sum())


def test_noise_is_taken_out_of_probabilities():
    clean = sample(50)[0]
    clean = 0.9 * clean + 0.1 / 3
    found = noise.without_noise(clean @ TRANSITION, TRANSITION)
    assert abs(found - clean).mean() < 0.02 < abs(clean @ TRANSITION - clean).mean()


def test_first_guess_sees_how_much_noise_there_is():
    """From a model of the given labels, to which no label is wrong."""
    probabilities, given, _ = sample(20_000, noise.uniform(0.3, 3))
    of_given = probabilities @ noise.uniform(0.3, 3)
    guess = noise.first_guess(of_given, given, np.ones(len(given)))
    assert np.diagonal(guess) == pytest.approx(0.7, abs=0.1)
    assert guess.sum(1) == pytest.approx(1)
