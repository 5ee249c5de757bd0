"""Softmax regressions on soft targets, one per fold, and the bilevel problem that sets their ridge.

    g(x, y) = sum over models k and rows i outside of fold k of loss(y_k; target_ik) / rows
              + ridge(x) / 2 |coefficients|^2
    f(x, y) = mean of -log sum_j P(label given to i | true label j) p_j(i; y_k), k the fold of i

All y_k are solved for at once; x is one number, the logarithm of the ridge within bounds. Outputs
and targets have the shape (models, classes, rows), see closed_form/stacked.py. Derivatives are in
closed form (`untuned.ops.ClosedForm`). g also asks each model's intercepts for a sum of zero, which
changes no prediction and makes g strictly convex in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES, softmax
from untuned.ops import numpy as numpy_ops
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import conjugate_gradient, newton_cg

MIDDLE = 1e-2  # the ridge at x = 0
HALF_RANGE = np.log(1e4)  # of its logarithm: beyond, a ridge changes nothing but the conditioning
UNIT = 5.0 / 3**0.5  # of the logarithm of the ridge that a step of 1 in x changes

LEFT = 1e-2  # of the error at the start, where y alone is solved for
MOST_LINEAR_STEPS = 50
# Dense features are whitened, so a system takes a handful of products. The first systems, far from
# the solution, need little precision.
FORCING = 0.3
TOL = 0.1  # of the first slope: one number about thousands of rows needs no more than one digit
FIRST_STEP, LONGEST_STEP = 0.5, 1.0  # of the search for a ridge, in x
SOFTMAX = LOSSES["softmax"]


class Training(NamedTuple):
    """Rows, and what each model learns from them."""

    features: Any  # whitened, or sparse as they came
    target: Any  # (models or 1, classes, rows), probabilities of true labels
    weight: np.ndarray
    seen: np.ndarray  # (models, rows), 1 where a model learns from a row
    unseen_by: np.ndarray  # the model for which each row is out of fold
    likelihood: np.ndarray  # (rows, classes), P(given label | true label j); for f alone


def ridge_at(x: np.ndarray) -> float:
    """The ridge at x."""
    return float(MIDDLE * np.exp(HALF_RANGE * np.tanh(UNIT * x[0] / HALF_RANGE)))


def ridge_slope(x: np.ndarray) -> float:
    """The derivative of its logarithm in x."""
    return float(UNIT * (1 - np.tanh(UNIT * x[0] / HALF_RANGE) ** 2))


def x_of(ridge: float) -> np.ndarray:
    """x of a ridge, or of the nearest one within bounds."""
    share = np.clip(np.log(ridge / MIDDLE) / HALF_RANGE, -0.99, 0.99)
    return np.array([HALF_RANGE * np.arctanh(share) / UNIT])


class Inner:
    """g; it remembers the outputs at the last y."""

    def __init__(self, rows: Training, penalty: np.ndarray):
        self.rows = rows
        dtype = rows.features.dtype
        self.penalty = penalty.astype(dtype)[:, None, None]
        self.share = (rows.weight / rows.weight.sum()).astype(dtype)
        self.train = (rows.seen * self.share).astype(dtype)[:, None]
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def outputs(self, y: np.ndarray) -> np.ndarray:
        """Of all models on all rows."""
        last = self._last
        if last is None or not np.array_equal(y, last[0]):
            self._last = last = None  # memory may be scarce
            z = stacked.outputs(self.rows.features, stacked.coefficients(y), y[:, -1])
            self._last = last = y, z
        return last[1]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        value = np.vdot(self.train[:, 0], SOFTMAX.value(self.outputs(y), self.rows.target, 1))
        sums = y[:, -1].sum(axis=1)
        return float(value + self._penalized(x, y, y) / 2 + sums @ sums / (2 * y.shape[2]))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        slopes = SOFTMAX.slope(self.outputs(y), self.rows.target, 1)
        return self._back(x, self.train * slopes, y)

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        return self(x, y), self.cross(x, y, y) / 2, self.grad_y(x, y)

    def cross(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(grad_xy g) v."""
        return np.array([ridge_slope(x) * self._penalized(x, y, v)])

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        bend = SOFTMAX.bend(self.outputs(y), 1)

        # Not recursive: a function that holds itself is freed late, and with it outputs and rows.
        def pull(v: np.ndarray, wrt: str) -> Any:
            in_x = None if wrt == "y" else self.cross(x, y, v)
            if wrt == "x":
                return in_x
            change = stacked.outputs(self.rows.features, stacked.coefficients(v), v[:, -1])
            in_y = self._back(x, self.train * bend(change), v)
            return in_y if wrt == "y" else (in_x, in_y)

        return pull

    def _back(self, x: np.ndarray, slopes: np.ndarray, v: np.ndarray) -> np.ndarray:
        """In y, from slopes in outputs; with what the ridge and the intercepts' sum add for v."""
        in_coef, in_intercept = stacked.back(self.rows.features, slopes)
        in_coef += ridge_at(x) * self.penalty * stacked.coefficients(v)
        return stacked.joined(in_coef, in_intercept + v[:, -1].mean(axis=1, keepdims=True))

    def _penalized(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> float:
        products = stacked.coefficients(y) * stacked.coefficients(v)
        return ridge_at(x) * float((self.penalty * products).sum())


class Outer:
    """f, of the same rows."""

    def __init__(self, inner: Inner):
        self.inner = inner

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return -float(self.inner.share @ np.log(self._out_of_fold(y)[1]))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f, which is zero, and grad_y f."""
        rows, share = self.inner.rows, self.inner.share
        p, likelihood, place = self._out_of_fold(y)
        slopes = np.zeros_like(self.inner.outputs(y))
        slopes[place] = (share * (p - p * rows.likelihood.T / likelihood)).T
        in_y = stacked.joined(*stacked.back(rows.features, slopes))
        return -float(share @ np.log(likelihood)), np.zeros_like(x), in_y

    def _out_of_fold(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Probabilities (classes, rows), and those of given labels."""
        rows = self.inner.rows
        place = rows.unseen_by, slice(None), np.arange(len(rows.unseen_by))
        p = softmax(self.inner.outputs(y)[place].T, 0)
        tiny = np.finfo(p.dtype).tiny  # a label may be impossible to a model that is sure
        return p, np.maximum((p * rows.likelihood.T).sum(axis=0), tiny), place


def fit(x: np.ndarray, y: np.ndarray, inner: Inner) -> np.ndarray:
    """The y that minimizes g at x, by Newton's method from y."""
    return newton_cg.solve_inner(
        _oracles(inner), x, y, None, LEFT, MOST_LINEAR_STEPS, lambda r: r, forcing=FORCING
    ).y


def search(
    x: np.ndarray, y: np.ndarray, inner: Inner, most_steps: int, is_over: Callable[[], bool]
) -> tuple[np.ndarray, np.ndarray]:
    """The x where the slope of f(x, y*(x)) is zero, and y*(x): by secants, inside a bracket."""
    outer, bracket, first = Outer(inner), [-np.inf, np.inf], 0.0
    before: tuple[float, float] | None = None
    for step in range(most_steps):
        y = fit(x, y, inner)
        slope = _hypergradient(x, y, inner, outer)
        first = first or abs(slope)
        if step == most_steps - 1 or abs(slope) <= TOL * first or is_over():
            break
        at = float(x[0])
        bracket[int(slope > 0)] = at
        move = -np.sign(slope) * FIRST_STEP
        if before is not None and slope != before[1]:
            secant = -slope * (at - before[0]) / (slope - before[1])
            move = secant if secant * move > 0 else 2 * move  # f is concave between the two
        before = at, slope
        new = at + float(np.clip(move, -LONGEST_STEP, LONGEST_STEP))
        x = np.array([new if bracket[0] < new < bracket[1] else np.mean(bracket)])
    return x, y


def _hypergradient(x: np.ndarray, y: np.ndarray, inner: Inner, outer: Outer) -> float:
    o = _oracles(inner)
    in_y = outer.value_and_grads(x, y)[2]
    hvp = o.linear(x, y, None).hvp
    energy = conjugate_gradient.energy(numpy_ops, in_y, lambda r: r)
    v = conjugate_gradient.solve(
        numpy_ops, hvp, in_y, np.zeros_like(in_y), tolerance=LEFT**2 * energy,
        most=MOST_LINEAR_STEPS,
    ).z  # fmt: skip
    return -float(inner.cross(x, y, v)[0])


def _oracles(inner: Inner) -> Oracles:
    return Oracles(numpy_ops, Outer(inner), inner)
