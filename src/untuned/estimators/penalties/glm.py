"""Generalized linear models with L2 penalties: many at once, on the same rows.

Each model minimizes, over coefficients w and intercepts b,

    g = sum over rows of share * loss(X w + b) + 1/2 sum_j s_j w_j^2 / N + 1/2 h |b|^2

where the shares of its training rows sum to one and N is the weight of those rows. One solver does
all: nonlinear conjugate gradients, preconditioned by an approximate Hessian (curvature.py). Outputs
are linear in coefficients, so once a direction's outputs are known every step along it is, and an
iteration takes two products with X beside the preconditioner's. For squared errors this is the
linear method, and with an exact Hessian it takes one iteration. The adjoint system H v = q is a
quadratic of the same kind, so the same solver solves it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES
from untuned.estimators.penalties import curvature
from untuned.estimators.penalties.penalties import LEAST_PER_ROW
from untuned.estimators.penalties.standardisation import Standardised
from untuned.util import watch

MOST_STEPS, MOST_TRIES = 2000, 12
NEARLY = 0.1  # of the slope along a direction, that may be left at a step
FARTHER = 10.0  # times the last step that was tried, at most
MANY = 4  # iterations of a solve, after which the Hessian is made anew
IDLE = 3  # steps in a row that gain nothing beyond rounding
# Keeps finite the intercept of a class that no training row is of; next to the least penalty of
# coefficients it is nothing, or classes far apart would pay for their intercepts.
INTERCEPT_PENALTY = 1e-3 * LEAST_PER_ROW
TINY = 1e-300

# Shares of the penalty's pull that a solution may be off by; as the penalty curves everywhere, w is
# then off by about this share of its length, whatever the data.
EXACT = {"float64": 1e-9, "float32": 3e-4}
SEARCH = {"float64": 1e-5, "float32": 1e-3}
ROUGH = 0.03  # of models of very many coefficients, whose losses are compared


class Point(NamedTuple):
    """Coefficients (features, models, columns), intercepts (models, columns), and outputs."""

    w: np.ndarray
    b: np.ndarray
    z: np.ndarray  # (models, columns, rows)

    def move(self, t: np.ndarray, along: Point) -> None:
        """So far along a direction, in place; `t` has an entry for each model."""
        t = t.astype(self.w.dtype)
        for here, d, each in zip(
            self, along, (t[:, None], t[:, None], t[:, None, None]), strict=True
        ):
            here += each * d


class Glm:
    """Models of the same rows; `train` are weights (rows, models).

    Penalties come for each of some vectors, and `owner` is that of each model.
    """

    def __init__(
        self, loss: str, table: Standardised, target: np.ndarray, train: np.ndarray,
        owner: np.ndarray | None = None, hold: float = INTERCEPT_PENALTY,
    ):  # fmt: skip
        self.loss, self.table, self.hold = LOSSES[loss], table, hold
        self.is_squared, self.is_softmax = loss == "squared", loss == "softmax"
        self.target = np.ascontiguousarray(target.T)
        self.total = train.sum(axis=0)
        self.dtype = table.X.dtype
        self.owner = np.zeros(train.shape[1], int) if owner is None else owner
        self.train = np.ascontiguousarray((train / self.total).T.astype(self.dtype))[:, None]
        self.shape = table.X.shape[1], train.shape[1], target.shape[1]
        self.curvature = curvature.choose(self)
        self.rounding = 100 * float(np.finfo(self.dtype).eps)  # of a gradient: nothing but rounding
        self.at = self.nothing()
        self.s: np.ndarray | None = None  # penalties of the last models
        self.passes = 0  # through the rows, of each model

    def nothing(self) -> Point:
        """No model."""
        _, models, columns = self.shape
        none = np.zeros((models, columns), self.dtype)
        z = np.zeros((models, columns, self.table.X.shape[0]), self.dtype)
        return Point(np.zeros(self.shape, self.dtype), none, z)

    def begin(self, w: np.ndarray, b: np.ndarray, s: np.ndarray) -> None:
        """These become the last models; s are their penalties, `of_models`."""
        self.at, self.s = Point(w, b, self.outputs(w, b)), s

    def solve(self, s: np.ndarray, tol: float) -> Point:
        """The models with penalties s, of a shape like (features, vectors, columns), from the last
        ones; they become the last."""
        s = self.of_models(s)
        before, self.s = self.s, s
        if before is not None and not self.is_squared:
            w, b, _ = self.at
            w *= self.curvature.carried(before, s)
            self.at = self.at._replace(z=self.outputs(w, b))
        loss, target = self.loss, self.target
        if self.at.w.any() and self._value(self.at, s) > self._value(self.nothing(), s):
            self.at = self.nothing()  # penalties may have become far weaker
        self.curvature.factor(s, self.at.z)
        slope = lambda z: loss.slope(z, target, 1)
        bend = lambda z: loss.bend(z, 1, target)
        self._descend(s, self.at, slope, bend, None, tol)
        if self.is_softmax:  # which is the same for intercepts that all grow alike
            mean = self.at.b.mean(axis=1, keepdims=True)
            self.at = self.at._replace(b=self.at.b - mean, z=self.at.z - mean[:, None])
        return self.at

    def adjoint(self, s: np.ndarray, slopes: np.ndarray, tol: float) -> np.ndarray:
        """v of H v = q in w and b, at the last models, for a gradient in outputs; that of w."""
        s, v = self.of_models(s), self.nothing()
        curve = self.loss.bend(self.at.z, 1, self.target)
        self._descend(s, v, curve, lambda z: curve, self.back(slopes), tol)
        return v.w

    def of_models(self, s: np.ndarray) -> np.ndarray:
        """s / N, of a shape like (features, models, columns)."""
        return (s[:, self.owner] / self.total[:, None]).astype(self.dtype)

    def outputs(self, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """(models, columns, rows)."""
        self.passes += w.shape[1]
        if sparse.issparse(self.table.X):
            b = b - np.tensordot(self.table.shift, w, axes=1)
        return stacked.outputs(self.table.X, w, b)

    def back(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From a gradient in outputs those in coefficients and intercepts."""
        in_w, in_b = stacked.back(self.table.X, slopes)
        if sparse.issparse(self.table.X):
            in_w -= np.multiply.outer(self.table.shift, in_b)
        return in_w, in_b

    def _losses(self, z: np.ndarray) -> np.ndarray:
        """The mean loss of each model's training rows."""
        losses = self.loss.value(z, self.target, 1)
        return np.einsum("kr,kr->k", self.train[:, 0], losses).astype(np.float64)

    def _value(self, at: Point, s: np.ndarray) -> float:
        """The sum of all g."""
        return float(
            self._losses(at.z).sum()
            + 0.5 * (s * at.w**2).sum()
            + 0.5 * self.hold * np.vdot(at.b, at.b)
        )

    def _descend(
        self, s: np.ndarray, at: Point, slope: Callable, bend: Callable,
        side: tuple[np.ndarray, np.ndarray] | None, tol: float,
    ) -> None:  # fmt: skip
        """Move `at` to the minimum of sum of share * loss + 1/2 s w^2 - <side, (w, b)>."""

        def gradient(at: Point, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            in_w, in_b = self.back(self.train * slopes)
            in_w += s * at.w
            in_b += self.hold * at.b
            return (in_w - side[0], in_b - side[1]) if side else (in_w, in_b)

        slopes = slope(at.z)
        grad = gradient(at, slopes)
        steep = dots(grad, grad)
        conditioned = self.curvature(*grad)
        size = first = dots(grad, conditioned)
        d = (-conditioned[0], -conditioned[1])
        idle, rounding = 0, float(np.finfo(self.dtype).eps)
        value = self._losses(at.z) if side is None else first
        for step in range(MOST_STEPS):
            # Half of what is left to gain, beside what the penalty takes or the side gives.
            scale = first if side else np.maximum(self.curvature.pull(s, at.w), TINY)
            left = size > tol**2 * scale
            if not left.any() or idle >= IDLE or watch.says_stop():
                break
            along = Point(*d, self.outputs(*d))
            held = dots((s * d[0],), (d[0],)) + self.hold * dots((d[1],), (d[1],))
            downhill = np.where(left, dots(grad, d), 0.0)
            t, slopes = self._step(at, along, slope, slopes, bend(at.z), downhill, held, left)
            if side is None and (-t * downhill <= rounding * value).all():
                value = self._losses(at.z)
            idle = idle + 1 if (-t * downhill <= rounding * value).all() else 0
            at.move(t, along)
            grad = gradient(at, slopes)
            if self.curvature.exact and (dots(grad, grad) <= self.rounding**2 * steep).all():
                break
            if step and step % MANY == 0 and not side and self.curvature.renew(s, at.z):
                conditioned = self.curvature(*grad)
                size, turn = dots(grad, conditioned), np.zeros(len(size))
            else:
                common = dots(grad, conditioned)  # the last gradient, conditioned: no copy of it
                conditioned = self.curvature(*grad)
                new = dots(grad, conditioned)
                turn = np.maximum((new - common) / np.maximum(size, TINY), 0)
                size = new
            for part, other in zip(d, conditioned, strict=True):
                part *= turn.astype(self.dtype)[:, None]
                part -= other
            lost = dots(grad, d) >= 0
            for part, other in zip(d, conditioned, strict=True):
                part[..., lost, :] = -other[..., lost, :]

    def _step(
        self, at: Point, along: Point, slope: Callable, slopes: np.ndarray, bend: Callable,
        downhill: np.ndarray, held: np.ndarray, left: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """The best steps, and the slopes of the losses there; zero for models that are solved."""
        weighted = self.train * along.z
        curve = rowwise(bend(along.z), weighted) + held
        # What of the slope the rows do not make; it grows by `held` for each unit.
        rest_of = downhill - np.where(left, rowwise(slopes, weighted), 0.0)
        t = np.where(left, -downhill / np.maximum(curve, TINY), 0.0)
        known, steep, low = np.zeros(len(t)), downhill, np.zeros(len(t))
        high = np.full(len(t), np.inf)
        for _ in range(MOST_TRIES):
            z = at.z + t.astype(self.dtype)[:, None, None] * along.z
            slopes = slope(z)
            rest = np.where(left, rowwise(slopes, weighted) + rest_of + t * held, 0.0)
            far = np.abs(rest) > NEARLY * np.abs(downhill)
            if not far.any():
                return t, slopes
            low = np.where((rest < 0) | ~far, t, low)
            high = np.where(rest > 0, t, high)
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                ahead = t - rest * (t - known) / (rest - steep)
                least = np.maximum(low, high / FARTHER)
                # Between bounds orders of magnitude apart the middle is that of logarithms.
                middle = np.where(np.isfinite(high), np.sqrt(least * high), FARTHER * t)
            inside = (ahead > low) & (ahead < np.minimum(high, FARTHER * np.maximum(t, TINY)))
            known, steep = t, rest
            t = np.where(far, np.where(inside, ahead, middle), t)
        z = at.z + low.astype(self.dtype)[:, None, None] * along.z
        return low, slope(z)


def dots(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> np.ndarray:
    """Of each model, over coefficients (features, models, columns) and intercepts."""
    found: Any = 0.0
    for one, other in zip(a, b, strict=True):
        shape = "jkc,jkc->k" if one.ndim == 3 else "kc,kc->k"
        found = found + np.einsum(shape, one, other).astype(np.float64)
    return np.asarray(found)


def rowwise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of each model, over (models, columns, rows)."""
    return np.einsum("kcr,kcr->k", a, b).astype(np.float64)
