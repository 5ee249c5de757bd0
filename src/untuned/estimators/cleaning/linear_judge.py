"""The linear judge: softmax regressions whose ridge and trust in labels are learned.

Columns are prepared as linear_columns.py says. Of dense ones ridge, slope and offset are learned by
`minimize`; where rows are many, on some of them, and the models are then trained on all, one at a
time. Sparse columns may be very many, so that models of all folds at once would not fit; there the
ridge is the best along a path, and targets are those of Bayes' rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import logit

from untuned.closed_form.losses import softmax
from untuned.estimators.cleaning import linear_columns, noise, problem, whitening
from untuned.estimators.cleaning.folds import Task, second_hand
from untuned.estimators.cleaning.judges import Targets
from untuned.estimators.cleaning.labelled_rows import scarce
from untuned.estimators.cleaning.problem import Inner, Models, Outer, Rows
from untuned.run import minimize
from untuned.run.result import Result

SURE = 1e-4  # evidence is cut at these odds, and at their opposite
BELIEVED = 20.0  # evidence at which a weight is 1, whatever slope and offset
TOL = 0.1  # three numbers about thousands of rows need no more than one digit
# Rows that say enough about three numbers; where rows are wide, fewer do.
MOST_SAMPLED, FEWEST_SAMPLED, SAMPLED_ENTRIES = 4096, 2048, 2**20
TOGETHER = 2**19  # outputs of models that are trained together
PATH = 10.0 ** -np.arange(1.0, 5.5, 0.5)  # of ridges, the strongest first


class LinearJudge:
    """Softmax regression; `learn` is `minimize` with the options of the cleaner."""

    name = "linear"

    def __init__(self, learn: Callable[..., Result] = minimize):
        self.learn = learn
        self.white: Any = None
        self.x = np.zeros(3, np.float32)
        self.y = np.zeros((0, 0, 0), np.float32)  # models of dense columns, one for each fold
        self.model = np.zeros((0, 0), np.float32)  # the mean of those of all folds
        self.transition = np.zeros((0, 0))
        self.total = 0.0  # weight of the rows from which x was learned

    def first(self, task: Task) -> np.ndarray:
        """Learn the ridge and given labels; see Judge."""
        ridge = max(problem.START, whitening.usual_ridge(*task.X.shape))
        self.white, self.features = linear_columns.prepared(task, ridge)
        some = self._sample(task)
        shape = task.folds, self.features.shape[1] + 1, task.classes
        if issparse(self.features):
            self.x = self._along_path(task, some)
        else:
            certain = np.eye(task.classes)[task.label[some]]
            believed = np.full((1, len(some)), BELIEVED)
            rows = self._rows(task, some, believed, None, certain)
            self.x = problem.with_ridge_times(self.x, ridge / problem.START)
            self._learn(rows, np.zeros(shape, np.float32), task.classes)
        self.total = task.weight[some].sum()
        together = self._of_pairs(task)

        def judged(train: np.ndarray, left: np.ndarray) -> np.ndarray:
            model = self._trained(task, train) if together is None else next(together)
            return _said(self.features, model, left)

        return second_hand(task, judged)

    def second(self, task: Task, targets: Targets) -> np.ndarray:
        """Learn all three numbers, and what is believed of labels; see Judge."""
        some = self._sample(task)
        shape = task.folds, self.features.shape[1] + 1, task.classes
        y = None  # of sparse columns there may be very many: one fold's model at a time
        if not issparse(self.features):
            evidence, other = self._taught(task, targets, some)
            rows = self._rows(task, some, evidence, other, self._likelihood(task, some))
            y = self._learn(rows, self.y, task.classes)  # from models that had not seen more
        whole = y is not None and len(some) == len(task.label)
        found = np.empty((len(task.label), task.classes), np.float32)
        self.model = np.zeros(shape[1:], np.float32)
        for fold in range(task.folds):
            left = np.flatnonzero(task.fold == fold)
            model: Any = None if y is None else y[fold]
            if not whole:
                train = np.flatnonzero(task.fold != fold)
                model = self._trained(task, train, partial(targets, fold), model)
            found[left] = _said(self.features, model, left)
            self.model += model
        self.model /= task.folds
        return found

    def unheard(self, task: Task, targets: Targets) -> None:
        """One model of what is believed, for its coefficients alone: nobody asks what it says."""
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
        """Let go of the rows, and of the run's options."""
        self.features, self.learn = None, minimize
        self.y = np.zeros((0, 0, 0), np.float32)

    def _sample(self, task: Task) -> np.ndarray:
        count = len(task.label)
        entries = self.features.nnz if issparse(self.features) else self.features.size
        most = int(np.clip(SAMPLED_ENTRIES * count / entries, FEWEST_SAMPLED, MOST_SAMPLED))
        if count <= 2 * most:
            return task.order
        return task.order[np.sort(np.random.default_rng(task.seed).permutation(count)[:most])]

    def _along_path(self, task: Task, some: np.ndarray) -> np.ndarray:
        """x with the strongest ridge at which one half of these rows predicts the other as well as
        at the best, to one standard error: labels are noisy, and a strong ridge is quick."""
        train, rows = some[::2], some[1::2]
        model = None
        self.total = task.weight[train].sum()
        found: list[tuple[np.ndarray, float, float]] = []
        for ridge in PATH:
            self.x = problem.with_ridge_times(np.zeros(3, np.float32), ridge / problem.START)
            model = self._trained(task, train, start=model)
            said = _said(self.features, model, rows)[np.arange(len(rows)), task.label[rows]]
            losses = -task.weight[rows] * np.log(said + SURE)
            found.append((self.x, losses.mean(), losses.std() / np.sqrt(len(rows))))
            if found[-1][1] > min(loss for _, loss, _ in found):
                break
        _, least, error = min(found, key=lambda each: each[1])
        x = next(x for x, loss, _ in found if loss <= least + error)
        # The ridge is one of means, so for all these rows it is half as large.
        return problem.with_ridge_times(x, len(train) / len(some))

    def _learn(self, rows: Rows, y: np.ndarray, classes: int) -> np.ndarray:
        models = Models(rows, self.white.penalty, classes)
        result = self.learn(Outer(models), Inner(models), self.x, y, tol=TOL)
        self.x, self.y = result.x, np.asarray(result.y)
        return self.y

    def _of_pairs(self, task: Task) -> Iterator[np.ndarray] | None:
        """Models of all pairs of folds, trained together; None where that would take long.

        Of small tables one model is trained in less time than it takes to call what trains it.
        """
        left = np.array(list(task.pairs()))
        if issparse(self.features) or len(left) * len(task.label) * task.classes > TOGETHER:
            return None
        every = np.arange(len(task.label))
        rows = self._rows(
            task, every, np.full((1, len(every)), BELIEVED), None, np.ones((1, task.classes))
        )
        seen = (task.fold != left[:, :1]) & (task.fold != left[:, 1:])
        models = Models(
            rows._replace(seen=seen.astype(np.float32)), self.white.penalty, task.classes
        )
        y = np.zeros((len(left), self.features.shape[1] + 1, task.classes), np.float32)
        # Losses are means over all rows here, and so is what holds a model of some of them back.
        x = problem.with_ridge_times(self.x, self.total / task.weight.sum())
        return iter(problem.solve_inner(x, y, models))

    def _trained(
        self, task: Task, train: np.ndarray, taught: Callable[[], np.ndarray] | None = None,
        start: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """One model of these rows, held back as much in all as those from which x was learned.

        `taught` gives probabilities of true labels; without it given labels are believed.
        """
        models, places = self._models(task, train, taught)
        x = problem.with_ridge_times(self.x, self.total / task.weight[train].sum())
        if start is None:  # a view of one zero: memory may be scarce
            y = np.broadcast_to(np.float32(0), (1, len(models.penalty) + 1, task.classes))
        else:
            y = start[places][None]
        y = problem.solve_inner(x, y, models)
        model = np.zeros((self.features.shape[1] + 1, task.classes), np.float32)
        model[places] = y[0]
        return model

    def _models(
        self, task: Task, train: np.ndarray, taught: Callable[[], np.ndarray] | None
    ) -> tuple[Models, np.ndarray]:
        """What one model learns from, and where its coefficients belong.

        Coefficients of sparse columns that do not occur in these rows stay zero.
        """
        sparse, every = issparse(self.features), len(task.label)
        some, weight = train, task.weight[train]
        if scarce(task.X) and 2 * len(train) > every:
            # A copy of most rows would take more memory than to weigh the others by nothing.
            some, weight = np.arange(every), np.zeros(every)
            weight[train] = task.weight[train]
        if taught is None:
            evidence, other = np.full(len(some), BELIEVED), None
        else:
            evidence, wrong = _evidence(taught(), task.label)
            if len(some) < every:
                evidence, wrong = evidence[some], wrong[:, some]
            other = wrong[None]
        rows = self._rows(task, some, evidence[None], other, np.ones((1, task.classes)))
        rows = rows._replace(seen=np.ones((1, len(some)), np.float32), weight=weight)
        penalty, places = self.white.penalty, np.arange(self.features.shape[1] + 1)
        if sparse:
            columns, features = linear_columns.occurring(rows.features)
            rows, penalty = rows._replace(features=features), penalty[columns]
            places = np.append(columns, self.features.shape[1])  # with the intercept, which is last
        return Models(rows, penalty, task.classes), places

    def _rows(
        self, task: Task, some: np.ndarray, evidence: np.ndarray, other: np.ndarray | None,
        likelihood: np.ndarray,
    ) -> Rows:  # fmt: skip
        every = len(some) == len(task.label)
        if other is None:
            other = np.zeros((1, task.classes, 1), np.float32)
        return Rows(
            features=self.features if every else self.features[some],
            label=task.label[some], weight=task.weight[some], trusted=task.trusted[some],
            seen=(task.fold[some] != np.arange(task.folds)[:, None]).astype(np.float32),
            judge=task.fold[some], evidence=evidence, other=other, likelihood=likelihood,
        )  # fmt: skip

    def _taught(
        self, task: Task, targets: Targets, some: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        parts = [_evidence(targets(fold)[some], task.label[some]) for fold in range(task.folds)]
        evidence, other = zip(*parts, strict=True)
        return np.stack(evidence), np.stack(other)

    def _likelihood(self, task: Task, some: np.ndarray) -> np.ndarray:
        return noise.likelihood(self.transition, task.label[some], task.trusted[some])


def _evidence(target: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of the labels being right, and (classes, rows) of what they are if not."""
    own = np.arange(len(label)), label
    evidence = as_evidence(target[own])
    other = target.astype(np.float32)
    other[own] = 0
    total = other.sum(axis=1, keepdims=True)
    return evidence, (other / np.maximum(total, np.finfo(np.float32).tiny)).T


def as_evidence(quality: np.ndarray) -> np.ndarray:
    """Log-odds of a label being right."""
    return logit(np.clip(quality, SURE, 1 - SURE))


def _said(features: Any, model: np.ndarray, rows: np.ndarray) -> np.ndarray:
    scores = features[rows] @ model[:-1] + model[-1]
    return softmax(np.asarray(scores, np.float64), 1)
