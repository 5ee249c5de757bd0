"""The noise model against brute force, closed forms and counts of a known kind."""

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import softmax

from untuned.estimators.cleaning import noise
from untuned.estimators.cleaning import noise_limits as limits

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
    found = noise.fit_transition(noise.Predicted(probabilities, given, weight), start)
    assert found == pytest.approx(softmax(brute.x.reshape(3, 3), axis=1), abs=2e-3)


def test_estimate_nears_the_truth():
    probabilities, given, _ = sample(20_000)
    rows = noise.Predicted(probabilities, given, np.ones(len(given)))
    found = noise.fit_transition(rows, noise.uniform(0.1, 3))
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


def overlapping(rate, rows=6000, seed=0):
    """Rows between four classes in a ring, some of them surely of one; labels with noise."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0, 4, rows)[:, None]
    far = np.abs((place - np.arange(4) + 2) % 4 - 2)
    probabilities = softmax(-8 * far, axis=1)
    of_given = probabilities @ noise.uniform(rate, 4)
    return probabilities, (rng.random((rows, 1)) > of_given.cumsum(1)).sum(1)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_surest_rows_show_the_noise(rate):
    """The share of labels that differ from the likeliest class is far more than the noise."""
    probabilities, given = overlapping(rate)
    of_given = probabilities @ noise.uniform(rate, 4)
    most = limits.ceiling(noise.Predicted(of_given, given, np.ones(len(given))))
    assert (given != probabilities.argmax(1)).mean() > rate + 0.05
    assert most.overall == pytest.approx(rate, abs=0.03)
    assert most.by_class == pytest.approx(rate, abs=0.06)


def test_where_all_rows_are_alike_the_ceiling_is_seen_on_all():
    rng = np.random.default_rng(0)
    probabilities = rng.permutation(np.tile([[0.9, 0.1], [0.1, 0.9]], (500, 1)))
    given = np.where(rng.random(1000) < 0.1, probabilities.argmin(1), probabilities.argmax(1))
    most = limits.ceiling(noise.Predicted(probabilities, given, np.ones(1000)))
    assert most.overall == pytest.approx((given != probabilities.argmax(1)).mean(), abs=0.01)


def test_whether_the_surer_half_differs_less_is_weighed_by_its_evidence():
    """Judge: the two likelihoods, integrated over a grid of shares under Jeffreys' priors."""
    grid = (np.arange(2000) + 0.5) / 2000
    prior = stats.beta.pdf(grid, 0.5, 0.5) / len(grid)
    for sure, other in ((2, 12), (7, 8), (0, 30)):
        first, second = stats.binom.pmf(sure, 40, grid), stats.binom.pmf(other, 40, grid)
        alike = (prior * first * second).sum()
        below = np.cumsum(prior * first)  # of shares up to each one
        falls = 2 * (prior * second * below).sum()
        found = limits._falls(float(sure), 40.0, float(sure + other), 80.0)
        assert found == pytest.approx(falls / (falls + alike), abs=0.05)


def test_a_table_without_wrong_labels_has_no_suspects():
    assert len(noise.suspects(np.full(50, 0.99))) == 0
    assert noise.suspects(np.array([0.999, 0.03, 0.999])).tolist() == [1]


def test_suspects_have_the_largest_expected_f1():
    """Judge: F1 of drawn labels, over all numbers of rows that one could look at."""
    rng = np.random.default_rng(0)
    quality = np.sort(rng.beta(0.3, 0.3, 300))
    wrong = rng.random((4000, 300)) > quality
    found = np.cumsum(wrong, axis=1)
    scores = (2 * found / (np.arange(1, 301) + found[:, -1:])).mean(axis=0)
    assert scores[len(noise.suspects(quality)) - 1] == pytest.approx(scores.max(), abs=0.002)


