"""Nearest neighbours as a base model: a kernel regression whose width is learned.

    p_i = sum_j k_ij t_j / sum_j k_ij,      k_ij = exp(-(d_ij / (width * r_i))^2 / 2)

over the nearest rows j, with t_j their labels or targets, and r_i the distance of i to its nearest
neighbours, so that one width suits crowded and lonely rows. The width is the one under which
unseen labels are most probable. Neighbours are looked up once, whatever is asked later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning.cross_fit import Task, out_of_fold
from untuned.estimators.cleaning.models import Targets

NEAREST, CLOSE = 48, 5
WIDTHS = 2.0 ** np.arange(-1, 5)  # from the very nearest to all that were looked up alike
MOST_REFERENCES = 8192  # rows that can be neighbours; more cost time with the square of rows
BLOCK = 512
BOUND = 4.0  # in standard deviations, so that one wild number does not decide who is near
PRIOR = 0.1  # of a neighbour: all classes alike, where there is no other


class Neighbours:
    """Kernel regression on the nearest rows."""

    name = "neighbours"

    def __init__(self) -> None:
        self.width = 1.0

    def first(self, task: Task) -> np.ndarray:
        """Learn the width and given labels; see Model."""
        self._look_up(task)
        given = np.eye(task.classes, dtype=np.float32)[task.label] * task.weight[:, None]
        own = np.arange(len(task.label)), task.label
        unseen = task.fold[self.index] != task.fold[:, None]
        gains = []
        for width in WIDTHS:
            task.check_time()
            p = self._mean(given, unseen, width, slice(None))
            gains.append(task.weight @ np.log(p[own]))
        self.width = WIDTHS[int(np.argmax(gains))]

        def predicted(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
            in_train = np.zeros(len(task.label), bool)
            in_train[train] = True
            return self._mean(given, in_train[self.index[rows]], self.width, rows)

        return out_of_fold(task, predicted)

    def second(self, task: Task, targets: Targets) -> np.ndarray:
        """Learn the targets of the neighbours; see Model."""
        found = np.zeros((len(task.label), task.classes))
        believed = np.zeros((len(task.label), task.classes))
        for fold in range(task.folds):
            task.check_time()
            rows = np.flatnonzero(task.fold == fold)
            target = targets(fold)
            believed += target * (task.fold != fold)[:, None] / (task.folds - 1)
            unseen = task.fold[self.index[rows]] != fold
            weighted = target * task.weight[:, None]
            found[rows] = self._mean(weighted, unseen, self.width, rows)
        self.believed = believed[self.references] * task.weight[self.references, None]
        return found

    def probabilities(self, X: Any) -> np.ndarray:
        """By the rows seen in training."""
        index, distance = _nearest(self._scaled(X), self.points, NEAREST)
        return _kernel_mean(self.believed, index, distance, self.width)

    def forget(self) -> None:
        """Let go of who is whose neighbour."""
        del self.index, self.distance, self.references

    def _look_up(self, task: Task) -> None:
        X = task.X
        if issparse(X):
            self.mean, self.scale = None, None
        else:
            share = (task.weight / task.weight.sum()).astype(np.float64)
            self.mean = share @ X.astype(np.float64)
            spread = np.sqrt(share @ (X - self.mean) ** 2)
            varies = spread > 1e-6 * np.abs(self.mean)
            self.scale = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)
        points = self._scaled(X)
        rows = np.arange(len(task.label))
        every = -(-len(rows) // MOST_REFERENCES)
        self.references = task.order[::every]
        self.points = points[self.references]
        nearest, self.distance = _nearest(points, self.points, NEAREST + 1, task.check_time)
        self.index = self.references[nearest]
        self.distance[self.index == rows[:, None]] = np.inf  # no row is its own neighbour

    def _scaled(self, X: Any) -> Any:
        if issparse(X):
            from sklearn.preprocessing import normalize

            return normalize(X)
        return np.clip((X - self.mean) * self.scale, -BOUND, BOUND).astype(np.float32)

    def _mean(self, values: np.ndarray, allowed: np.ndarray, width: float, rows: Any) -> np.ndarray:
        distance = np.where(allowed, self.distance[rows], np.inf)
        return _kernel_mean(values, self.index[rows], distance, width)


def _kernel_mean(
    values: np.ndarray, index: np.ndarray, distance: np.ndarray, width: float
) -> np.ndarray:
    """Weighted means over neighbours, a trace of every class among them."""
    classes = values.shape[1]
    found = np.empty((len(index), classes))
    for start in range(0, len(index), BLOCK):
        part = slice(start, start + BLOCK)
        order = np.sort(distance[part], axis=1)
        close = order[:, :CLOSE]
        reach = np.where(np.isfinite(close), close, 0.0).max(axis=1, keepdims=True)
        reach = np.maximum(reach, np.finfo(np.float32).tiny)
        kernel = np.exp(-0.5 * np.square(distance[part] / (width * reach)))
        found[part] = np.einsum("ij,ijc->ic", kernel, values[index[part]])
    found += PRIOR / classes
    return found / found.sum(axis=1, keepdims=True)


def _nearest(
    points: Any, references: Any, count: int, between: Callable[[], None] = lambda: None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Places of the nearest references, in no order, and their distances."""
    count = min(count, references.shape[0])
    index = np.empty((points.shape[0], count), np.intp)
    distance = np.empty((points.shape[0], count), np.float32)
    squares = _squares(references)
    for start in range(0, points.shape[0], BLOCK):
        between()
        part = slice(start, start + BLOCK)
        products = points[part] @ references.T
        products = products.toarray() if issparse(products) else products
        far = squares - 2 * products
        near = np.argpartition(far, count - 1, axis=1)[:, :count]
        index[part] = near
        squared = np.take_along_axis(far, near, 1) + _squares(points[part])[:, None]
        distance[part] = np.sqrt(np.maximum(squared, 0))
    return index, distance


def _squares(points: Any) -> np.ndarray:
    squares = points.multiply(points) if issparse(points) else np.square(points)
    return np.asarray(squares.sum(axis=1)).ravel()
