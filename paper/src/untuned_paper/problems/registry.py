"""The problems of the comparison: `names()` lists them, `get(name)` loads one.

The paper's on real data, exactly as stated there: regularization selection on Covtype and
ijcnn1, and data hyper-cleaning on MNIST. Beside them small ones on scikit-learn's bundled data
(`bundled.py`) and quadratics whose solution is known (`quadratics.py`). x and y are those of the
bilevel problem; all numbers are float32, except in the quadratics of given condition (float64).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from untuned.util.wording import unknown
from untuned_paper import datasets
from untuned_paper.problems import bundled, quadratics
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
    standardised,
)

__all__ = ["PROBLEMS", "Experiment", "Rows", "class_errors", "get", "names", "softmax"]


def names() -> list[str]:
    """The names of all problems."""
    return sorted(PROBLEMS)


def get(name: str) -> Experiment:
    """Load a problem and its data."""
    if name not in PROBLEMS:
        raise unknown("problem", name, PROBLEMS)
    return PROBLEMS[name](name)


def _covtype(name: str, per_class: bool) -> Experiment:
    data = datasets.load("covtype")
    random = np.random.RandomState(2442)
    order = random.permutation(len(data["y"]))
    test, rest = order[:116_203], random.permutation(order[116_203:])
    validation, train = rest[:92_962], rest[92_962:]
    features = standardised(data["X"], train)
    count = features.shape[1]
    labels: np.ndarray
    y0: np.ndarray
    if per_class:
        losses, errors = softmax, class_errors
        labels = data["y"].astype(np.int32) - 1
        y0 = np.zeros((count, 7), np.float32)
    else:
        losses, errors = logistic, sign_errors
        labels = np.where(data["y"] == 2, 1, -1).astype(np.float32)
        y0 = np.zeros(count, np.float32)
    return Experiment(
        name=name,
        outer=partial(mean_loss, losses),
        inner=partial(penalized, losses),
        x0=np.full(y0.shape[-1], -2, np.float32),
        y0=y0,
        outer_data=Rows(features[validation], labels[validation]),
        inner_data=Rows(features[train], labels[train]),
        test_data=Rows(features[test], labels[test]),
        errors=errors,
    )


def _ijcnn1(name: str) -> Experiment:
    data = datasets.load("ijcnn1")
    train, other = (
        Rows(
            data[f"X_{side}"].astype(np.float32),
            np.where(data[f"y_{side}"] > 0, 1, -1).astype(np.float32),
        )
        for side in ("train", "test")
    )
    count = train.features.shape[1]
    random = np.random.default_rng(2442)
    return Experiment(
        name=name,
        outer=partial(mean_loss, logistic),
        inner=partial(penalized, logistic),
        x0=np.log(random.random(count)).astype(np.float32),
        y0=random.standard_normal(count).astype(np.float32),
        outer_data=other,  # its test file is the validation set
        inner_data=train,
        test_data=other,
        errors=sign_errors,
    )


def _mnist(name: str, corruption: float) -> Experiment:
    data = datasets.load("mnist")
    random = np.random.RandomState(32)
    order = random.permutation(60_000)
    validation, train = order[:5_000], order[5_000:25_000]
    labels = data["y_train"].astype(np.int32)
    given = labels[train]
    wrong = random.rand(len(train)) < corruption
    given[wrong] = random.randint(0, 10, wrong.sum())  # may draw the right label again
    images = np.concatenate([data[f"X_{side}"].reshape(-1, 784) for side in ("train", "test")])
    features = standardised(images, train)
    return Experiment(
        name=name,
        outer=partial(mean_loss, softmax),
        inner=reweighted,
        x0=np.full(len(train), -2, np.float32),
        y0=np.zeros((784, 10), np.float32),
        outer_data=Rows(features[validation], labels[validation]),
        inner_data=Rows(features[train], given, np.arange(len(train))),
        test_data=Rows(features[60_000:], data["y_test"].astype(np.int32)),
        errors=class_errors,
    )


PROBLEMS: dict[str, Callable[[str], Experiment]] = {
    "breast-cancer": bundled.breast_cancer,
    "covtype": partial(_covtype, per_class=False),
    "covtype-classes": partial(_covtype, per_class=True),
    "diabetes-ridge": bundled.diabetes_ridge,
    "digits-cleaning": bundled.digits_cleaning,
    "ijcnn1": _ijcnn1,
    **{f"mnist-{share}": partial(_mnist, corruption=share) for share in (0.1, 0.5, 0.7, 0.9)},
    "quadratic": quadratics.sampled,
    **{
        f"quadratic-{condition}": partial(quadratics.conditioned, condition=condition)
        for condition in (10, 100, 10_000)
    },
}
