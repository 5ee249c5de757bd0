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

import jax
import numpy as np
from scipy.special import logit, softmax

from untuned.estimators import cleaning_problem, noise, whitening
from untuned.estimators.cleaning_input import BLOCK_ROWS, Merged, Table
from untuned.estimators.cleaning_problem import Numbers, Rows
from untuned.estimators.whitening import Whitening
from untuned.ops import Tree
from untuned.ops.jax import aligned_zeros
from untuned.result import Result
from untuned.run import minimize

ROUNDS = 3  # after the first; more begin to fit the rows that judge
SURE = 1e-4  # evidence is cut at these odds, and at their opposite
BELIEVED = 20.0  # evidence at which a weight is 1, whatever slope and offset
TOL = 0.1  # three numbers about thousands of rows need no more than one digit
# Rows that say enough about three numbers and the noise; where rows are wide, fewer do.
MOST_SAMPLED, FEWEST_SAMPLED, SAMPLED_ENTRIES = 4096, 2048, 2**20
ROWS, FEATURES = (1024,), (16, 64)  # smaller sizes are rounded up, to share what is compiled


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

    x: Tree
    y: Tree
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

    def solve(x: Tree, y: Tree, rows: Rows) -> Result:
        left = None if ends == np.inf else max(ends - time.monotonic(), 1e-3)
        return minimize(
            partial(cleaning_problem.outer, models=folds),
            partial(cleaning_problem.inner, models=folds),
            x, y, outer_data=rows, inner_data=rows, tol=TOL, max_seconds=left, **options,
        )  # fmt: skip

    label, trusted = table.label[merged.first], table.trusted[merged.first]
    white = whitening.fit(partial(_block, table, merged.first), merged.weight)
    features = _whitened(table, merged.first, white)
    fold = _folds(merged.group, label, folds, rng)
    rows = Rows(features, label, fold, merged.weight, trusted, None, None)
    x, y = cleaning_problem.start(_penalty(white, features.shape[1]), classes, folds)
    sample = int(np.clip(SAMPLED_ENTRIES / features.shape[1], FEWEST_SAMPLED, MOST_SAMPLED))
    if len(label) <= 2 * sample:
        judged = _rounds(rows, x, y, classes, solve, ends)
    else:
        chosen = np.sort(rng.permutation(len(label))[:sample])
        part = Rows(*(None if leaf is None else leaf[chosen] for leaf in rows))
        judged = _rounds(part, x, y, classes, solve, ends)
        judged = _refit(rows, judged, sample / len(label), folds)
    coef, intercept = _mean_model(judged.y, folds)
    coef, intercept = white.coefficients(coef[: len(white.penalty)], intercept)
    learned = Numbers(*map(float, cleaning_problem.numbers(judged.x)))
    return Cleaned(
        judged.probabilities, judged.evidence, judged.transition, coef, intercept, learned,
        judged.result,
    )  # fmt: skip


def _rounds(
    rows: Rows, x: Tree, y: Tree, classes: int, solve: Solve, ends: float
) -> _Judged:  # fmt: skip
    """A round that believes every label, and those that learn from it."""
    noisy = ~rows.trusted
    given, weight = rows.label[noisy], rows.weight[noisy]
    certain = np.eye(classes)[rows.label]
    evidence = np.full(len(noisy), BELIEVED)
    result = solve(x, y, _ready(rows, evidence, certain))
    probabilities = _unseen(rows, result.y)
    transition = noise.first_guess(probabilities[noisy], given, weight)
    true = noise.without_noise(probabilities[noisy], transition)
    quality = of_given(noise.posterior(true, transition, given), given)
    for _ in range(ROUNDS):
        evidence[noisy] = as_evidence(quality)
        likelihood = _likelihood(rows, transition)
        result = solve(result.x, result.y, _ready(rows, evidence, likelihood))
        probabilities = _unseen(rows, result.y)
        transition = noise.fit_transition(probabilities[noisy], given, weight, transition)
        quality = of_given(noise.posterior(probabilities[noisy], transition, given), given)
        if time.monotonic() > ends:
            break
    return _Judged(result.x, result.y, probabilities, evidence, transition, result)


