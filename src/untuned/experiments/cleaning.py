"""Data hyper-cleaning in sums: one weight per training row, learned against trusted rows.

    g(x, y) = sum_i sigmoid(x_i) loss_i(y) + ridge |y|^2      over training rows
    f(x, y) = sum_j loss_j(y)                                 over trusted rows

with the softmax cross-entropy of a linear model. Sums, not means as in the paper's problem: then
the gradients of f in y and of g in x are of order one whatever the number of rows, which is the
scale the start values alpha0 = beta0 = gamma0 = 1 assume (docs/methods.md).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from untuned.experiments.experiment import Rows, class_errors, softmax
from untuned.ops import Tree


def rows(features: np.ndarray, labels: np.ndarray) -> Rows:
    """Rows in float32, with a column of ones for the intercept."""
    ones = np.ones((len(features), 1), np.float32)
    return Rows(np.hstack([features.astype(np.float32), ones]), labels.astype(np.int32))


def outer(x: Tree, y: Tree, data: Rows) -> Any:
    """f: the loss on trusted rows."""
    return softmax(y, data).sum()


def inner(x: Tree, y: Tree, data: Rows, ridge: float = 1.0) -> Any:
    """g: the weighted loss on training rows, with a ridge."""
    return (jax.nn.sigmoid(x) * softmax(y, data)).sum() + ridge * (y**2).sum()


def accuracy(weights: np.ndarray, data: Rows) -> float:
    """Share of rows whose label the model gives."""
    return 1 - float(class_errors(weights, data))


def corrupt(
    labels: np.ndarray, share: float, classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels with a share replaced by another class, and where that happened."""
    wrong = np.zeros(len(labels), bool)
    wrong[rng.permutation(len(labels))[: round(share * len(labels))]] = True
    shifts = rng.integers(1, classes, len(labels))
    return np.where(wrong, (labels + shifts) % classes, labels), wrong
