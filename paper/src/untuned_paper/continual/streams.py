"""Streams of tasks: Split CIFAR-100 and Split MNIST, balanced or not, and any arrays of yours."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from untuned.util.wording import brief, unknown
from untuned_paper import datasets

# Training images kept of each class of imbalanced Split CIFAR-100, in label order: a fixed
# permutation ranks the classes, and rank k keeps the first floor(500 * 0.1^(k / 99)).
# fmt: off
CIFAR_KEPT = (
    72, 197, 232, 369, 100, 286, 424, 115, 321, 83, 361, 488, 455, 118, 121, 159, 188, 70, 179, 254,
    226, 328, 273, 477, 352, 500, 75, 152, 63, 387, 445, 171, 64, 135, 89, 79, 132, 85, 211, 50,
    145, 93, 74, 105, 405, 51, 156, 248, 142, 58, 110, 87, 95, 67, 243, 126, 237, 216, 266, 192,
    54, 56, 434, 314, 344, 112, 201, 60, 299, 98, 53, 306, 336, 175, 292, 61, 466, 167, 107, 57,
    206, 129, 378, 149, 396, 123, 279, 69, 139, 415, 81, 102, 77, 66, 91, 260, 221, 183, 52, 163,
)
# fmt: on
MNIST_MEAN, MNIST_SPREAD = 0.1307, 0.3081
MNIST_ROWS = 1000  # per task
MNIST_MINORITY = 91  # of them, where a task is imbalanced


class Task(NamedTuple):
    """One task: its classes, rows to learn from and rows to be judged by."""

    classes: np.ndarray
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Stream(NamedTuple):
    """Tasks in order; `masked`: the task is known at test time, so only its classes compete."""

    tasks: tuple[Task, ...]
    outputs: int
    masked: bool

    def columns(self, number: int) -> np.ndarray:
        """The outputs of the model that compete on rows of a task."""
        return self.tasks[number].classes if self.masked else np.arange(self.outputs)


def stream(
    groups: list, X: tuple, y: tuple, kept: Callable, masked: bool,
    prepare: Callable[[np.ndarray], np.ndarray] = lambda X: X,
) -> Stream:  # fmt: skip
    """A stream from arrays: `groups` are the classes of each task, X and y (train, test) pairs.

    `kept(class, rows)` gives those of a class's training rows that are kept, in order; `prepare`
    makes a network's inputs of rows, so that it need not be done for those that are not kept.
    """
    X_train, X_test = X
    y_train, y_test = (np.asarray(part) for part in y)
    tasks = []
    if len(groups) == 0:
        raise ValueError("The stream has no task; give the classes of at least one.")
    for number, group in enumerate(groups, start=1):
        classes = np.unique(np.asarray(group, int))
        rows = [np.asarray(kept(label, np.flatnonzero(y_train == label))) for label in classes]
        for label, of_class in zip(classes, rows, strict=True):
            if len(of_class) == 0:
                raise ValueError(
                    f"The class {label} of task {number} has no training row; give some, or leave "
                    "the class out."
                )
        if not rows:
            raise ValueError(f"Task {number} is empty; give each task at least one class.")
        train = np.sort(np.concatenate(rows))
        test = np.flatnonzero(np.isin(y_test, classes))
        if len(test) == 0:
            raise ValueError(f"Task {number} has no test row; give some to judge it by.")
        tasks.append(
            Task(
                classes,
                np.asarray(prepare(X_train[train]), np.float32),
                y_train[train],
                np.asarray(prepare(X_test[test]), np.float32),
                y_test[test],
            )
        )  # fmt: skip
    outputs = 1 + max(int(task.classes.max()) for task in tasks)
    return Stream(tuple(tasks), outputs, masked)


@cache  # a worker learns many streams of the same data
def _arrays(name: str) -> tuple[tuple, tuple]:
    data = datasets.load(name)
    labels = tuple(data[part].astype(np.int64) for part in ("y_train", "y_test"))
    return (data["X_train"], data["X_test"]), labels


def split_cifar100(imbalanced: bool, seed: int) -> Stream:
    """20 tasks of 5 classes in label order; images are kept in file order, whatever the seed."""
    images, labels = _arrays("cifar100")

    def kept(label: int, rows: np.ndarray) -> np.ndarray:
        return rows[: CIFAR_KEPT[label]] if imbalanced else rows

    groups = [np.arange(start, start + 5) for start in range(0, 100, 5)]
    return stream(groups, images, labels, kept, True, _channels_first)


def split_mnist(imbalanced: bool, seed: int) -> Stream:
    """5 tasks of 2 digits, 1000 training images each, drawn by the seed; no mask at test."""
    images, labels = _arrays("mnist")
    rng = np.random.default_rng([seed, 0])

    def kept(label: int, rows: np.ndarray) -> np.ndarray:
        count = MNIST_ROWS // 2
        if imbalanced:  # the rare digit is the second of a pair, then the first, in turn
            rare = label % 2 != (label // 2) % 2
            count = MNIST_MINORITY if rare else MNIST_ROWS - MNIST_MINORITY
        return rng.permutation(rows)[:count]

    groups = [np.array([first, first + 1]) for first in range(0, 10, 2)]
    return stream(groups, images, labels, kept, False, _normalised)


STREAMS = {"split-cifar100": (split_cifar100, 20), "split-mnist": (split_mnist, 5)}


def check_tasks(name: str, tasks: int | None) -> None:
    """Refuse a number of tasks that a stream does not have."""
    if name not in STREAMS:
        raise unknown("stream", name, STREAMS)
    most = STREAMS[name][1]
    if tasks is not None and not 2 <= tasks <= most:
        raise ValueError(
            f"tasks={brief(tasks)} is not usable; expected a whole number from 2 to {most}, as "
            f"{name} has."
        )


def get(name: str, imbalanced: bool, seed: int, tasks: int | None = None) -> Stream:
    """A stream by name, or its first tasks."""
    check_tasks(name, tasks)
    found = STREAMS[name][0](imbalanced, seed)
    return found._replace(tasks=found.tasks[:tasks])


def _channels_first(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32) / 255


def _normalised(images: np.ndarray) -> np.ndarray:
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    return (pixels - MNIST_MEAN) / MNIST_SPREAD
