"""Rounds of cleaning: models that believe labels as far as those of the round before did.

The first round believes every label. Each further one weighs rows by the evidence for their label,
learns how much to make of it, and estimates anew how labels come to be wrong. Where rows are many,
all this is done on a sample, and what was learned is then used to train on all rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit, softmax

from untuned.estimators.cleaning import noise, problem, whitening
from untuned.estimators.cleaning.labelled_rows import BLOCK_ROWS, Merged, Table
from untuned.estimators.cleaning.problem import Inner, Models, Numbers, Outer, Rows
from untuned.estimators.cleaning.whitening import Whitening
from untuned.run import minimize
from untuned.run.result import Result

ROUNDS = 3  # after the first; more begin to fit the rows that judge
SURE = 1e-4  # evidence is cut at these odds, and at their opposite
BELIEVED = 20.0  # evidence at which a weight is 1, whatever slope and offset
TOL = 0.1  # three numbers about thousands of rows need no more than one digit
# Rows that say enough about three numbers and the noise; where rows are wide, fewer do.
MOST_SAMPLED, FEWEST_SAMPLED, SAMPLED_ENTRIES = 4096, 2048, 2**20


class Cleaned(NamedTuple):
    """What the rounds found, per merged row where there is one."""

    probabilities: np.ndarray  # of true labels, from models that have not seen the row
    evidence: np.ndarray
    transition: np.ndarray
    coef: np.ndarray  # one column per class, the mean over models
    intercept: np.ndarray
    learned: Numbers
    result: Result


class _Judged(NamedTuple):
    """What one or more rounds on some rows end with."""

    x: np.ndarray
    y: np.ndarray
    probabilities: np.ndarray
    evidence: np.ndarray
    transition: np.ndarray
    result: Result


Solve = Callable[..., Result]


def clean(
    table: Table, merged: Merged, classes: int, folds: int, rng: Any,
    max_seconds: float | None, **options: Any,
) -> Cleaned:  # fmt: skip
    """All rounds; `options` are those of `minimize`."""
    ends = np.inf if max_seconds is None else time.monotonic() + max_seconds
    folds = max(2, min(folds, len(np.unique(merged.group))))

    label, trusted = table.label[merged.first], table.trusted[merged.first]
    white = whitening.fit(partial(_block, table, merged.first), merged.weight)
    features = _whitened(table, merged.first, white)
    fold = _folds(merged.group, label, folds, rng)
    rows = Rows(features, label, fold, merged.weight, trusted, None, None)

    def solve(x: np.ndarray, y: np.ndarray, rows: Rows) -> Result:
        left = None if ends == np.inf else max(ends - time.monotonic(), 1e-3)
        models = Models(rows, white.penalty, folds, classes)
        return minimize(Outer(models), Inner(models), x, y, tol=TOL, max_seconds=left, **options)

    x, y = problem.start(features.shape[1], classes, folds)
    sample = int(np.clip(SAMPLED_ENTRIES / features.shape[1], FEWEST_SAMPLED, MOST_SAMPLED))
    if len(label) <= 2 * sample:
        judged = _rounds(rows, x, y, classes, solve, ends)
    else:
        chosen = np.sort(rng.permutation(len(label))[:sample])
        judged = _rounds(_taken(rows, chosen), x, y, classes, solve, ends)
        judged = _refit(rows, judged, sample / len(label), white.penalty)
    mean = judged.y.mean(axis=0, dtype=np.float64)
    coef, intercept = white.coefficients(mean[:-1], mean[-1])
    learned = problem.numbers(judged.x)
    return Cleaned(
        judged.probabilities, judged.evidence, judged.transition, coef, intercept, learned,
        judged.result,
    )  # fmt: skip


def _rounds(
    rows: Rows, x: np.ndarray, y: np.ndarray, classes: int, solve: Solve, ends: float
) -> _Judged:  # fmt: skip
    """A round that believes every label, and those that learn from it."""
    noisy = ~rows.trusted
    given, weight = rows.label[noisy], rows.weight[noisy]
    certain = np.eye(classes)[rows.label]
    evidence = np.full(len(noisy), BELIEVED)
    result = solve(x, y, rows._replace(evidence=evidence, likelihood=certain))
    probabilities = _unseen(rows, result.y)
    transition = noise.first_guess(probabilities[noisy], given, weight)
    true = noise.without_noise(probabilities[noisy], transition)
    quality = of_given(noise.posterior(true, transition, given), given)
    for _ in range(ROUNDS):
        evidence[noisy] = as_evidence(quality)
        judged = rows._replace(evidence=evidence, likelihood=_likelihood(rows, transition))
        result = solve(result.x, result.y, judged)
        probabilities = _unseen(rows, result.y)
        transition = noise.fit_transition(probabilities[noisy], given, weight, transition)
        quality = of_given(noise.posterior(probabilities[noisy], transition, given), given)
        if time.monotonic() > ends:
            break
    return _Judged(result.x, result.y, probabilities, evidence, transition, result)


def _refit(rows: Rows, sample: _Judged, share: float, penalty: np.ndarray) -> _Judged:
    """The models of all rows, by the numbers that were learned on a share of them."""
    noisy = ~rows.trusted
    given, weight = rows.label[noisy], rows.weight[noisy]
    # A row's own fold was spared by the model that judges it, whether it was in the sample or not.
    evidence = np.full(len(noisy), BELIEVED)
    posterior = noise.posterior(_unseen(rows, sample.y)[noisy], sample.transition, given)
    evidence[noisy] = as_evidence(of_given(posterior, given))
    del posterior  # as large as some tables
    # A mean over more rows is closer to the truth, so it needs less of a ridge in proportion.
    x = problem.with_ridge_times(sample.x, share)
    believed = rows._replace(evidence=evidence)
    starts = range(0, len(evidence), BLOCK_ROWS)
    blocks = [_taken(believed, slice(start, start + BLOCK_ROWS)) for start in starts]
    y = problem.solve_inner(x, sample.y, blocks, penalty)
    probabilities = _unseen(rows, y)
    transition = noise.fit_transition(probabilities[noisy], given, weight, sample.transition)
    return _Judged(x, y, probabilities, evidence, transition, sample.result)


def of_given(values: np.ndarray, given: np.ndarray) -> np.ndarray:
    """The entry of the given label, in each row."""
    return values[np.arange(len(given)), given]


def as_evidence(quality: np.ndarray) -> np.ndarray:
    """Log-odds of a label being right."""
    return logit(np.clip(quality, SURE, 1 - SURE))


def _likelihood(rows: Rows, transition: np.ndarray) -> np.ndarray:
    """P(given label | true label j) of each row, for each j; a trusted label is the true one."""
    certain = np.eye(len(transition))[rows.label]
    return np.where(rows.trusted[:, None], certain, transition.T[rows.label])


def _taken(rows: Rows, part: Any) -> Rows:
    taken: Any = (None if leaf is None else leaf[part] for leaf in rows)
    return Rows(*taken)


def _unseen(rows: Rows, y: np.ndarray) -> np.ndarray:
    """Probabilities by the model of each row's own fold, which has not seen it."""
    found = np.empty((len(rows.fold), y.shape[2]))
    for fold, model in enumerate(y):
        mine = np.flatnonzero(rows.fold == fold)
        for start in range(0, len(mine), BLOCK_ROWS):
            part = mine[start : start + BLOCK_ROWS]
            scores = rows.features[part] @ model[:-1] + model[-1]
            found[part] = softmax(scores.astype(np.float64), axis=1)
    return found


def _folds(group: np.ndarray, label: np.ndarray, folds: int, rng: Any) -> np.ndarray:
    """A fold for each row, classes spread evenly, equal features in the same fold."""
    groups, first = np.unique(group, return_index=True)
    order = rng.permutation(len(groups))
    order = order[np.argsort(label[first][order], kind="stable")]
    fold_of_group = np.empty(len(groups), int)
    fold_of_group[order] = np.arange(len(groups)) % folds
    return fold_of_group[np.searchsorted(groups, group)]


def _whitened(table: Table, first: np.ndarray, white: Whitening) -> np.ndarray:
    """The features of all merged rows."""
    features = np.empty((len(first), len(white.penalty)), np.float32)
    for start in range(0, len(first), BLOCK_ROWS):
        features[start : start + BLOCK_ROWS] = white.apply(_block(table, first, start))
    return features


def _block(table: Table, first: np.ndarray, start: int) -> np.ndarray:
    return table.features(first[start : start + BLOCK_ROWS])
