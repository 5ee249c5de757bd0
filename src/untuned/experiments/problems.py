"""The problems of the paper's comparison on real data, exactly as they are stated.

Regularization selection on Covtype and ijcnn1, and data hyper-cleaning on MNIST; on the bundled
digits too, which needs no download. `names()` lists them, `get(name)` loads one. x and y are those
of the bilevel problem; all numbers are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from untuned.experiments import datasets
from untuned.experiments.exact import ExactValue
from untuned.wording import unknown


class Rows(NamedTuple):
    """Features, labels, and for training rows where each stands among all of them."""

    features: Any
    labels: Any
    position: Any = None


@dataclass(frozen=True)
class Experiment:
    """A problem ready for `untuned.minimize(**experiment.problem(), ...)`, with its metrics."""

    name: str
    outer: Callable
    inner: Callable
    x0: np.ndarray
    y0: np.ndarray
    outer_data: Rows
    inner_data: Rows
    test_data: Rows
    errors: Callable[[Any, Rows], Any]  # share of rows a model gets wrong

    def problem(self) -> dict[str, Any]:
        """The arguments of `untuned.minimize` that say what the problem is."""
        return {
            "outer": self.outer,
            "inner": self.inner,
            "x0": self.x0,
            "y0": self.y0,
            "outer_data": self.outer_data,
            "inner_data": self.inner_data,
        }

    def metrics(self, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Validation loss and error, and test error, of the model y."""
        return {
            "validation_loss": float(self.outer(x, y, self.outer_data)),
            "validation_error": float(self.errors(y, self.outer_data)),
            "test_error": float(self.errors(y, self.test_data)),
        }

    def value(self, x: np.ndarray, y: np.ndarray) -> float:
        """Phi(x) = f(x, y*(x)), the inner problem solved from y to high accuracy in float64."""
        return self.exact.value(x, y)

    @cached_property
    def exact(self) -> ExactValue:
        """Phi and its gradient, compiled once for this problem."""
        return ExactValue(**self.problem())

    def first_rows(self, count: int) -> Experiment:
        """The same problem on at most `count` rows of each set; the sets are shuffled already."""
        inner = Rows(*(None if part is None else part[:count] for part in self.inner_data))
        outer, test = (
            Rows(rows.features[:count], rows.labels[:count])
            for rows in (self.outer_data, self.test_data)
        )
        # One entry of x for each training row, where g looks rows up by their position.
        x0 = self.x0 if inner.position is None else self.x0[:count]
        return replace(self, x0=x0, inner_data=inner, outer_data=outer, test_data=test)


def names() -> list[str]:
    """The names of all problems."""
    return sorted(PROBLEMS)


def get(name: str) -> Experiment:
    """Load a problem and its data."""
    if name not in PROBLEMS:
        raise unknown("problem", name, PROBLEMS)
    return PROBLEMS[name](name)


# Losses. The model is linear and without an intercept, as in the paper.


def logistic(y: Any, rows: Rows) -> Any:
    """log(1 + exp(-t <d, y>)) of each row, t = +1 or -1."""
    return jax.nn.softplus(-rows.labels * (rows.features @ y))


def softmax(y: Any, rows: Rows) -> Any:
    """Cross-entropy of each row over classes 0, 1, ..."""
    scores = rows.features @ y
    chosen = jnp.take_along_axis(scores, rows.labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - chosen


def sign_errors(y: Any, rows: Rows) -> Any:
    return jnp.mean(rows.labels * (rows.features @ y) <= 0)


def class_errors(y: Any, rows: Rows) -> Any:
    return jnp.mean(jnp.argmax(rows.features @ y, axis=1) != rows.labels)


def mean_loss(losses: Callable, x: Any, y: Any, rows: Rows) -> Any:
    """f of every problem: the mean loss on validation rows."""
    return jnp.mean(losses(y, rows))


def penalized(losses: Callable, x: Any, y: Any, rows: Rows) -> Any:
    """g of regularization selection: one strength exp(x_k) per entry (or column) k of y."""
    return jnp.mean(losses(y, rows)) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def reweighted(x: Any, y: Any, rows: Rows) -> Any:
    """g of hyper-cleaning: row i counts sigmoid(x_i)."""
    weights = jax.nn.sigmoid(x[rows.position])
    return jnp.mean(weights * softmax(y, rows)) + 0.2 * jnp.sum(y**2)


# Problems.


def _standardised(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Features in float32, with mean 0 and deviation 1 on the training rows."""
    features = features.astype(np.float32)
    mean, deviation = features[train].mean(0), features[train].std(0)
    return (features - mean) / np.where(deviation > 0, deviation, 1)


def _covtype(name: str, per_class: bool) -> Experiment:
    data = datasets.load("covtype")
    random = np.random.RandomState(2442)
    order = random.permutation(len(data["y"]))
    test, rest = order[:116_203], random.permutation(order[116_203:])
    validation, train = rest[:92_962], rest[92_962:]
    features = _standardised(data["X"], train)
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
    features = _standardised(images, train)
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


def _digits(name: str) -> Experiment:
    """The bundled digits, cleaned as MNIST is: small, and here without a download."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    random = np.random.RandomState(32)
    validation, test, train = np.split(random.permutation(len(labels)), [300, 800])
    labels = labels.astype(np.int32)
    given = labels[train]
    wrong = random.rand(len(train)) < 0.5
    given[wrong] = random.randint(0, 10, wrong.sum())
    features = _standardised(images, train)
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


PROBLEMS: dict[str, Callable[[str], Experiment]] = {
    "covtype": partial(_covtype, per_class=False),
    "covtype-classes": partial(_covtype, per_class=True),
    "digits": _digits,
    "ijcnn1": _ijcnn1,
    **{f"mnist-{share}": partial(_mnist, corruption=share) for share in (0.1, 0.5, 0.7, 0.9)},
}