def test_what_is_too_much_is_cut_from_the_largest_entries():
    """Judge: bisection for the level."""
    rng = np.random.default_rng(0)
    transition = rng.dirichlet([8, 1, 1, 1, 1], 5)
    transition = np.stack([np.roll(row, at) for at, row in enumerate(transition)])
    most = np.array([0.01, 0.05, 0.1, 0.2, 0.9])
    found = limits.limited(transition, most)
    assert found.sum(axis=1) == pytest.approx(1)
    for at, row in enumerate(transition):
        off = np.delete(row, at)
        level = off.max()
        if off.sum() > most[at]:
            level = optimize.brentq(
                lambda each, o=off, m=most[at]: np.minimum(o, each).sum() - m, 0, 1
            )
        assert np.delete(found[at], at) == pytest.approx(np.minimum(off, level), abs=1e-9)


def test_where_no_noise_can_be_none_is_left_and_none_is_negative():
    """Sums are rounded, so what is left after the cut could fall below zero."""
    rng = np.random.default_rng(0)
    for classes in (2, 3, 10):
        for _ in range(50):
            transition = rng.dirichlet(np.ones(classes), classes)
            found = limits.limited(transition, np.zeros(classes))
            assert found.min() >= 0
            assert found == pytest.approx(np.eye(classes), abs=1e-12)


def test_noise_between_neighbours_that_overlap_goes_to_all_alike():
    """The ring's neighbours overlap: what goes both ways is spread, and what goes one way stays."""
    probabilities, given = overlapping(0.0)
    weight = np.ones(len(given))
    near = np.roll(np.eye(4), 1, 1)
    both = 0.8 * np.eye(4) + 0.1 * near + 0.1 * near.T
    assert noise.without_overlap(both, probabilities, weight) == pytest.approx(
        noise.uniform(0.2, 4), abs=0.02
    )
    one_way = noise.without_overlap(0.8 * np.eye(4) + 0.2 * near, probabilities, weight)
    assert one_way[0] == pytest.approx([0.8, 0.2, 0, 0], abs=0.01)
    alike = noise.uniform(0.3, 4)
    assert noise.without_overlap(alike, probabilities, weight) == pytest.approx(alike, abs=0.02)


def test_noise_of_one_class_is_one_sided_and_an_exchange_is_not():
    rows, apart = np.full(3, 200.0), np.ones((3, 3))
    assert limits.one_sided(noise.uniform(0.3, 3), rows, apart).tolist() == [0, 0, 0]
    one = np.array([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert limits.one_sided(one, rows, apart) == pytest.approx([0.4, 0, 0])
    chance = np.array([[0.99, 0.01, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert limits.one_sided(chance, rows, apart).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("pair", "how_far", "believed"),
    [((0, 0), 0.5, 0.2), ((0, 1), 0.0, 0.0), ((1, 0), 0.0, 0.4), ((0, 2), 0.0, 0.4)],
)
def test_noise_between_classes_that_nobody_tells_apart_is_not_one_sided(pair, how_far, believed):
    apart = np.ones((3, 3))
    apart[pair] = how_far
    one = np.array([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert limits.one_sided(one, np.full(3, 200.0), apart)[0] == pytest.approx(believed)


def test_noise_is_raised_in_all_classes():
    found = noise.with_rate(TRANSITION, 0.5)
    assert found == pytest.approx(0.5 * (TRANSITION + np.eye(3)))
    assert noise.rate(
        TRANSITION, np.array([0, 1, 2, 2]), np.array([1, 1, 1, 0.0])
    ) == pytest.approx((0.3 + 0.1 + 0.3) / 3)


def test_counts_are_sums_of_posteriors():
    """Judge: the posterior of each row."""
    rng = np.random.default_rng(0)
    p, given, weight = rng.dirichlet(np.ones(3), 50), rng.integers(0, 2, 50), rng.random(50)
    expected = np.zeros((3, 3))  # nobody was given the last label
    np.add.at(expected.T, given, weight[:, None] * noise.posterior(p, TRANSITION, given))
    found = noise.CountsByLabel(noise.Predicted(p, given, weight)).counts(TRANSITION)
    np.testing.assert_allclose(found, expected)