def _refit(rows: Rows, sample: _Judged, share: float, folds: int) -> _Judged:
    """The models of all rows, by the numbers that were learned on a share of them."""
    noisy = ~rows.trusted
    given, weight = rows.label[noisy], rows.weight[noisy]
    # A row's own fold was spared by the model that judges it, whether it was in the sample or not.
    evidence = np.full(len(noisy), BELIEVED)
    posterior = noise.posterior(_unseen(rows, sample.y)[noisy], sample.transition, given)
    evidence[noisy] = as_evidence(of_given(posterior, given))
    del posterior  # as large as some tables
    # A mean over more rows is closer to the truth, so it needs less of a ridge in proportion.
    x = cleaning_problem.with_ridge_times(sample.x, share)
    y = cleaning_problem.solve_inner(x, sample.y, _blocks(rows, evidence), folds)
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


def _ready(rows: Rows, evidence: np.ndarray, likelihood: np.ndarray, count: int = 0) -> Rows:
    """The rows as arrays of the solver, at least `count`; those added have no weight."""
    count = max(count, len(rows.features))

    def filled(values: np.ndarray, dtype: Any, filling: float = 0) -> Any:
        whole = values
        if len(values) < count or values.dtype != dtype:
            whole = np.full((count, *values.shape[1:]), filling, dtype)
            whole[: len(values)] = values
        return jax.device_put(whole)  # `asarray` would copy

    return Rows(
        filled(rows.features, np.float32),
        filled(rows.label, np.int32),
        filled(rows.fold, np.int32),
        filled(rows.weight, np.float32),
        filled(rows.trusted, np.float32),
        filled(evidence, np.float32),
        filled(likelihood, np.float32, 1),  # it has a logarithm
    )


def _blocks(rows: Rows, evidence: np.ndarray) -> list[Rows]:
    """The rows as blocks of one size, for g alone, which asks for no likelihood."""
    blocks = []
    for start in range(0, len(rows.label), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        block = Rows(*(None if leaf is None else leaf[part] for leaf in rows))
        none = np.ones((len(block.label), 0))
        blocks.append(_ready(block, evidence[part], none, BLOCK_ROWS))
    return blocks


def _unseen(rows: Rows, y: Tree) -> np.ndarray:
    """Probabilities by the model of each row's own fold, which has not seen it."""
    folds = rows.fold.max() + 1
    coefs, intercepts = (np.split(np.asarray(y[name]), folds, -1) for name in ("coef", "intercept"))
    found = np.empty((len(rows.fold), len(intercepts[0])))
    for fold in range(folds):
        mine = np.flatnonzero(rows.fold == fold)
        for start in range(0, len(mine), BLOCK_ROWS):
            part = mine[start : start + BLOCK_ROWS]
            scores = rows.features[part] @ coefs[fold] + intercepts[fold]
            found[part] = softmax(scores.astype(np.float64), axis=1)
    return found


def _mean_model(y: Tree, folds: int) -> tuple[np.ndarray, np.ndarray]:
    coef, intercept = (
        np.mean(np.split(np.asarray(y[name], np.float64), folds, -1), axis=0)
        for name in ("coef", "intercept")
    )
    return coef, intercept


def _folds(group: np.ndarray, label: np.ndarray, folds: int, rng: Any) -> np.ndarray:
    """A fold for each row, classes spread evenly, equal features in the same fold."""
    groups, first = np.unique(group, return_index=True)
    order = rng.permutation(len(groups))
    order = order[np.argsort(label[first][order], kind="stable")]
    fold_of_group = np.empty(len(groups), int)
    fold_of_group[order] = np.arange(len(groups)) % folds
    return fold_of_group[np.searchsorted(groups, group)]


def _whitened(table: Table, first: np.ndarray, white: Whitening) -> np.ndarray:
    """The features of all merged rows, filled up with zeros to a size others have too."""
    rows, columns = len(first), len(white.penalty)
    few = rows <= 2 * MOST_SAMPLED  # of many, memory counts more than compilation
    shape = _rounded(rows, ROWS), _rounded(columns, FEATURES) if few else columns
    features = aligned_zeros(shape)
    for start in range(0, rows, BLOCK_ROWS):
        block = _block(table, first, start)
        features[start : start + len(block), :columns] = white.apply(block)
    return features


def _penalty(white: Whitening, columns: int) -> np.ndarray:
    penalty = np.ones(columns, np.float32)
    penalty[: len(white.penalty)] = white.penalty
    return penalty


def _block(table: Table, first: np.ndarray, start: int) -> np.ndarray:
    return table.features(first[start : start + BLOCK_ROWS])


def _rounded(size: int, sizes: tuple[int, ...]) -> int:
    """The next of some sizes; larger ones stay."""
    return next((rounded for rounded in sizes if rounded >= size), size)
