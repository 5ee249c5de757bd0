"""Softmax regression as a base model: its ridge is learned.

Columns are prepared as columns.py says. Of dense ones the ridge is the one with which out-of-fold
probabilities predict given labels best; where rows are many, of some of them, and the models are
then trained on all, one at a time. Sparse columns may be very many, so that models of all folds at
once would not fit; there the ridge is the best along a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse

from untuned.closed_form.losses import softmax
from untuned.estimators.cleaning import columns, noise, softmax_regression
from untuned.estimators.cleaning.cross_fit import Task, out_of_fold
from untuned.estimators.cleaning.labelled_rows import scarce
from untuned.estimators.cleaning.models import Targets
from untuned.estimators.cleaning.softmax_regression import Inner, Outer, Training

SURE = 1e-4  # probabilities of labels are cut at this value, and as far from 1
# Rows that are enough for one number; where rows are wide, fewer are.
MOST_SAMPLED, FEWEST_SAMPLED, SAMPLED_ENTRIES = 4096, 2048, 2**20
TOGETHER = 2**19  # outputs of models that are trained together
PATH = 10.0 ** -np.arange(1.0, 5.5, 0.5)  # of ridges, the strongest first


class Linear:
    """Softmax regression, by the method and in the time of the task."""

    name = "linear"

    def __init__(self) -> None:
        self.white: Any = None
        self.ridge = 0.0
        self.y = np.zeros((0, 0, 0), np.float32)  # models of dense columns, one for each fold
        self.model = np.zeros((0, 0), np.float32)  # the mean of those of all folds
        self.total = 0.0  # weight of the rows from which the ridge was learned

    def first(self, task: Task) -> np.ndarray:
        """Learn the ridge and given labels; see Model."""
        expected = columns.usual_ridge(*task.X.shape)
        self.ridge = max(softmax_regression.MIDDLE, expected)
        self.white, self.features = columns.prepared(task, self.ridge)
        some = self._sample(task)
        if issparse(self.features):
            self.ridge = self._along_path(task, some)
        else:
            shape = task.folds, self.features.shape[1] + 1, task.classes
            given = np.eye(task.classes, dtype=np.float32)[task.label[some]]
            self._search(task, some, given.T[None], given, np.zeros(shape, np.float32))
        self.total = task.weight[some].sum()
        together = self._of_pairs(task)

        def predicted(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
            model = self._trained(task, train) if together is None else next(together)
            return _probabilities(self.features, model, rows)

        return out_of_fold(task, predicted)

    def second(self, task: Task, targets: Targets) -> np.ndarray:
        """Learn the ridge again, and soft targets; see Model."""
        some = self._sample(task)
        y = None  # of sparse columns there may be very many: one fold's model at a time
        if not issparse(self.features):
            target = np.stack([_soft(task, targets(fold), some).T for fold in range(task.folds)])
            likelihood = noise.likelihood(targets.transition, task.label[some], task.trusted[some])
            y = self._search(task, some, target, likelihood, self.y)
        whole = y is not None and len(some) == len(task.label)
        found = np.empty((len(task.label), task.classes), np.float32)
        self.model = np.zeros((self.features.shape[1] + 1, task.classes), np.float32)
        for fold in range(task.folds):
            rows = np.flatnonzero(task.fold == fold)
            model: Any = None if y is None else y[fold]
            if not whole:
                train = np.flatnonzero(task.fold != fold)
                model = self._trained(task, train, partial(targets, fold), model)
            found[rows] = _probabilities(self.features, model, rows)
            self.model += model
        self.model /= task.folds
        return found

    def coefficients_only(self, task: Task, targets: Targets) -> None:
        """One model of soft targets, where no out-of-fold probabilities are needed."""
        start = self.y.mean(axis=0) if len(self.y) else None
        rows = np.arange(len(task.label))
        self.model = self._trained(task, rows, partial(targets, 0), start)

    def probabilities(self, X: Any) -> np.ndarray:
        """By the mean of the models."""
        coef, intercept = self.coefficients()
        return softmax(np.asarray(X @ coef + intercept, np.float64), 1)

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the columns as they came: (features, classes), and (classes,)."""
        return self.white.coefficients(self.model[:-1], self.model[-1])

    def forget(self) -> None:
        """Let go of the rows."""
        self.features = None
        self.y = np.zeros((0, 0, 0), np.float32)

    def _sample(self, task: Task) -> np.ndarray:
        count = len(task.label)
        entries = self.features.nnz if issparse(self.features) else self.features.size
        most = int(np.clip(SAMPLED_ENTRIES * count / entries, FEWEST_SAMPLED, MOST_SAMPLED))
        if count <= 2 * most:
            return task.order
        return task.order[np.sort(np.random.default_rng(task.seed).permutation(count)[:most])]

    def _along_path(self, task: Task, some: np.ndarray) -> float:
        """The strongest ridge at which one half of these rows predicts the other as well as at the
        best, to one standard error: labels are noisy, and a strong ridge is quick."""
        train, rows = some[::2], some[1::2]
        model = None
        self.total = task.weight[train].sum()
        found: list[tuple[float, float, float]] = []
        for ridge in PATH:
            self.ridge = ridge
            model = self._trained(task, train, start=model)
            p = _probabilities(self.features, model, rows)[np.arange(len(rows)), task.label[rows]]
            losses = -task.weight[rows] * np.log(p + SURE)
            found.append((ridge, losses.mean(), losses.std() / np.sqrt(len(rows))))
            if found[-1][1] > min(loss for _, loss, _ in found):
                break
        _, least, error = min(found, key=lambda each: each[1])
        strongest = next(ridge for ridge, loss, _ in found if loss <= least + error)
        # The ridge is one of means, so for all these rows it is half as large.
        return strongest * len(train) / len(some)

    def _search(
        self, task: Task, some: np.ndarray, target: np.ndarray, likelihood: np.ndarray,
        y: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """The ridge and the models of all folds."""
        seen = task.fold[some] != np.arange(task.folds)[:, None]
        inner = self._inner(task, some, target, task.weight[some], seen, likelihood)
        x = softmax_regression.x_of(self.ridge)
        settings = task.settings
        if settings.method == "auto":
            x, y = softmax_regression.search(x, y, inner, settings.max_steps, settings.is_over)
        else:
            x = x.astype(np.float32)
            result = settings.minimize(Outer(inner), inner, x, y, tol=softmax_regression.TOL)
            x, y = result.x, np.asarray(result.y)
        self.ridge, self.y = softmax_regression.ridge_at(x), y
        return y

    def _of_pairs(self, task: Task) -> Iterator[np.ndarray] | None:
        """Models of all pairs of folds, trained together; None where that would take long.

        Of small tables one model is trained in less time than it takes to call what trains it.
        """
        left = np.array(list(task.pairs()))
        if issparse(self.features) or len(left) * len(task.label) * task.classes > TOGETHER:
            return None
        every = np.arange(len(task.label))
        given = np.eye(task.classes, dtype=np.float32)[task.label]
        seen = (task.fold != left[:, :1]) & (task.fold != left[:, 1:])
        inner = self._inner(task, every, given.T[None], task.weight, seen)
        y = np.zeros((len(left), self.features.shape[1] + 1, task.classes), np.float32)
        # Losses are means over all rows here, and so is the penalty of a model of some of them.
        x = softmax_regression.x_of(self.ridge * self.total / task.weight.sum())
        return iter(softmax_regression.fit(x, y, inner))

    def _trained(
        self, task: Task, train: np.ndarray, taught: Callable[[], np.ndarray] | None = None,
        start: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """One model of these rows, penalized in all as those from which the ridge was learned.

        `taught` gives probabilities of true labels; without it given labels are learned.
        Coefficients of sparse columns that do not occur in these rows stay zero.
        """
        some, weight = train, task.weight[train]
        if scarce(task.X) and 2 * len(train) > len(task.label):
            # A copy of most rows would take more memory than to give the others no weight.
            some, weight = np.arange(len(task.label)), np.zeros(len(task.label))
            weight[train] = task.weight[train]
        if taught is None:
            target = np.eye(task.classes, dtype=np.float32)[task.label[some]]
        else:
            target = _soft(task, taught(), some)
        places = np.arange(self.features.shape[1] + 1)
        rows = self._inner(task, some, target.T[None], weight, np.ones((1, len(some)), bool))
        if issparse(self.features):
            occurring, features = columns.occurring(rows.rows.features)
            places = np.append(occurring, self.features.shape[1])  # the intercept is last
            rows = Inner(rows.rows._replace(features=features), self.white.penalty[occurring])
        x = softmax_regression.x_of(self.ridge * self.total / task.weight[train].sum())
        if start is None:  # a view of one zero: memory may be scarce
            y = np.broadcast_to(np.float32(0), (1, len(places), task.classes))
        else:
            y = start[places][None]
        y = softmax_regression.fit(x, y, rows)
        model = np.zeros((self.features.shape[1] + 1, task.classes), np.float32)
        model[places] = y[0]
        return model

    def _inner(
        self, task: Task, some: np.ndarray, target: np.ndarray, weight: np.ndarray,
        seen: np.ndarray, likelihood: np.ndarray | None = None,
    ) -> Inner:  # fmt: skip
        features = self.features if len(some) == len(task.label) else self.features[some]
        likelihood = np.ones((1, task.classes)) if likelihood is None else likelihood
        rows = Training(features, target, weight, seen, task.fold[some], likelihood)
        return Inner(rows, self.white.penalty)


def _soft(task: Task, target: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Probabilities of true labels as a model learns them: none of a given label is 0 or 1, but
    trusted labels are true."""
    label, trusted = task.label[some], task.trusted[some]
    own = np.eye(target.shape[1], dtype=np.float32)[label]
    p = np.clip(target[some, label], SURE, 1 - SURE)[:, None]
    others = target[some] * (1 - own)
    others /= np.maximum(others.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    found = p * own + (1 - p) * others
    return np.where(trusted[:, None], own, found).astype(np.float32)


def _probabilities(features: Any, model: np.ndarray, rows: np.ndarray) -> np.ndarray:
    scores = features[rows] @ model[:-1] + model[-1]
    return softmax(np.asarray(scores, np.float64), 1)
