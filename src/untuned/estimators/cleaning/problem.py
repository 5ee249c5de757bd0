"""The bilevel problem of the linear judge: three numbers are learned, and say what rows teach.

    g(x, y) = sum over models k and rows i outside of fold k of loss(y_k; t_ik) / rows
              + ridge / 2 |coefficients|^2
    f(x, y) = mean of -log sum_j P(label given to i | true label j) p_j(i; y_k), k the fold of i

with softmax regressions y_k, one per fold, all solved for at once, and targets

    t_ik = w_ik (the given label) + (1 - w_ik) (what it is if it is wrong, by the evidence so far),
    w_ik = sigmoid(slope * evidence_ik + offset),

and w = 1 for trusted rows, whose given label is the true one. x holds ridge, slope and offset. With
slope 1 and offset 0 the targets are what Bayes' rule says. One free number per row in place of
the two fits the very rows that f is measured on: it was tried, and mostly ranks labels worse
(docs/lab/labels.md).

Derivatives are in closed form (`untuned.ops.ClosedForm`), for shapes see stacked.py. g also asks
each model's intercepts for a sum of zero, which changes no prediction and makes it curve there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES, softmax
from untuned.ops import numpy as numpy_ops
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import newton_cg

# Ridge, slope (as logarithms) and offset start in the middle, and stay within these bounds, beyond
# which they change nothing but the conditioning.
START = 1e-2  # of the ridge
MIDDLE = np.array([np.log(START), 0.0, 0.0])
HALF_RANGE = np.array([np.log(1e4), np.log(10.0), 10.0])
UNIT = (
    5.0 / 3**0.5
)  # x is scaled so that `auto`, with its 0.1 per entry, moves them by half at most

LEFT = 1e-2  # of the error at the start, where y alone is solved for
MOST_LINEAR_STEPS = 50
# Dense features are whitened, so a system takes a handful of products, and a model of the Hessian
# would take longer than all of them. The first systems, far from the solution, are worth few.
FORCING = 0.3
SOFTMAX = LOSSES["softmax"]


class Rows(NamedTuple):
    """Training rows: noisy and trusted ones together."""

    features: Any  # whitened, or sparse as they came
    label: np.ndarray  # the given one
    weight: np.ndarray
    trusted: np.ndarray  # True or False
    seen: np.ndarray  # (models, rows), 1 where a model learns from a row
    judge: np.ndarray  # the model that judges each row
    evidence: np.ndarray  # (models, rows), for the label being right: log-odds
    other: Any  # (models, classes, rows), what the true label is if not the given one
    likelihood: np.ndarray  # (rows, classes), P(given label | true label j); f alone asks for it


class Numbers(NamedTuple):
    """What is learned about all rows."""

    ridge: float
    slope: float
    offset: float


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
    target: np.ndarray  # (models, classes, rows)
    belief: np.ndarray  # (models, rows)
    learned: Numbers


class Models:
    """Rows, how much of the ridge falls on each feature, and the point that was looked at last."""

    def __init__(self, rows: Rows, penalty: np.ndarray, classes: int):
        self.rows = rows._replace(other=None)  # `away` says as much, and memory may be scarce
        dtype = rows.features.dtype
        self.penalty = penalty.astype(dtype)[:, None, None]
        self.own = slice(None), rows.label, np.arange(len(rows.label))
        shape = len(rows.other), classes, len(rows.label)
        self.away = np.broadcast_to(rows.other, shape).astype(dtype)
        self.away[self.own] -= 1
        self.share = (rows.weight / rows.weight.sum()).astype(dtype)
        self.train = (rows.seen * self.share).astype(dtype)[:, None]
        self._last: Point | None = None

    def at(self, x: np.ndarray, y: np.ndarray) -> Point:
        """Outputs and targets at (x, y); f and g often ask for the same one."""
        last = self._last
        if last is None or not (np.array_equal(x, last.x) and np.array_equal(y, last.y)):
            self._last = last = None  # memory may be scarce
            z = stacked.outputs(self.rows.features, stacked.coefficients(y), y[:, -1])
            learned = numbers(x)
            noisy = expit(learned.slope * self.rows.evidence + learned.offset)
            belief = np.where(self.rows.trusted, 1.0, noisy).astype(self.share.dtype)
            target = (1 - belief)[:, None] * self.away
            target[self.own] += 1
            last = Point(x, y, z, target, belief, learned)
        self._last = last._replace(y=y)  # the same numbers, but not kept twice
        return self._last

    def pull(self, at: Point, by_belief: np.ndarray, by_ridge: float) -> np.ndarray:
        """The gradient in x of the sum of belief * by_belief, plus by_ridge per log(ridge)."""
        bent = np.where(self.rows.trusted, 0.0, at.belief * (1 - at.belief)) * by_belief
        by_slope = at.learned.slope * (bent * self.rows.evidence).sum()
        slopes = UNIT * (1 - np.tanh(UNIT * at.x / HALF_RANGE) ** 2)
        return (slopes * [by_ridge, by_slope, bent.sum()]).astype(at.x.dtype)


class Inner:
    """g."""

    def __init__(self, models: Models):
        self.models = models

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        m, at = self.models, self.models.at(x, y)
        value = np.vdot(m.train[:, 0], SOFTMAX.value(at.z, at.target, 1))
        sums = y[:, -1].sum(axis=1)
        return float(value + self._ridge(at, y, y) / 2 + sums @ sums / (2 * y.shape[2]))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        m, at = self.models, self.models.at(x, y)
        return self._back(at, m.train * SOFTMAX.slope(at.z, at.target, 1), y)

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        m, at = self.models, self.models.at(x, y)
        by_belief = m.train[:, 0] * (m.away * at.z).sum(axis=1)
        return self(x, y), m.pull(at, by_belief, self._ridge(at, y, y) / 2), self.grad_y(x, y)

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        m, at = self.models, self.models.at(x, y)
        bend = SOFTMAX.bend(at.z, 1)

        # Not recursive: a function that holds itself is freed late, and with it outputs and rows.
        def pull(v: np.ndarray, wrt: str) -> Any:
            change = stacked.outputs(m.rows.features, stacked.coefficients(v), v[:, -1])
            in_y = None if wrt == "x" else self._back(at, m.train * bend(change), v)
            if wrt == "y":
                return in_y
            by_belief = m.train[:, 0] * (m.away * change).sum(axis=1)
            in_x = m.pull(at, by_belief, self._ridge(at, y, v))
            return in_x if wrt == "x" else (in_x, in_y)

        return pull

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
        """By the model that judges each row: probabilities (classes, rows), and of its label."""
        m = self.models
        place = m.rows.judge, slice(None), np.arange(len(m.share))
        z = m.at(x, y).z[place].T
        p = softmax(z, 0)
        tiny = np.finfo(p.dtype).tiny  # a label may be impossible to a model that is sure
        return p, np.maximum((p * m.rows.likelihood.T).sum(axis=0), tiny), place


def solve_inner(x: np.ndarray, y: np.ndarray, models: Models) -> np.ndarray:
    """The y that minimizes g at x, by the Newton method with which `minimize` solves for it."""
    o = Oracles(numpy_ops, Outer(models), Inner(models))
    return newton_cg.solve_inner(
        o, x, y, None, LEFT, MOST_LINEAR_STEPS, lambda r: r, forcing=FORCING
    ).y
