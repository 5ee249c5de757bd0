"""The bilevel problem of `LabelCleaner`: three numbers are learned, and give each row its weight.

    g(x, y) = sum over models k and rows i outside of fold k of w_i loss_i(y_k) / rows
              + ridge / 2 |coefficients|^2
    f(x, y) = mean of -log sum_j P(label given to i | true label j) p_j(i; y_k), k the fold of i

with softmax regressions y_k, one per fold, all solved for at once. The weights are
w_i = sigmoid(slope * evidence_i + offset), and 1 for trusted rows, whose given label is the true
one. x holds ridge, slope and offset. One free number per row in their place fits the very rows that
f is measured on: it was tried, and mostly ranks labels worse (docs/cleaning.md).

Derivatives are in closed form (`untuned.ops.ClosedForm`), for shapes see stacked.py. g also asks
each model's intercepts for a sum of zero, which changes no prediction and makes it curve there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize
from scipy.special import expit

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES, softmax

# Ridge, slope (as logarithms) and offset start in the middle, and stay within these bounds, beyond
# which they change nothing but the conditioning.
MIDDLE = np.array([np.log(1e-2), 0.0, 0.0])
HALF_RANGE = np.array([np.log(1e4), np.log(10.0), 10.0])
UNIT = (
    5.0 / 3**0.5
)  # x is scaled so that `auto`, with its 0.1 per entry, moves them by half at most

MOST_ITERATIONS, FLAT = 200, 1e-5  # of a plain solve for y: where g falls by less it is flat
SOFTMAX = LOSSES["softmax"]


class Rows(NamedTuple):
    """Training rows: noisy and trusted ones together."""

    features: np.ndarray  # whitened
    label: np.ndarray  # the given one
    fold: np.ndarray
    weight: np.ndarray
    trusted: np.ndarray  # True or False
    evidence: Any  # for the label being right: log-odds
    likelihood: Any  # P(given label | true label j), for each j; f alone asks for it


class Numbers(NamedTuple):
    """What is learned about all rows."""

    ridge: float
    slope: float
    offset: float


def start(features: int, classes: int, models: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y to start from."""
    return np.zeros(3, np.float32), np.zeros((models, features + 1, classes), np.float32)


def numbers(x: np.ndarray) -> Numbers:
    """Ridge, slope and offset at x."""
    ridge, slope, offset = MIDDLE + HALF_RANGE * np.tanh(UNIT * x / HALF_RANGE)
    return Numbers(float(np.exp(ridge)), float(np.exp(slope)), float(offset))


def with_ridge_times(x: np.ndarray, factor: float) -> np.ndarray:
    """x with a ridge that many times as large, or as near to it as its bounds allow."""
    half, changed = HALF_RANGE[0], x.copy()
    then = np.clip(np.tanh(UNIT * x[0] / half) + np.log(factor) / half, -0.99, 0.99)
    changed[0] = half * np.arctanh(then) / UNIT
    return changed


