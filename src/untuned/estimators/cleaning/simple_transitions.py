"""Two transition matrices with few parameters: a few pairs of classes, and a permutation.

A full matrix is shrunk towards one rate. With many classes and few rows of each it then misses that
labels of a class go to one other class. With ordered classes it overfits: entries on both sides of
the diagonal explain the errors of the models.

The first form has one rate for all classes, and entries of their own for a few pairs. In the second
form labels of each class go to one other class, at the same rate in all classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from untuned.estimators.cleaning import noise
from untuned.estimators.cleaning.noise import MOST_ROUNDS, SMALL, TINY, CountsByLabel, Predicted

ANY = 0.5  # rows that a pair loses in each round, half of one for each number that is estimated
START = 0.1, 0.05  # rates of a permutation at the start of its search
SMALL_SHARE = 1e-4  # change of a rate that is none


def with_pairs(
    rows: Predicted, start: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The most likely matrix with at most so much noise in each class; True for its pairs.

    A pair stays if its gain in log-likelihood exceeds its description length: the logarithm of the
    number of pairs, plus half the logarithm of the rows of its class.
    """
    classes = len(start)
    every = ~np.eye(classes, dtype=bool)
    transition, own = _likeliest_pairs(rows, start, most, every, ANY)
    count = np.maximum(rows.weight @ rows.probabilities, 1.0)[:, None]
    kept = _worth(rows, transition, own) > np.log(every.sum()) + 0.5 * np.log(count)
    transition, _ = _likeliest_pairs(rows, transition, most, kept, 0.0)
    return transition, kept


def _likeliest_pairs(
    rows: Predicted, start: np.ndarray, most: np.ndarray, pairs: np.ndarray, lost: float
) -> tuple[np.ndarray, np.ndarray]:
    """The matrix, and the part of it that pairs have of their own.

    Expectation and maximization. Each pair loses `lost` rows in each round; one that explains no
    more rows than that vanishes, and its rows go to others (Figueiredo and Jain, 2002).
    """
    classes, by_label = len(start), CountsByLabel(rows)
    others = ~np.eye(classes, dtype=bool)
    alike = np.where(others, 0.5 * start[others].mean(), 0.0)
    own = np.where(pairs, 0.5 * start, 0.0)
    transition = np.eye(classes)
    for _ in range(MOST_ROUNDS):
        new = alike + own
        new *= np.minimum(1, most / np.maximum(new.sum(axis=1), TINY))[:, None]
        np.fill_diagonal(new, 1 - new.sum(axis=1))
        moved, transition = abs(new - transition).max(), new
        if moved < SMALL:
            break
        joint = by_label.counts(transition)
        count = np.maximum(joint.sum(axis=1, keepdims=True), TINY)
        joint[~others] = 0.0
        share = alike / np.maximum(alike + own, TINY)
        alike = np.where(others, (joint * share).sum() / count.sum() / (classes - 1), 0.0)
        own = np.where(pairs, np.maximum(joint * (1 - share) - lost, 0) / count, 0.0)
    return transition, np.minimum(own, transition)


def _worth(rows: Predicted, transition: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The log-likelihood that is lost if a pair's rows count as rightly labelled instead."""
    probabilities, given, weight = rows
    total = np.maximum((probabilities * transition.T[given]).sum(axis=1), TINY)
    relative = probabilities / total[:, None]
    worth = np.zeros_like(own)
    for j, k in zip(*np.nonzero(own), strict=True):
        wrong, right = given == k, given == j
        without = np.maximum(1 - own[j, k] * relative[wrong, j], TINY)
        better = 1 + own[j, k] * relative[right, j]
        worth[j, k] = -(weight[wrong] @ np.log(without)) - weight[right] @ np.log(better)
    return worth


class Permutation(NamedTuple):
    """The class to which wrong labels of each class go, and how often."""

    permutation: np.ndarray
    to_it: float  # share of labels that go there
    to_any: float  # share that goes to all classes alike

    def matrix(self, most: float = 1.0) -> np.ndarray:
        """P(given label | true label), with at most so much noise."""
        less = min(1.0, most / (self.to_it + self.to_any))
        found = noise.uniform(less * self.to_any, len(self.permutation))
        at = np.arange(len(self.permutation))
        found[at, at] -= less * self.to_it
        found[at, self.permutation] += less * self.to_it
        return found

    def at_rate(self, rate: float) -> Permutation:
        """The same with so many wrong labels in all."""
        factor = rate / (self.to_it + self.to_any)
        return Permutation(self.permutation, factor * self.to_it, factor * self.to_any)

    def mutual(self) -> bool:
        """Whether two classes are taken for each other, as classes that overlap are."""
        twice = self.permutation[self.permutation]
        return bool((twice == np.arange(len(twice))).any())

    def price(self, rows: float) -> float:
        """Its description length: one permutation of those that are not mutual (about one in e^1.5
        of all), and one parameter more than a single rate has."""
        return float(gammaln(len(self.permutation) + 1)) - 1.5 + 0.5 * np.log(rows)


def fit_permutation(rows: Predicted, permutation: np.ndarray | None = None) -> Permutation:
    """The most likely one, given probabilities of true labels, by expectation and maximization.

    `permutation` is given where only the rates are to be found. Else it is the solution of an
    assignment problem, as the likelihood of labels k depends on one other class alone.
    """
    given, known, (to_it, to_any) = rows.given, permutation is not None, START
    taken_for = np.empty(0, int) if permutation is None else permutation
    classes, at = rows.probabilities.shape[1], np.arange(len(given))
    own = rows.probabilities[at, given]
    for _ in range(MOST_ROUNDS):
        right, astray = (1 - to_it - to_any) * own, to_any * (1 - own) / (classes - 1)
        if not known:
            total = to_it * rows.probabilities + (right + astray)[:, None] + TINY
            scores = np.zeros((classes, classes))  # by label and the class that is taken for it
            np.add.at(scores, given, rows.weight[:, None] * np.log(total))
            np.fill_diagonal(scores, scores.sum() - 1)  # below any assignment: no score is positive
            last, taken_for = taken_for, linear_sum_assignment(scores.T, maximize=True)[1]
            known = np.array_equal(last, taken_for)
        taken = to_it * rows.probabilities[at, np.argsort(taken_for)[given]]
        total = right + taken + astray + TINY
        shares = [np.average(part / total, weights=rows.weight) for part in (taken, astray)]
        moved = abs(shares[0] - to_it) + abs(shares[1] - to_any)
        to_it, to_any = float(shares[0]), float(shares[1])
        if known and moved < SMALL_SHARE:
            break
    return Permutation(taken_for, to_it, to_any)


def price_of_entries(rows: Predicted, transition: np.ndarray) -> float:
    """The description length of a matrix beyond a single rate: the log-likelihood of the counts of
    (true, given), less their evidence if the entries are learned from them, as in `shrunk`."""
    counts = CountsByLabel(rows).counts(transition)
    rate = 1 - np.trace(counts) / counts.sum()
    same = noise.uniform(rate, len(counts)) + TINY
    learned = max(noise.evidence(counts, strength * same) for strength in noise.PSEUDO_ROWS)
    return float((counts * np.log(transition + TINY)).sum()) - learned
