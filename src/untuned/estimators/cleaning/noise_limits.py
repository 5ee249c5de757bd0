"""An upper bound of the noise, from the rows of which the base models are surest.

A likelihood does not tell wrong labels from overlapping classes. The surest rows do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, expit, log_ndtr

from untuned.estimators.cleaning.noise import DECIDED, TINY, Predicted

SURE_ROWS = 20  # fewest rows that say how much noise there is
SIGMAS = 2.0  # standard errors beyond chance


class Ceiling(NamedTuple):
    """How much noise there can be, at most."""

    by_class: np.ndarray  # in each true class
    overall: float


def ceiling(rows: Predicted) -> Ceiling:
    """The share of labels on the surest rows that differ from the predicted class.

    A label differs because it is wrong, or because classes overlap. Wrong labels are as frequent
    on sure rows as on others; overlap is rarer there. So this share is no less than the noise.
    """
    probabilities, given, weight = rows
    taken_for, sure = probabilities.argmax(axis=1), probabilities.max(axis=1)
    differs = (given != taken_for).astype(float)
    order = np.argsort(-sure, kind="stable")
    overall = _among_surest(differs[order], weight[order])
    by_class = np.full(probabilities.shape[1], overall)
    for each in range(len(by_class)):
        own = order[taken_for[order] == each]
        if weight[own].sum() >= SURE_ROWS:
            by_class[each] = _among_surest(differs[own], weight[own])
    return Ceiling(by_class, overall)


def _among_surest(differs: np.ndarray, weight: np.ndarray) -> float:
    """The share that differs among the surest rows; rows come the surest first.

    Either all rows differ at one rate, or the surer half differs at a lower one, and then the same
    question is put to that half. The counts tell how probable each case is (beta priors,
    Jeffreys'), and the result is the mean over both.
    """
    rows, found = np.cumsum(weight), np.cumsum(weight * differs)
    last, left, share = len(rows) - 1, 1.0, 0.0
    while True:
        alike = (found[last] + 0.5) / (rows[last] + 1)
        middle = int(np.searchsorted(rows, rows[last] / 2))
        if middle >= last or rows[middle] < SURE_ROWS:
            return float(share + left * alike)
        falls = _falls(found[middle], rows[middle], found[last], rows[last])
        share += left * (1 - falls) * alike
        last, left = middle, left * falls


def _falls(found: float, rows: float, found_all: float, rows_all: float) -> float:
    """The probability that these rows differ at a lower rate than the others, not at the same."""
    others, rest = found_all - found, rows_all - rows
    split = betaln(found + 0.5, rows - found + 0.5) + betaln(others + 0.5, rest - others + 0.5)
    alike = betaln(found_all + 0.5, rows_all - found_all + 0.5) + betaln(0.5, 0.5)
    p, q = (found + 0.5) / (rows + 1), (others + 0.5) / (rest + 1)
    error = np.sqrt(p * (1 - p) / rows + q * (1 - q) / rest)
    less = log_ndtr((q - p) / error) + np.log(2)  # only a fall counts, which is half of all splits
    return float(expit(split + less - alike))


def separated(probabilities: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Entry [j, k]: 1 if most rows predicted as k are clearly k and not j, else 0.

    The diagonal compares k with all other classes. It is twice the share of clear rows, at most 1,
    since a step at one half would leave the decision to chance.
    """
    classes = probabilities.shape[1]
    best, clear = probabilities.argmax(axis=1), np.zeros((classes, classes))
    for each in np.unique(best):
        rows = best == each
        own, others = probabilities[rows, each, None], probabilities[rows]
        others[:, each] = 1 - others[:, each]
        is_clear = own >= DECIDED * (own + others)
        clear[:, each] = np.average(is_clear, axis=0, weights=weight[rows])
    found = (clear > 0.5).astype(float)
    np.fill_diagonal(found, np.minimum(2 * np.diagonal(clear), 1))
    return found


def one_sided(transition: np.ndarray, rows: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """The share of each class that leaves it by wrong labels, less the share that comes in.

    Overlap moves as many labels out of a class as into it. `rows` are the numbers of rows of the
    true classes. A difference that may be chance counts as zero, and so do labels from j to a k
    that is not `apart` from j, at [j, k]. The result is scaled by how far the class is apart from
    all others, at [j, j].
    """
    counts = rows[:, None] * transition * apart
    np.fill_diagonal(counts, 0.0)
    out, back = counts.sum(axis=1), counts.sum(axis=0)
    beyond = out - back > SIGMAS * np.sqrt(out + back)
    return np.where(beyond, np.diagonal(apart) * (out - back) / np.maximum(rows, TINY), 0.0)


def limited(transition: np.ndarray, most: np.ndarray) -> np.ndarray:
    """The matrix with at most so much noise in each class.

    The largest entries of a row are cut to one level. Uniform noise thus stays uniform, and the
    entry of a class that overlaps comes down.
    """
    off = transition * (1 - np.eye(len(transition)))
    ordered = -np.sort(-off, axis=1)
    # The level of the k largest entries, for each k.
    rest = off.sum(axis=1, keepdims=True) - np.cumsum(ordered, axis=1)
    level = (most[:, None] - rest) / np.arange(1, len(off) + 1)
    under = np.append(ordered[:, 1:], np.zeros((len(off), 1)), axis=1)
    right = (level >= under).argmax(axis=1)[:, None]  # the first k whose level cuts no other entry
    cut = np.where(
        off.sum(axis=1, keepdims=True) > most[:, None],
        np.clip(off, 0, np.maximum(np.take_along_axis(level, right, 1), 0)),  # 0 but for rounding
        off,
    )
    np.fill_diagonal(cut, 1 - cut.sum(axis=1))
    return cut
