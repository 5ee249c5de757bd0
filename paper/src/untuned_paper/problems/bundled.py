"""Small problems on data that come with scikit-learn: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from untuned_paper.problems.experiment import (
    Experiment,
    Rows,
    class_errors,
    logistic,
    mean_loss,
    penalized,
    reweighted,
    sign_errors,
    softmax,
    squared,
    standardised,
    unexplained,
)

SEED = 2442


def breast_cancer(name: str) -> Experiment:
    """Logistic regression of benign (+1) against malignant, one strength per feature."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    return _selection(name, features, np.where(labels == 1, 1, -1), logistic, sign_errors)


def diabetes_ridge(name: str) -> Experiment:
    """Ridge regression of the standardised disease progression, one strength per feature."""
    from sklearn.datasets import load_diabetes

    features, targets = load_diabetes(return_X_y=True)
    targets = (targets - targets.mean()) / targets.std()  # the model has no intercept
    return _selection(name, features, targets, squared, unexplained)


def _selection(
    name: str, features: np.ndarray, labels: np.ndarray, losses: Callable, errors: Callable
) -> Experiment:
    validation, test, train = _split(len(labels))
    features, labels = standardised(features, train), labels.astype(np.float32)
    count = features.shape[1]
    sides = (Rows(features[part], labels[part]) for part in (validation, test, train))
    outer_data, test_data, inner_data = sides
    return Experiment(
        name=name,
        outer=partial(mean_loss, losses),
        inner=partial(penalized, losses),
        x0=np.full(count, -2, np.float32),
        y0=np.zeros(count, np.float32),
        outer_data=outer_data,
        inner_data=inner_data,
        test_data=test_data,
        errors=errors,
    )


def digits_cleaning(name: str) -> Experiment:
    """Hyper-cleaning as on MNIST, on the digits: half of the training labels are wrong."""
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    labels = labels.astype(np.int32)
    validation, test, train = _split(len(labels))
    random = np.random.default_rng(SEED + 1)
    given = labels[train]
    wrong = random.permutation(len(train))[: len(train) // 2]
    given[wrong] = (given[wrong] + random.integers(1, 10, len(wrong))) % 10
    features = standardised(features, train)
    return Experiment(
        name=name,
        outer=partial(mean_loss, softmax),
        inner=reweighted,
        x0=np.full(len(train), -2, np.float32),
        y0=np.zeros((features.shape[1], 10), np.float32),
        outer_data=Rows(features[validation], labels[validation]),
        inner_data=Rows(features[train], given, np.arange(len(train))),
        test_data=Rows(features[test], labels[test]),
        errors=class_errors,
    )


def _split(rows: int) -> Any:
    """A fifth for validation, a fifth for the test, the rest for training."""
    order = np.random.default_rng(SEED).permutation(rows)
    return np.split(order, [rows // 5, 2 * (rows // 5)])
