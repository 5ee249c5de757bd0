"""Trials: whether a judge that is dear helps, seen on some rows before all are paid for."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning import judges, pooling
from untuned.estimators.cleaning.hearing import Hearing

ROWS = 2000
SPARSE_ROWS = 1000  # of sparse columns there are more, and trees look at many of them
MOST_ROUNDS, FEWEST_ROUNDS, TREES_IN_ALL = 30, 10, 120  # boosting grows a tree for each class
LEAVES = 8  # of each of these trees; a fourth of the time of whole ones
MOST_COLUMNS = 256  # boosting looks at all columns for each split, trees at some only
SURE = 2.33  # standard errors by which the likelihood of unseen labels must rise: chance 1 in 100


def trees_help(hearing: Hearing, opinions: list[np.ndarray]) -> bool:
    """Whether trees add to what other judges say."""
    return _helps(hearing, judges.trees(), opinions)


def boosting_helps(hearing: Hearing, opinions: list[np.ndarray]) -> bool:
    """Whether boosting adds to what other judges say."""
    task = hearing.task
    if task.X.shape[1] > MOST_COLUMNS:
        return False
    rounds = int(np.clip(TREES_IN_ALL / task.classes, FEWEST_ROUNDS, MOST_ROUNDS))
    return _helps(hearing, judges.boosting(rounds, LEAVES), opinions)


def _helps(hearing: Hearing, judge: judges.ByClassifier, opinions: list[np.ndarray]) -> bool:
    """Whether given labels of the first fold are likelier with a judge that saw some others."""
    task, rng = hearing.task, np.random.default_rng(hearing.task.seed)
    most = SPARSE_ROWS if issparse(task.X) else ROWS
    train, rows = np.flatnonzero(task.fold != 0), np.flatnonzero(task.fold == 0)
    train, rows = rng.permutation(train)[:most], np.sort(rng.permutation(rows)[:most])
    model = judge.make(task.seed, True)
    judges.fit_classifier(model, task.X[train], task.label[train], task.weight[train])
    said = judges.said_by(model, task.X[rows], task.classes)
    base = [opinion[0][rows] for opinion in opinions]
    voices = pooling.voice(np.stack([*base, said]).astype(np.float64))
    given = np.eye(task.classes)[task.label[rows]]

    def logs(part: np.ndarray) -> np.ndarray:
        pool = hearing.pool(part, given, np.full(len(part), 1 / len(part)), rows)
        return np.log((pool.probabilities(part) * given).sum(axis=1) + pooling.FAINT)

    gain = task.weight[rows] * (logs(voices) - logs(voices[:-1]))
    return bool(gain.mean() * np.sqrt(len(gain)) > SURE * gain.std())
