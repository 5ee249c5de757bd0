"""What a problem of the comparison is: two functions, their data, a start, and metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from untuned_paper.problems.exact import ExactValue
from untuned_paper.problems.quadratic_form import QuadraticPair


class Rows(NamedTuple):
    """Features, labels, and for training rows the position of each among all of them."""

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
    outer_data: Any = None  # None: outer(x, y), without data
    inner_data: Any = None
    test_data: Rows | None = None
    errors: Callable[[Any, Rows], Any] | None = None  # share that a model y gets wrong
    closed_form: QuadraticPair | None = None  # the solution, where it is known

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
        """f at (x, y), and where y is a model its errors on validation and test rows."""
        data = () if self.outer_data is None else (self.outer_data,)
        found = {"validation_loss": float(self.outer(x, y, *data))}
        if self.errors is not None:
            found["validation_error"] = float(self.errors(y, self.outer_data))
        if self.errors is not None and self.test_data is not None:
            found["test_error"] = float(self.errors(y, self.test_data))
        return found

    def value(self, x: np.ndarray, y: np.ndarray) -> float:
        """Phi(x) = f(x, y*(x)): in closed form, or the inner problem solved from y in float64."""
        if self.closed_form is not None:
            return self.closed_form.value(np.asarray(x, np.float64))
        return self.exact.value(x, y)

    @cached_property
    def exact(self) -> ExactValue:
        """Phi and its gradient, compiled once for this problem."""
        return ExactValue(**self.problem())

    def first_rows(self, count: int) -> Experiment:
        """The same problem on at most `count` rows of each set; the sets are shuffled already."""
        inner, outer, test = (
            jax.tree.map(lambda part: part[:count], rows)
            for rows in (self.inner_data, self.outer_data, self.test_data)
        )
        # One entry of x for each training row, where g looks rows up by their position.
        per_row = getattr(inner, "position", None) is not None
        x0 = self.x0[:count] if per_row else self.x0
        return replace(self, x0=x0, inner_data=inner, outer_data=outer, test_data=test)


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


def squared(y: Any, rows: Rows) -> Any:
    """Half the squared residual of each row; labels are the targets."""
    return 0.5 * (rows.features @ y - rows.labels) ** 2


def unexplained(y: Any, rows: Rows) -> Any:
    """The share of the targets' variance that a linear model leaves."""
    return jnp.mean((rows.features @ y - rows.labels) ** 2) / jnp.var(rows.labels)


def mean_loss(losses: Callable, x: Any, y: Any, rows: Rows) -> Any:
    """f of every problem: the mean loss on validation rows."""
    return jnp.mean(losses(y, rows))


def penalized(losses: Callable, x: Any, y: Any, rows: Rows) -> Any:
    """g of regularization selection: one strength exp(x_k) per entry (or column) k of y."""
    return jnp.mean(losses(y, rows)) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def reweighted(x: Any, y: Any, rows: Rows) -> Any:
    """g of hyper-cleaning: row i has the weight sigmoid(x_i)."""
    weights = jax.nn.sigmoid(x[rows.position])
    return jnp.mean(weights * softmax(y, rows)) + 0.2 * jnp.sum(y**2)


def standardised(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Features in float32, with mean 0 and deviation 1 on the training rows."""
    features = features.astype(np.float32)
    mean, deviation = features[train].mean(0), features[train].std(0)
    return (features - mean) / np.where(deviation > 0, deviation, 1)
