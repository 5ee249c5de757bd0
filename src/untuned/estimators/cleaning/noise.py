"""How labels come to be wrong: P(given label | true label) as a matrix, and what follows from it.

Rows are true classes, columns given ones. `probabilities` are a model's, one row per sample, of
rows it has not been trained on; `given` are whole numbers, the columns of the labels given.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

PSEUDO_ROWS = 10.0 ** np.arange(6)  # per class, in favour of the same noise in all of them
MOST_ROUNDS, SMALL = 200, 1e-5
STEPS = 30  # of Richardson's iteration
TINY = 1e-30  # keeps quotients of probabilities finite


def uniform(rate: float, classes: int) -> np.ndarray:
    """A share `rate` of each class goes to all others alike."""
    transition = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(transition, 1 - rate)
    return transition


def first_guess(probabilities: np.ndarray, given: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The matrix, from a model that was itself trained on the given labels.

    Such a model believes the noise, so its probabilities fit the given labels without any. But it
    can be asked which class a row surely is: one whose probability is at least what it is on
    average where that label is given (Northcutt, Jiang and Chuang, "Confident learning"). Where
    classes overlap this sees noise that is the model's own doubt, so the guess goes half way to the
    same noise in all classes.
    """
    classes = probabilities.shape[1]
    own = probabilities[np.arange(len(given)), given]
    counts = np.bincount(given, weight, classes)
    threshold = np.bincount(given, weight * own, classes) / np.maximum(counts, TINY)
    sure = probabilities >= threshold
    true = np.where(sure, probabilities, -1).argmax(1)
    joint = np.zeros((classes, classes))
    some = sure.any(1)
    np.add.at(joint, (true[some], given[some]), weight[some])
    joint += np.diag(counts) * 1e-3  # a class of which no row is sure is not all wrong
    joint *= counts / np.maximum(joint.sum(0), TINY)  # as many of each given label as there are
    rate = 1 - np.trace(joint) / joint.sum()
    return 0.5 * (shrunk(joint) + uniform(rate, classes))


def shrunk(joint: np.ndarray) -> np.ndarray:
    """The matrix from counts of (true, given), drawn towards the same noise in all classes.

    How far is itself estimated: the counts of a class are drawn by a Dirichlet law around that
    noise, and its strength is the likeliest of `PSEUDO_ROWS`.
    """
    totals = joint.sum(1)
    rate = 1 - np.trace(joint) / totals.sum()
    same = uniform(rate, len(joint)) + TINY
    strength = max(PSEUDO_ROWS, key=lambda rows: _evidence(joint, rows * same))
    return (joint + strength * same) / (totals + strength)[:, None]


def _evidence(joint: np.ndarray, prior: np.ndarray) -> float:
    """The logarithm of the likelihood of counts drawn by Dirichlet laws, one for each row."""
    by_row = gammaln(prior.sum(1)) - gammaln((prior + joint).sum(1))
    return float(by_row.sum() + (gammaln(prior + joint) - gammaln(prior)).sum())


def posterior(
    probabilities: np.ndarray, transition: np.ndarray, given: np.ndarray
) -> np.ndarray:  # fmt: skip
    """P(true label | features, given label), one row per sample."""
    joint = probabilities * transition.T[given]
    return joint / np.maximum(joint.sum(1, keepdims=True), TINY)


def without_noise(probabilities: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Probabilities of true labels, from a model's of given ones.

    The p >= 0 whose mixture p @ transition is nearest in likelihood, by Richardson's iteration.
    """
    clean = probabilities.copy()
    for _ in range(STEPS):
        ratio = probabilities / np.maximum(clean @ transition, TINY)
        clean *= ratio @ transition.T
        clean /= clean.sum(1, keepdims=True)
    return clean


def fit_transition(
    probabilities: np.ndarray, given: np.ndarray, weight: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """The most likely matrix, given a model of true labels, by expectation and maximization.

    It maximizes sum_i weight_i log sum_j p_ij T_j,given(i), drawn as `shrunk` says.
    """
    transition = start
    rows = np.arange(len(given))
    to_given = csr_array((weight, (given, rows)), shape=(len(start), len(given)))
    for _ in range(MOST_ROUNDS):
        new = shrunk((to_given @ posterior(probabilities, transition, given)).T)
        moved = abs(new - transition).max()
        transition = new
        if moved < SMALL:
            break
    return transition