class Point(NamedTuple):
    """What f and g need at one (x, y)."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray  # outputs
    train: np.ndarray  # (models, 1, rows), what each row counts for each model
    learned: Numbers


class Models:
    """Rows, how much of the ridge falls on each feature, and the point that was looked at last."""

    def __init__(self, rows: Rows, penalty: np.ndarray, models: int, classes: int):
        self.rows = rows
        dtype = rows.features.dtype
        self.penalty = penalty.astype(dtype)[:, None, None]
        self.target = np.eye(classes, dtype=dtype)[:, rows.label]
        self.share = (rows.weight / rows.weight.sum()).astype(dtype)
        self.seen = (rows.fold != np.arange(models)[:, None]).astype(dtype)
        self._last: Point | None = None

    def at(self, x: np.ndarray, y: np.ndarray) -> Point:
        """Outputs and weights at (x, y); f and g often ask for the same one."""
        last = self._last
        if last is None or not (np.array_equal(x, last.x) and np.array_equal(y, last.y)):
            z = stacked.outputs(self.rows.features, stacked.coefficients(y), y[:, -1])
            learned = numbers(x)
            train = (self.seen * (self.share * self.belief(learned)))[:, None]
            last = self._last = Point(x, y, z, train, learned)
        return last

    def forget(self) -> None:
        """Give the memory of the last point back."""
        self._last = None

    def belief(self, learned: Numbers) -> np.ndarray:
        """One weight in [0, 1] per row."""
        noisy = expit(learned.slope * self.rows.evidence + learned.offset)
        return np.where(self.rows.trusted, 1.0, noisy).astype(self.share.dtype)

    def pull(self, at: Point, by_row: np.ndarray, by_ridge: float) -> np.ndarray:
        """The gradient in x of the sum of belief * by_row, plus by_ridge per log(ridge)."""
        noisy = self.belief(at.learned)
        bent = np.where(self.rows.trusted, 0.0, noisy * (1 - noisy)) * self.share * by_row
        by_slope = at.learned.slope * (bent @ self.rows.evidence)
        slopes = UNIT * (1 - np.tanh(UNIT * at.x / HALF_RANGE) ** 2)
        return (slopes * [by_ridge, by_slope, bent.sum()]).astype(at.x.dtype)


class Inner:
    """g."""

    def __init__(self, models: Models):
        self.models = models

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        m, at = self.models, self.models.at(x, y)
        value = np.vdot(at.train[:, 0], SOFTMAX.value(at.z, m.target, 1))
        sums = y[:, -1].sum(axis=1)
        return float(value + self._ridge(at, y, y) / 2 + sums @ sums / (2 * y.shape[2]))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        m, at = self.models, self.models.at(x, y)
        return self._back(at, at.train * SOFTMAX.slope(at.z, m.target, 1), y)

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        m, at = self.models, self.models.at(x, y)
        by_row = (m.seen * SOFTMAX.value(at.z, m.target, 1)).sum(axis=0)
        return self(x, y), m.pull(at, by_row, self._ridge(at, y, y) / 2), self.grad_y(x, y)

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        m, at = self.models, self.models.at(x, y)
        bend = SOFTMAX.bend(at.z, 1)

        def pull(v: np.ndarray, wrt: str) -> Any:
            change = stacked.outputs(m.rows.features, stacked.coefficients(v), v[:, -1])
            if wrt == "y":
                return self._back(at, at.train * bend(change), v)
            by_row = (SOFTMAX.slope(at.z, m.target, 1) * change).sum(axis=1)
            in_x = m.pull(at, (m.seen * by_row).sum(axis=0), self._ridge(at, y, v))
            return in_x if wrt == "x" else (in_x, pull(v, "y"))

        return pull

    def hessian_blocks(self, y: np.ndarray) -> tuple[int, int, float]:
        """A block for each model; the share of the rows that they are made of."""
        return len(y), y[0].size, 1 / stacked.every(len(self.models.share), y[0].size)

    def hessian(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The block of each model, from some of its rows."""
        m, at = self.models, self.models.at(x, y)
        every, columns = stacked.every(len(m.share), y[0].size), y.shape[2]
        some = slice(None, None, every)
        X = m.rows.features[some]
        along = [np.column_stack([X, np.ones(len(X), X.dtype)])] * columns
        blocks = []
        for k in range(len(y)):
            bend = SOFTMAX.bend(at.z[k, :, some], 0)
            block = stacked.hessian(along, bend, every * at.train[k, 0, some])
            for c in range(columns):
                diagonal = np.arange(len(m.penalty))
                block[diagonal, c, diagonal, c] += at.learned.ridge * m.penalty[:, 0, 0]
            block[-1, :, -1] += 1 / columns
            blocks.append(block.reshape(y[0].size, -1))
        return np.stack(blocks)

    def _back(self, at: Point, slopes: np.ndarray, v: np.ndarray) -> np.ndarray:
        """In y, from slopes in outputs; with what the ridge and the intercepts' sum add for v."""
        m = self.models
        in_coef, in_intercept = stacked.back(m.rows.features, slopes)
        in_coef += at.learned.ridge * m.penalty * stacked.coefficients(v)
        return stacked.joined(in_coef, in_intercept + v[:, -1].mean(axis=1, keepdims=True))

    def _ridge(self, at: Point, y: np.ndarray, v: np.ndarray) -> float:
        products = stacked.coefficients(y) * stacked.coefficients(v)
        return at.learned.ridge * float((self.models.penalty * products).sum())


class Outer:
    """f."""

    def __init__(self, models: Models):
        self.models = models

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        _, likelihood, _ = self._judged(x, y)
        return -float(self.models.share @ np.log(likelihood))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f, which is zero, and grad_y f."""
        m = self.models
        p, likelihood, place = self._judged(x, y)
        slopes = np.zeros_like(m.at(x, y).z)
        posterior = p * m.rows.likelihood.T / likelihood
        slopes[place] = (m.share * (p - posterior)).T
        in_y = stacked.joined(*stacked.back(m.rows.features, slopes))
        return -float(m.share @ np.log(likelihood)), np.zeros_like(x), in_y

    def _judged(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """By the model of each row's own fold: probabilities (classes, rows), and of its label."""
        m = self.models
        place = m.rows.fold, slice(None), np.arange(len(m.share))
        z = m.at(x, y).z[place].T
        p = softmax(z, 0)
        tiny = np.finfo(p.dtype).tiny  # a label may be impossible to a model that is sure
        return p, np.maximum((p * m.rows.likelihood.T).sum(axis=0), tiny), place


def solve_inner(
    x: np.ndarray, y: np.ndarray, blocks: list[Rows], penalty: np.ndarray
) -> np.ndarray:
    """The y that minimizes g at x, by SciPy's L-BFGS; rows come in blocks to save memory."""
    shares = np.array([block.weight.sum() for block in blocks])
    shares = shares / shares.sum()
    parts = [Models(block, penalty, y.shape[0], y.shape[2]) for block in blocks]

    def value_and_grad(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = flat.reshape(y.shape).astype(y.dtype)
        value, grad = 0.0, np.zeros(y.shape)
        for share, part in zip(shares, parts, strict=True):  # g is a mean over rows
            inner = Inner(part)
            value, grad = value + share * inner(x, at), grad + share * inner.grad_y(x, at)
            part.forget()
        return value, grad.ravel()

    options = {"maxiter": MOST_ITERATIONS, "ftol": FLAT}
    solution = optimize.minimize(
        value_and_grad, y.astype(np.float64).ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return solution.x.reshape(y.shape).astype(y.dtype)
