"""Noise that goes from a class to few others, such as to the next one.

Many classes of few rows each: a matrix drawn towards the same noise everywhere does not see that
each class has one other that it is taken for, and what it holds too much is cut where it is
largest. Here a matrix is noise that is alike in all classes, and few pairs beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from untuned.estimators.cleaning.noise import MOST_ROUNDS, SMALL, TINY, ByLabel

ANY = 0.5  # rows that a pair loses in each round, half of one for each number that is estimated


class Rows(NamedTuple):
    """A model's probabilities of true labels, the labels given, and how much each row counts."""

    probabilities: np.ndarray
    given: np.ndarray
    weight: np.ndarray


def with_pairs(rows: Rows, start: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most likely matrix of at most so much noise in each class; True for its pairs.

    A pair stays if it is worth what it takes to name it among all pairs and to say how large it is
    (the logarithm of their number, and half of that of the rows of its class).
    """
    classes = len(start)
    every = ~np.eye(classes, dtype=bool)
    transition, own = _likeliest(rows, start, most, every, ANY)
    count = np.maximum(rows.weight @ rows.probabilities, 1.0)[:, None]
    kept = _worth(rows, transition, own) > np.log(every.sum()) + 0.5 * np.log(count)
    transition, _ = _likeliest(rows, transition, most, kept, 0.0)
    return transition, kept


def _likeliest(
    rows: Rows, start: np.ndarray, most: np.ndarray, pairs: np.ndarray, lost: float
) -> tuple[np.ndarray, np.ndarray]:
    """The matrix, and the part of it that is of pairs.

    Expectation and maximization; a pair that loses rows in each round, and explains no more than
    these, vanishes, and others get what it held (Figueiredo and Jain, 2002).
    """
    classes, by_label = len(start), ByLabel(*rows)
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


def _worth(rows: Rows, transition: np.ndarray, own: np.ndarray) -> np.ndarray:
    """How much less likely (in logarithms) labels are if a pair's rows are of the right label."""
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
