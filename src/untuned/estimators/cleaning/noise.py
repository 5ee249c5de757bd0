"""The transition matrix P(given label | true label): how it is estimated, and what follows from it.

Rows are true classes, columns given ones. `probabilities` are out-of-fold, one row per sample;
`given` are whole numbers, the columns of the given labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

PSEUDO_ROWS = 10.0 ** np.arange(6)  # per class, in favour of the same noise in all of them
MOST_ROUNDS, SMALL = 200, 1e-5
SLIPS = 0.05  # share of trusted labels that are wrong all the same
STEPS = 30  # of Richardson's iteration
BLOCK = 2**14  # entries that are looked at together: classes by rows, in the cache
TINY = 1e-30  # keeps quotients of probabilities finite
MISJUDGED = 0.1  # share of rows between two classes, about which a model may be wrong
DECIDED = 0.9  # probability of the likeliest class, of which a row is said to be


class Predicted(NamedTuple):
    """Rows: a model's probabilities of true labels, the given labels, and weights."""

    probabilities: np.ndarray
    given: np.ndarray
    weight: np.ndarray


def uniform(rate: float, classes: int) -> np.ndarray:
    """A share `rate` of each class goes to all others alike."""
    transition = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(transition, 1 - rate)
    return transition


def shrunk(joint: np.ndarray) -> np.ndarray:
    """The matrix from counts of (true, given), drawn towards the same noise in all classes.

    How far is itself estimated: the counts of a class are drawn by a Dirichlet law around that
    noise, and its strength is the likeliest of `PSEUDO_ROWS`.
    """
    totals = joint.sum(1)
    rate = 1 - np.trace(joint) / totals.sum()
    same = uniform(rate, len(joint)) + TINY
    strength = max(PSEUDO_ROWS, key=lambda rows: evidence(joint, rows * same))
    return (joint + strength * same) / (totals + strength)[:, None]


def evidence(joint: np.ndarray, prior: np.ndarray) -> float:
    """The logarithm of the likelihood of counts drawn by Dirichlet laws, one for each row."""
    by_row = gammaln(prior.sum(1)) - gammaln((prior + joint).sum(1))
    return float(by_row.sum() + (gammaln(prior + joint) - gammaln(prior)).sum())


def likelihood(transition: np.ndarray, given: np.ndarray, trusted: np.ndarray) -> np.ndarray:
    """P(given label | true label j), one row per sample; whoever checks labels errs at times."""
    checked = uniform(SLIPS, len(transition))
    return np.where(trusted[:, None], checked[given], transition.T[given])


def posterior(
    probabilities: np.ndarray, transition: np.ndarray, given: np.ndarray
) -> np.ndarray:  # fmt: skip
    """P(true label | features, given label), one row per sample."""
    joint = probabilities * transition.T[given]
    return joint / np.maximum(joint.sum(1, keepdims=True), TINY)


def suspects(quality: np.ndarray) -> np.ndarray:
    """The rows to look at, the worst first: as many as make the expected F1 largest.

    With k rows looked at, of which quality says h are wrong, and w wrong labels in all, that is
    2 h / (k + w). No more rows than w, so that a table without wrong labels has no suspects; but
    all whose label is more likely wrong than right.
    """
    order = np.argsort(quality, kind="stable")
    found = np.cumsum(1 - quality[order])
    expected = 2 * found / (np.arange(1, len(quality) + 1) + found[-1])
    balanced = min(int(expected.argmax()) + 1, int(found[-1]))
    return order[: max(balanced, np.count_nonzero(quality < 0.5))]


def without_noise(probabilities: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Probabilities of true labels, from a model's of given ones.

    The p >= 0 whose mixture p @ transition is nearest in likelihood, by Richardson's iteration.
    """
    found = np.empty(probabilities.shape)
    back, forth = transition.astype(np.float32), transition.T.astype(np.float32)
    most = max(1, BLOCK // len(transition))
    for start in range(0, len(probabilities), most):
        part = slice(start, start + most)
        given = probabilities[part].T.astype(np.float32, order="C")
        clean = given.copy()
        for _ in range(STEPS):
            ratio = forth @ clean
            np.maximum(ratio, TINY, out=ratio)
            np.divide(given, ratio, out=ratio)
            clean *= back @ ratio  # sums to one as it did
        found[part] = clean.T
    return found / found.sum(axis=1, keepdims=True)


def fit_transition(rows: Predicted, start: np.ndarray) -> np.ndarray:
    """The most likely matrix, given a model of true labels, by expectation and maximization.

    It maximizes sum_i weight_i log sum_j p_ij T_j,given(i), drawn as `shrunk` says.
    """
    transition, by_label = start, CountsByLabel(rows)
    for _ in range(MOST_ROUNDS):
        new = shrunk(by_label.counts(transition))
        moved = abs(new - transition).max()
        transition = new
        if moved < SMALL:
            break
    return transition


class CountsByLabel:
    """Rows in the order of given labels, so that each count of them is quick."""

    def __init__(self, rows: Predicted):
        probabilities, given, weight = rows
        order = np.argsort(given, kind="stable")
        ends = np.cumsum(np.bincount(given, minlength=probabilities.shape[1]))[:-1]
        self.parts = list(
            zip(np.split(probabilities[order], ends), np.split(weight[order], ends), strict=True)
        )

    def counts(self, transition: np.ndarray) -> np.ndarray:
        """How many rows there are of (true, given) by `posterior`, the labels being known."""
        found = np.empty(transition.shape)
        for label, (probabilities, weight) in enumerate(self.parts):
            total = np.maximum(probabilities @ transition[:, label], TINY)
            found[:, label] = (weight / total) @ probabilities
        return found * transition


def without_overlap(
    transition: np.ndarray, probabilities: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """The matrix with as much noise in each class, but without its pairs of classes that overlap.

    Classes that overlap are taken for each other in both directions, so only what goes one way more
    often than the other stays, less a share `MISJUDGED` of the rows between the two classes, which
    count as p_j p_k. All other entries of a row come to the level of its lower quarter, and the row
    is then made as noisy as it was.
    """
    classes = len(transition)
    rows = np.maximum(weight @ probabilities, TINY)[:, None]
    counts = rows * transition
    np.fill_diagonal(counts, 0.0)
    between = (weight[:, None] * probabilities).T @ probabilities
    one_way = counts - counts.T - MISJUDGED * between
    kept = np.maximum(one_way, 0)
    usual = np.sort(counts + np.diag(np.full(classes, np.inf)), axis=1)[:, [(classes - 2) // 4]]
    out = kept + usual + TINY
    np.fill_diagonal(out, 0.0)
    out *= counts.sum(axis=1, keepdims=True) / out.sum(axis=1, keepdims=True) / rows
    np.fill_diagonal(out, 1 - out.sum(axis=1))
    return out


def with_rate(transition: np.ndarray, factor: float) -> np.ndarray:
    """The matrix with so many times the noise."""
    same = np.eye(len(transition))
    return same + factor * (transition - same)


def rate(transition: np.ndarray, given: np.ndarray, weight: np.ndarray) -> float:
    """The share of labels that such noise makes wrong, classes being as frequent as labels are."""
    return float(np.average(1 - np.diagonal(transition)[given], weights=weight))
