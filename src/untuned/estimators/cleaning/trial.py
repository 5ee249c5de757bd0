"""Trials: whether a judge that is dear helps, seen on some rows before all are paid for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning import forest, judges, pooling
from untuned.estimators.cleaning.folds import FEWEST, Task, coarser
from untuned.estimators.cleaning.hearing import ABOUT_AS_LIKELY, Hearing

Learned = Callable[[Task, np.ndarray, np.ndarray], np.ndarray]

ROWS = 2000
SPARSE_ROWS = 1000  # of sparse columns there are more, and trees look at many of them
ROUNDS = judges.Rounds(trees=120, fewest=10, most=30)  # of boosting
MOST_COLUMNS = 256  # boosting looks at all columns for each split, trees at some only
SURE = 2.33  # standard errors by which the likelihood of unseen labels must rise: chance 1 in 100


def trees_help(hearing: Hearing, opinions: list[np.ndarray]) -> bool:
    """Whether trees add to what other judges say."""
    return _helps(hearing, forest.as_dealt(hearing.task), forest.learned, opinions)


def boosting_helps(hearing: Hearing, opinions: list[np.ndarray]) -> bool:
    """Whether boosting adds to what other judges say."""
    task = hearing.task
    if task.X.shape[1] > MOST_COLUMNS:
        return False
    return _helps(hearing, coarser(task, FEWEST), judges.boosting(ROUNDS).learned, opinions)


def _helps(hearing: Hearing, dealt: Task, learned: Learned, opinions: list[np.ndarray]) -> bool:
    """Whether given labels of two folds are likelier with a judge that saw some others.

    The folds are those that the judge would have, so that it has seen no more rows than it will:
    with more, it would seem to help where it does not.
    """
    task, rng = hearing.task, np.random.default_rng(hearing.task.seed)
    most = SPARSE_ROWS if issparse(task.X) else ROWS
    left = np.isin(dealt.fold, next(dealt.pairs()))[task.order]
    train, rows = task.order[~left], task.order[left]
    train, rows = rng.permutation(train)[:most], np.sort(rng.permutation(rows)[:most])
    said = learned(task, train, rows)
    base = [opinion[task.fold[rows], rows] for opinion in opinions]
    voices = pooling.voice(np.stack([*base, said]).astype(np.float64))
    given = np.eye(task.classes)[task.label[rows]]

    def logs(part: np.ndarray) -> np.ndarray:
        pool = hearing.pool(part, given, np.full(len(part), 1 / len(part)), rows)
        return np.log((pool.probabilities(part) * given).sum(axis=1) + pooling.FAINT)

    gain = task.weight[rows] * (logs(voices) - logs(voices[:-1]))
    # One more weight is learned from these very rows, and so fits them a little better by chance.
    if gain.sum() < ABOUT_AS_LIKELY:
        return False
    return bool(gain.mean() * np.sqrt(len(gain)) > SURE * gain.std())
