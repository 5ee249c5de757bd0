"""Noise that takes each class for one other, as often in all classes.

A matrix has a number for every pair of classes, and among ordered ones entries to both sides make
up for what judges cannot say: they are likelier than the truth. This is the next simplest noise
after one that is alike: which class each is taken for, each for another one, and two shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from untuned.estimators.cleaning import noise
from untuned.estimators.cleaning.pairs import Rows

START = 0.1, 0.05  # shares to begin with, of which the search soon knows better
SMALL = 1e-4  # change of a share that is none


class OneOther(NamedTuple):
    """Which class each is taken for, and how often."""

    other: np.ndarray  # a permutation
    to_it: float  # share of labels that go there
    to_any: float  # share that goes to all classes alike

    def matrix(self, most: float = 1.0) -> np.ndarray:
        """P(given label | true label), with at most so much noise."""
        less = min(1.0, most / (self.to_it + self.to_any))
        found = noise.uniform(less * self.to_any, len(self.other))
        at = np.arange(len(self.other))
        found[at, at] -= less * self.to_it
        found[at, self.other] += less * self.to_it
        return found

    def mutual(self) -> bool:
        """Whether two classes are taken for each other, as classes that overlap are."""
        return bool((self.other[self.other] == np.arange(len(self.other))).any())

    def price(self, rows: float) -> float:
        """What it takes to name it: one of those that are not mutual (about one in e^1.5 of all
        permutations), and one number more than noise that is alike has."""
        return float(gammaln(len(self.other) + 1)) - 1.5 + 0.5 * np.log(rows)


def fit(rows: Rows, other: np.ndarray | None = None) -> OneOther:
    """The most likely, given a model of true labels, by expectation and maximization; `other` may
    be known.

    Of labels k only the class that is taken for k matters, so the best permutation is an
    assignment.
    """
    given, settled, (to_it, to_any) = rows.given, other is not None, START
    taken_for = np.empty(0, int) if other is None else other
    classes, at = rows.probabilities.shape[1], np.arange(len(given))
    own = rows.probabilities[at, given]
    for _ in range(noise.MOST_ROUNDS):
        right, astray = (1 - to_it - to_any) * own, to_any * (1 - own) / (classes - 1)
        if not settled:
            total = to_it * rows.probabilities + (right + astray)[:, None] + noise.TINY
            scores = np.zeros((classes, classes))  # by label and the class that is taken for it
            np.add.at(scores, given, rows.weight[:, None] * np.log(total))
            np.fill_diagonal(scores, scores.sum() - 1)  # below any assignment: no score is positive
            last, taken_for = taken_for, linear_sum_assignment(scores.T, maximize=True)[1]
            settled = np.array_equal(last, taken_for)
        taken = to_it * rows.probabilities[at, np.argsort(taken_for)[given]]
        total = right + taken + astray + noise.TINY
        shares = [np.average(part / total, weights=rows.weight) for part in (taken, astray)]
        moved = abs(shares[0] - to_it) + abs(shares[1] - to_any)
        to_it, to_any = float(shares[0]), float(shares[1])
        if settled and moved < SMALL:
            break
    return OneOther(taken_for, to_it, to_any)


def price_of_entries(rows: Rows, transition: np.ndarray) -> float:
    """What it takes to name a matrix' entries beyond noise that is alike: how much less likely the
    counts of (true, given) are if the entries had to be learned from them, as `shrunk` does."""
    counts = noise.ByLabel(*rows).counts(transition)
    rate = 1 - np.trace(counts) / counts.sum()
    same = noise.uniform(rate, len(counts)) + noise.TINY
    learned = max(noise.evidence(counts, strength * same) for strength in noise.PSEUDO_ROWS)
    return float((counts * np.log(transition + noise.TINY)).sum()) - learned
