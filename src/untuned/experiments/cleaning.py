"""Data hyper-cleaning: one weight per training row, learned against rows with trusted labels.

    g(x, y) = sum_i sigmoid(x_i) loss_i(y) + ridge |y|^2      over training rows
    f(x, y) = sum_j loss_j(y)                                 over trusted rows

with the softmax cross-entropy of a linear model. Sums, not means: then the gradients of f in y
and of g in x are of order one whatever the number of rows, which is the scale the start values
alpha0 = beta0 = gamma0 = 1 assume (docs/methods.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from untuned.ops import Tree


class Rows(NamedTuple):
    """Features with a column of ones for the intercept, and class numbers."""

    features: Any
    labels: Any


def rows(features: np.ndarray, labels: np.ndarray) -> Rows:
    """Rows in float32, with the intercept's column."""
    ones = np.ones((len(features), 1), np.float32)
    return Rows(np.hstack([features.astype(np.float32), ones]), labels.astype(np.int32))


def losses(weights: Tree, data: Rows) -> Any:
    """Softmax cross-entropy of each row."""
    logits = data.features @ weights
    chosen = jnp.take_along_axis(logits, data.labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - chosen


def outer(x: Tree, y: Tree, data: Rows) -> Any:
    """f: the loss on trusted rows."""
    return losses(y, data).sum()


def inner(x: Tree, y: Tree, data: Rows, ridge: float = 1.0) -> Any:
    """g: the weighted loss on training rows, with a ridge."""
    return (jax.nn.sigmoid(x) * losses(y, data)).sum() + ridge * (y**2).sum()


def accuracy(weights: np.ndarray, data: Rows) -> float:
    """Share of rows whose label the model gives."""
    return float(np.mean(np.argmax(data.features @ weights, axis=1) == data.labels))


def corrupt(
    labels: np.ndarray, share: float, classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels with a share replaced by another class, and where that happened."""
    wrong = np.zeros(len(labels), bool)
    wrong[rng.permutation(len(labels))[: round(share * len(labels))]] = True
    shifts = rng.integers(1, classes, len(labels))
    return np.where(wrong, (labels + shifts) % classes, labels), wrong
