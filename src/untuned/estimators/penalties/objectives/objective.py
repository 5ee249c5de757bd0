"""The bilevel problem of the linear estimators: many models at once, on one copy of the rows.

x holds logarithms of strengths, a row (c, d_1, ..., d_G) per vector: group k has c + d_k. The inner
variable holds every model's coefficients. With N the weight of a model's training rows and s the
strengths that its share of the vectors gives,

    g = sum over models of (1/N) (sum over its training rows of weight * loss + 1/2 sum s w^2)
    f = sum over vectors of (1/n) (sum over their n validation rows of weight * loss + doubt)
    doubt = log(1 + exp(-c)) + sum over groups of log cosh(d_k / 2)

Squared errors are in units of their variance, so for them it multiplies the second part of doubt;
the first is left out, as they keep coefficients finite by themselves.
Strengths (s = 1/C, s = alpha) weigh against a sum over rows: what some rows say holds for all.

**Doubt** is that coefficients of standardised features are large, and that groups differ: minus
the logarithm of half-Cauchy densities of the common scale exp(-c/2), and of exp(-d_k / 2) in
logarithms, as in the horseshoe prior (Carvalho, Polson and Scott). Those are flat enough to let a
few groups go far, and the more rows the less they count.
**Judges' log-losses are bounded** at -log(eps), or one row far out would choose for all others.
**Coefficients are turned and scaled** (scaling.py), so that g curves about alike in every u, which
spares conjugate gradients most of their steps; and where s grows w falls before u is solved for.
**Softmax is the same for intercepts that all grow alike**: a term asks for a sum of zero.
**Derivatives are in closed form**. With w = T(x) u, p = grad_w g and q = (grad_ww g) T v,

    grad_u g = T^t p,   (grad_uu g) v = T^t q,
    (grad_xu g) v = d/dx [<q, T u> + <p, T v> + <s, w * T v> / N]      with all but T and s fixed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit

from untuned.closed_form import stacked
from untuned.closed_form.losses import LOSSES, bounded, bounded_slope
from untuned.estimators.penalties.objectives import hessians
from untuned.estimators.penalties.objectives.scaling import BLOCK
from untuned.estimators.penalties.standardisation import Standardised
from untuned.estimators.penalties.strengths import Shares, Strengths

# Keeps the intercept of a class finite in a model none of whose rows are of it.
INTERCEPT_PENALTY = 1e-6


class Point(NamedTuple):
    """What f and g need at one (x, y)."""

    x: np.ndarray
    y: np.ndarray
    strengths: Strengths
    turned: np.ndarray | None  # coefficients, where it is work to find them
    z: np.ndarray  # outputs, (models, columns, rows)

    @property
    def w(self) -> np.ndarray:
        """Coefficients, (features, models, columns)."""
        if self.turned is not None:
            return self.turned
        return self.strengths.turn.forth(stacked.coefficients(self.y))


class Models:
    """All models: their rows, who uses which, and the point that was looked at last.

    `train` has weights that sum to 1 for each model and `valid` for each vector, (rows, models);
    `doubt` is (vectors, 2), 1/n for both parts. `fixed` are strengths that do not follow x.
    """

    def __init__(
        self, loss: str, table: Standardised, target: np.ndarray, train: np.ndarray,
        valid: np.ndarray, shares: Shares, doubt: np.ndarray, fixed: Strengths | None = None,
    ):  # fmt: skip
        self.loss, self.table, self.shares, self.doubt = LOSSES[loss], table, shares, doubt
        self.target = np.ascontiguousarray(target.T)
        self.train, self.valid = (np.ascontiguousarray(part.T)[:, None] for part in (train, valid))
        self.down = shares.scaling.curvature**-0.5  # from y's intercepts to those of outputs
        along = self.down / np.linalg.norm(self.down)
        self.alike = along if loss == "softmax" else 0 * along
        self.fixed = fixed
        self.intercept_penalty = INTERCEPT_PENALTY if fixed is None else 0.0
        self.passes = 0  # through the rows, of each model
        self._last: Point | None = None

    def strengths(self, x: np.ndarray) -> Strengths:
        """Those at x."""
        return self.fixed or self.shares.at(x)

    def at(self, x: np.ndarray, y: np.ndarray) -> Point:
        """Coefficients and outputs at (x, y); f and g often ask for the same one."""
        last = self._last
        if last is None or not (np.array_equal(x, last.x) and np.array_equal(y, last.y)):
            self._last = last = None  # so that nothing of it is kept meanwhile
            strengths = self.strengths(x)
            w = strengths.turn.forth(stacked.coefficients(y))
            # Without a basis they are found again by two products of numbers, and may be very many.
            turned = w if len(strengths.turn.basis) else None
            last = Point(x, y, strengths, turned, self.outputs(w, y[:, -1]))
        self._last = last._replace(y=y)  # whose twin need not be kept
        return self._last

    def keep(self, x: np.ndarray, y: np.ndarray, strengths: Strengths, z: np.ndarray) -> None:
        """What is known at (x, y) without a product with X; only where there is no basis."""
        self._last = Point(x, y, strengths, None, z)

    def inner_variable(self, x: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """y with coefficients (features, models, columns) and intercepts (models, columns)."""
        u = self.strengths(x).turn.inverse(coef)
        return stacked.joined(u, intercept / self.down).astype(self.table.X.dtype)

    def model(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `inner_variable`."""
        return self.strengths(x).turn.forth(stacked.coefficients(y)), y[:, -1] * self.down

    def seen(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The outputs, (models, columns, rows)."""
        return self.at(x, y).z

    def outputs(self, w: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """Of coefficients (features, models, columns) and y's intercepts, on all rows."""
        self.passes += w.shape[1]
        if sparse.issparse(self.table.X):
            intercept = intercept - np.tensordot(self.table.shift, w, axes=1) / self.down
        return stacked.outputs(self.table.X, w, intercept * self.down)

    def judged(self, z: np.ndarray) -> np.ndarray:
        """The losses of rows that judge, (models, rows); those of probabilities are bounded."""
        losses = self.loss.value(z, self.target, 1)
        return bounded(losses) if self.loss.is_log_loss else losses

    def chosen_by(self, z: np.ndarray) -> np.ndarray:
        """The gradient in outputs of the loss by which strengths are chosen."""
        slopes = self.valid * self.loss.slope(z, self.target, 1)
        if self.loss.is_log_loss:
            slopes *= bounded_slope(self.loss.value(z, self.target, 1))[:, None]
        return slopes

    def doubts(self, x: np.ndarray) -> float:
        """The sum of all doubt."""
        half = 0.5 * x[:, 1:]
        differ = (np.logaddexp(half, -half) - np.log(2.0)).sum(axis=1)
        return float(self.doubt[:, 0] @ np.logaddexp(0, -x[:, 0]) + self.doubt[:, 1] @ differ)

    def doubts_slope(self, x: np.ndarray) -> np.ndarray:
        """Its gradient."""
        common = -self.doubt[:, :1] * expit(-x[:, :1])
        return np.hstack([common, 0.5 * self.doubt[:, 1:] * np.tanh(0.5 * x[:, 1:])])

    def back(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From a gradient in outputs those in w and in y's intercepts."""
        in_w, sums = stacked.back(self.table.X, slopes)
        if sparse.issparse(self.table.X):  # else nothing is left to take off
            for part in range(0, len(in_w), BLOCK):
                shift = self.table.shift[part : part + BLOCK]
                in_w[part : part + BLOCK] -= np.multiply.outer(shift, sums)
        return in_w, sums * self.down


class Inner:
    """g."""

    def __init__(self, models: Models):
        self.models = models

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        m, at = self.models, self.models.at(x, y)
        value = np.vdot(m.train[:, 0], m.loss.value(at.z, m.target, 1))
        return float(value + 0.5 * self.held(at.strengths, at.w, y[:, -1]).sum())

    def held(self, strengths: Strengths, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Twice each model's penalty on coefficients w and intercepts b of y."""
        squares = np.einsum("jkc,jkc,jkc->k", strengths.s, w, w)
        return squares / self.models.shares.total + (b * self._pull_on_intercept(b)).sum(axis=1)

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        at = self.models.at(x, y)
        return self._joined(at, *self._slopes(at))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        at = self.models.at(x, y)
        in_s = 0.5 * at.w**2 / self.models.shares.total[:, None]
        slopes = self._slopes(at)
        in_x = at.strengths.pull([(stacked.coefficients(y), slopes[0])], in_s)
        return self(x, y), in_x, self._joined(at, *slopes)

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        m, at = self.models, self.models.at(x, y)
        bend = m.loss.bend(at.z, 1, m.target)
        turn, s, total = at.strengths.turn, at.strengths.s, m.shares.total[:, None]

        def pull(v: np.ndarray, wrt: str) -> Any:
            w = turn.forth(stacked.coefficients(v))
            slopes = bend(m.outputs(w, v[:, -1]))
            slopes *= m.train
            # As in `Models.at`: not kept while there is another array as large.
            kept = w if len(turn.basis) else None
            del w
            q, in_intercept = m.back(slopes)
            del slopes
            w = turn.forth(stacked.coefficients(v)) if kept is None else kept
            if wrt == "y":
                w *= s
                w /= total
                q += w
                del w
                return in_y(q, in_intercept, v)
            q += w * s / total
            in_s = at.w * w
            in_s /= total
            del w, kept
            pairs = [(stacked.coefficients(y), q), (stacked.coefficients(v), self._slopes(at)[0])]
            in_x = at.strengths.pull(pairs, in_s)
            del in_s, pairs
            return in_x if wrt == "x" else (in_x, in_y(q, in_intercept, v))

        def in_y(q: np.ndarray, in_intercept: np.ndarray, v: np.ndarray) -> np.ndarray:
            return self._joined(at, q, in_intercept + self._pull_on_intercept(v[:, -1]))

        return pull

    def hessian_blocks(self, y: np.ndarray) -> tuple[int | None, int, float]:
        """How many Hessians are made, of how many variables, and their price (hessians.py)."""
        return hessians.blocks(self.models, y)

    def hessian(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """A stack of them."""
        return hessians.make(self.models, self.models.at(x, y))

    def _slopes(self, at: Point) -> tuple[np.ndarray, np.ndarray]:
        """Gradients in w and in the intercepts of y."""
        m = self.models
        in_w, in_intercept = m.back(m.train * m.loss.slope(at.z, m.target, 1))
        held = at.w if at.turned is None else at.w.copy()  # not kept by the point
        held *= at.strengths.s
        held /= m.shares.total[:, None]
        in_w += held
        return in_w, in_intercept + self._pull_on_intercept(at.y[:, -1])

    def _joined(self, at: Point, in_w: np.ndarray, in_intercept: np.ndarray) -> np.ndarray:
        """In y, from gradients in w and in its intercepts."""
        in_y = stacked.joined(in_w, in_intercept)
        at.strengths.turn.bring_back(stacked.coefficients(in_y))
        return in_y

    def _pull_on_intercept(self, b: np.ndarray) -> np.ndarray:
        m = self.models
        return m.intercept_penalty * b + np.outer(b @ m.alike, m.alike)


class Outer:
    """f."""

    def __init__(self, models: Models):
        self.models = models

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        m = self.models
        return float(np.vdot(m.valid[:, 0], m.judged(m.at(x, y).z)) + m.doubts(x))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f and grad_y f."""
        m, at = self.models, self.models.at(x, y)
        in_w, in_intercept = m.back(m.chosen_by(at.z))
        nothing = np.zeros((1, len(y), 1), y.dtype)
        in_x = at.strengths.pull([(stacked.coefficients(y), in_w)], nothing)
        in_x += m.doubts_slope(x)
        return self(x, y), in_x, stacked.joined(at.strengths.turn.back(in_w), in_intercept)
