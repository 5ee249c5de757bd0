"""Stacking: a log-linear pool of base models, its weights learned through the label noise.

    p_i = softmax(sum_k w_k log p_i^k + b)          base models k, rows i, one offset b per class
    loss_i(w, b) = -log sum_j P(label given to i | true label j) p_ij

A weight w_k >= 0 is a model's share and its temperature in one: above 1 it makes an underconfident
model surer. SciPy's L-BFGS-B minimizes

    mean of loss_i(w, b) + (sum_k w_k + |b|^2 / 2) / rows.

The last term is a prior that weighs as much as one row. It draws the weight of a model that does
not help to zero; a weight that is then close to zero is set to zero.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from untuned.closed_form.losses import softmax
from untuned.run.result import COLUMNS, History, Result, Status

FAINT = 1e-4  # mixed into each model, so that none is ever certain
FAINTEST = 1e-12  # weight: where no model knows anything, one must count all the same
NOTHING = 0.05  # a weight below this share of the largest one changes no result
# The slopes of a row are about 1, so those of the mean are known to 1 / sqrt(rows): a slope of this
# share of that is none.
CHANCE = 0.01
MOST_STEPS = 200
# SciPy's codes; a callback that ends the search has another one.
STATUS: dict[int, Status] = {0: "converged", 1: "max_steps", 2: "stalled"}
SAMPLED_ENTRIES, FEWEST_ROWS = 2**15, 1024  # enough for so few numbers


class Stacked(NamedTuple):
    """What the pool is learned from. Rows are last: sums over classes are of long vectors then."""

    logs: np.ndarray  # (models, classes, rows), logarithms of out-of-fold probabilities
    likelihood: np.ndarray  # (classes, rows), P(given label | true label j)
    weight: np.ndarray

    def loss(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss with its prior, and its gradient, of weights and offsets in one vector."""
        weights, offsets = np.split(x, [len(self.logs)])
        total = self.weight.sum()
        p = softmax(np.tensordot(weights, self.logs, 1) + offsets[:, None], 0)
        posterior = p * self.likelihood
        of_label = np.maximum(posterior.sum(axis=0), np.finfo(float).tiny)
        posterior /= of_label
        slopes = self.weight * (p - posterior)
        prior = weights.sum() + offsets @ offsets / 2
        grad = np.append(np.tensordot(self.logs, slopes, 2) + 1, slopes.sum(axis=1) + offsets)
        return float(prior - self.weight @ np.log(of_label)) / total, grad / total


class Pool(NamedTuple):
    """What was learned."""

    weights: np.ndarray  # one per model
    offsets: np.ndarray  # one per class
    result: Result

    def scores(self, logs: np.ndarray) -> np.ndarray:
        """Logarithms of pooled probabilities, but for a constant in each row."""
        return np.tensordot(self.weights, logs, 1) + self.offsets

    def probabilities(self, logs: np.ndarray) -> np.ndarray:
        """Of true labels, (rows, classes)."""
        return softmax(self.scores(logs).astype(np.float64), 1)


def logs_of(probabilities: np.ndarray) -> np.ndarray:
    """The logarithms of a model's probabilities, none of which is quite zero."""
    classes = probabilities.shape[-1]
    return np.log((probabilities + FAINT / classes) / (1 + FAINT))


def sampled(rows: Stacked, order: np.ndarray) -> Stacked:
    """As many rows as are enough, by an order that is independent of their content."""
    classes, count = rows.likelihood.shape
    most = max(FEWEST_ROWS, SAMPLED_ENTRIES // classes)
    if count <= most:
        return rows
    chosen = order[np.linspace(0, count - 1, most).astype(int)]
    return Stacked(*(np.ascontiguousarray(leaf[..., chosen]) for leaf in rows))


def learn(rows: Stacked, start: np.ndarray | Pool, ends: float = np.inf) -> Pool:
    """The pool of these rows, from weights or from a pool of theirs under another likelihood.

    `ends` is on the clock `time.monotonic`.
    """
    models, classes, _ = rows.logs.shape
    if isinstance(start, Pool):
        x = np.append(start.result.x, start.result.y)
    else:
        x = np.append(start, np.zeros(classes))
    began = time.monotonic()

    def stop(_: np.ndarray) -> None:
        if time.monotonic() > ends:
            raise StopIteration

    found = minimize(
        rows.loss, x, jac=True, method="L-BFGS-B", callback=stop,
        bounds=[(0.0, None)] * models + [(None, None)] * classes,
        options={"maxiter": MOST_STEPS, "gtol": CHANCE / rows.weight.sum() ** 0.5, "ftol": 0.0},
    )  # fmt: skip
    weights, offsets = np.split(found.x, [models])
    weights = np.maximum(weights, FAINTEST)
    weights[weights < NOTHING * weights.max()] = 0.0
    return Pool(weights, offsets - offsets.mean(), _result(found, models, time.monotonic() - began))


def _result(found: OptimizeResult, models: int, seconds: float) -> Result:
    """What SciPy found, as `untuned.minimize` would report it: with one record, of the end."""
    status = STATUS.get(found.status, "max_seconds")
    held = (found.x == 0) & (found.jac > 0) & (np.arange(len(found.x)) < models)
    counts = {"outer_grad": int(found.nfev), "inner_grad": 0, "hvp": 0, "cross": 0}
    history = History()
    history.append(dict.fromkeys(COLUMNS, 0) | counts | {
        "step": int(found.nit), "seconds": seconds, "outer": float(found.fun),
        "hypergrad_norm": float(np.linalg.norm(np.where(held, 0.0, found.jac))),
    })  # fmt: skip
    message = (
        f"L-BFGS-B ended the search for the weights of the pool after {found.nit} steps ({status})."
    )
    return Result(
        found.x[:models], found.x[models:], np.zeros(0), status, message, int(found.nit), seconds,
        0.0, counts, history, None,
    )  # fmt: skip
