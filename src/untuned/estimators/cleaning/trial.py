"""Trials: whether a judge that is dear helps, seen on some rows before all are paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning import judges, pooling
from untuned.estimators.cleaning.hearing import Hearing, Settled
from untuned.estimators.cleaning.judges import Targets

ROWS = 2000
SPARSE_ROWS = 1000  # of sparse columns there are more, and trees look at many of them
MOST_ROUNDS, FEWEST_ROUNDS, TREES_IN_ALL = 30, 10, 120  # boosting grows a tree for each class
# Boosting cuts each column at 255 weighted quantiles before it learns: on wide tables that alone
# takes minutes, while trees look at some columns only.
MOST_COLUMNS = 256
SURE = 3.0  # standard errors by which the likelihood of unseen labels must rise


def boosting_helps(
    hearing: Hearing, targets: Targets, first: Settled, others: list[np.ndarray]
) -> bool:
    """Whether boosting that has learned from a few rows adds to trees that have learned from the
    same, to the first round, and to what `others` said in the second."""
    task = hearing.task
    if task.X.shape[1] > MOST_COLUMNS:
        return False
    rounds = int(np.clip(TREES_IN_ALL / task.classes, FEWEST_ROUNDS, MOST_ROUNDS))
    train, rows = _drawn(hearing)
    target = targets(0)[train]
    label, weight = target.argmax(axis=1), task.weight[train] * target.max(axis=1)

    def said(judge: judges.ByClassifier) -> np.ndarray:
        model = judge.make(task.seed, True)
        judges.fit_classifier(model, task.X[train], label, weight)
        return judges.said_by(model, task.X[rows], task.classes)

    base = [said(judges.trees()), first.probabilities[rows], *(each[rows] for each in others)]
    return _helps(hearing, rows, base, said(judges.boosting(rounds)), first.transition)


def trees_help(hearing: Hearing, opinions: np.ndarray) -> bool:
    """Whether trees that have learned from a few rows add to what another judge says."""
    task = hearing.task
    train, rows = _drawn(hearing)
    model = judges.trees().make(task.seed, True)
    judges.fit_classifier(model, task.X[train], task.label[train], task.weight[train])
    said = judges.said_by(model, task.X[rows], task.classes)
    return _helps(hearing, rows, [opinions[0][rows]], said, np.eye(task.classes))


def _drawn(hearing: Hearing) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, outside of the first fold, and rows of that fold."""
    task, rng = hearing.task, np.random.default_rng(hearing.task.seed)
    most = SPARSE_ROWS if issparse(task.X) else ROWS
    train, rows = np.flatnonzero(task.fold != 0), np.flatnonzero(task.fold == 0)
    return rng.permutation(train)[:most], np.sort(rng.permutation(rows)[:most])


def _helps(
    hearing: Hearing, rows: np.ndarray, base: list[np.ndarray], more: np.ndarray, transition: Any
) -> bool:
    likelihood = hearing.likelihood(transition)[rows]
    voices = pooling.voice(np.stack([*base, more]).astype(np.float64))

    def logs(part: np.ndarray) -> np.ndarray:
        pool = hearing.pool(part, likelihood, np.full(len(part), 1 / len(part)), rows)
        return np.log((pool.probabilities(part) * likelihood).sum(axis=1) + pooling.FAINT)

    gain = hearing.task.weight[rows] * (logs(voices) - logs(voices[:-1]))
    return bool(gain.mean() * np.sqrt(len(gain)) > SURE * gain.std())
