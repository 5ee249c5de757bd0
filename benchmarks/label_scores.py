"""How well wrong labels were found, and how far chance may have moved the difference of two sides.

A table of a thousand rows with 5 % wrong labels has fifty of them: which fifty, and which rows
stand around them, moves each score. Both sides judge the same rows, so the rows are drawn anew with
replacement (a bootstrap), both sides are scored on each draw, and the standard deviation of the
*difference* is its standard error. What is not in it: that models trained on other rows, or with
other folds, would have said something else; another seed shows that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

DRAWS = 400  # a standard error is then known to 4 %
METRICS = ("AUROC", "AP", "F1")


class Found(NamedTuple):
    """How well wrong labels were found, and in how many seconds of the processor."""

    auroc: float
    ap: float
    f1: float
    rate: float  # of wrong labels, as estimated
    seconds: float

    def __str__(self) -> str:
        scores = f"AUROC {self.auroc:.4f}  AP {self.ap:.4f}  F1 {self.f1:.3f}"
        return f"{scores}  rate {self.rate:.3f}  {self.seconds:6.1f} s"


class Judged(NamedTuple):
    """What one side said of every label."""

    quality: np.ndarray
    flagged: np.ndarray  # True or False
    rate: float  # of wrong labels, as estimated
    seconds: float


def timed(judge: Callable[[], tuple[np.ndarray, np.ndarray, float]]) -> Judged:
    """What a judge returns (quality of labels, True where it flags one, a rate), and how fast."""
    begun = time.process_time()
    said = judge()
    return Judged(*said, time.process_time() - begun)


def found(wrong: np.ndarray, said: Judged) -> Found:
    """Scores on the rows as they are."""
    auroc, ap, f1 = scored(wrong, said, np.ones((1, len(wrong))))[0].tolist()
    return Found(auroc, ap, f1, said.rate, said.seconds)


def standard_errors(wrong: np.ndarray, one: Judged, other: Judged) -> list[float]:
    """Of the differences of AUROC, average precision and F1, both sides on the same rows."""
    rows = len(wrong)
    draws = np.random.default_rng(0).multinomial(rows, np.full(rows, 1 / rows), DRAWS)
    draws = draws[(draws @ wrong > 0) & (draws @ ~wrong > 0)].astype(float)
    apart = scored(wrong, one, draws) - scored(wrong, other, draws)
    return [float(each) for each in apart.std(axis=0, ddof=1)]


def scored(wrong: np.ndarray, said: Judged, weights: np.ndarray) -> np.ndarray:
    """AUROC, average precision and F1, one row for each row of weights."""
    order = np.argsort(said.quality, kind="stable")  # the most suspect first
    quality, weighted = said.quality[order], weights[:, order]
    ends = np.append(np.flatnonzero(np.diff(quality)), len(quality) - 1)  # of rows that tie
    hits = np.cumsum(weighted * wrong[order], axis=1)[:, ends]
    seen = np.cumsum(weighted, axis=1)[:, ends]
    slips = seen - hits
    more_hits = np.diff(hits, axis=1, prepend=0)
    more_slips = np.diff(slips, axis=1, prepend=0)
    precision = hits / np.maximum(seen, np.finfo(float).tiny)
    auroc = (more_slips * (hits - more_hits / 2)).sum(axis=1) / (hits[:, -1] * slips[:, -1])
    ap = (more_hits * precision).sum(axis=1) / hits[:, -1]
    right = weights @ (said.flagged & wrong)
    f1 = 2 * right / (weights @ said.flagged + weights @ wrong)
    return np.stack([auroc, ap, f1], axis=1)
