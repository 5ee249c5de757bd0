"""The bilevel problem of models with absolute penalties: many at once, each with its solver.

x holds logarithms of strengths as in objective.py, a row (c, d_1, ..., d_G) per vector, and for
the elastic net a last entry r: of a strength s the share rho = 1 / (1 + exp(-r)) is absolute and
the rest squared. The inner variable y has every model's coefficients and intercept, (models,
features + 1, columns). Doubt is that of squared penalties, of differences alone: absolute ones
need none about the common strength, as coefficients that do not pay are zero.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from untuned.closed_form.losses import bounded, bounded_slope
from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.objectives import gram, lasso_solver
from untuned.estimators.penalties.objectives.gram import Gram
from untuned.estimators.penalties.objectives.lasso_solver import Design, Fit, Penalty
from untuned.estimators.penalties.objectives.solved import Solution
from untuned.estimators.penalties.strengths import Bend

LEAST_SHARE = 0.01  # of the absolute penalty in an elastic net: it is one


class SparseModels:
    """f, and the solutions of g."""

    def __init__(
        self, design: Design, weight: np.ndarray, plan: RowRoles, group: np.ndarray, mixed: bool,
        free: float, errors: float,
    ):  # fmt: skip
        self.design, self.plan, self.group, self.mixed = design, plan, group, mixed
        self.free, self.bend = free, Bend.of_rows(weight)
        train, valid = weight[:, None] * plan.train, weight[:, None] * plan.valid
        self.total = train.sum(axis=0)
        self.share = (train / self.total).T
        owner = plan.mix.argmax(axis=1)
        judged = np.bincount(owner, valid.sum(axis=0), plan.mix.shape[1])
        self.valid = (valid / judged[owner]).T
        self.doubt = errors / judged
        self.grams: list[Gram] = []
        if design.quadratic and gram.fits(len(group), len(self.total)):
            self.grams = gram.make(design, weight, plan.train)
        # Each solve starts from the last one.
        shape = (len(self.total), *group.shape)
        self.near = [Fit(np.zeros(shape[1:]), np.zeros(shape[2])) for _ in range(shape[0])]

    def penalties(self, x: np.ndarray) -> list[Penalty]:
        """Of each model."""
        s = np.exp(self._logarithms(x)[0])
        return [penalty(s[k][self.group], rho) for k, rho in enumerate(self._share(x))]

    def solve(self, x: np.ndarray) -> Solution:
        """y*(x) and its derivative."""
        penalties = self.penalties(x)
        y, fits = self.fitted(penalties), list(self.near)

        def pull(q: np.ndarray) -> np.ndarray:
            in_x = np.zeros_like(x)
            _, slope = self._logarithms(x)
            for k, (each, fit) in enumerate(zip(penalties, fits, strict=True)):
                v = self._pulled(k, each, fit, q[k])
                signs = np.sign(fit.coef)
                in_s = -(each.l1 * signs + each.l2 * fit.coef) * v / self.total[k]
                sums = np.bincount(self.group.ravel(), in_s.ravel(), slope.shape[1]) * slope[k]
                of = self.plan.mix[k][:, None]
                in_x[:, :1] += of * sums.sum()
                in_x[:, 1 : 1 + len(sums)] += self.free * of * sums
                if self.mixed:
                    rho = self._share(x)[k]
                    s = each.l1 / rho
                    turned = -(s * (signs - fit.coef) * v).sum() / self.total[k]
                    in_x[:, -1:] += of * turned * rho * (1 - rho)
            return in_x

        return Solution(y, pull)

    def fitted(self, penalties: list[Penalty], rough: float = 0.0) -> np.ndarray:
        """Every model with its own penalties; `rough` as in `lasso_solver.solve`."""
        self.near = [self._solved(k, each, rough) for k, each in enumerate(penalties)]
        return np.stack([np.vstack([fit.coef, fit.intercept]) for fit in self.near])

    def _solved(self, k: int, each: Penalty, rough: float) -> Fit:
        """The k-th model, from where it was last."""
        last, total = self.near[k], self.total[k]
        if self.grams:
            return self.grams[k].solve(Penalty(each.l1 / total, each.l2 / total), last.coef)
        return lasso_solver.solve(self.design, self.share[k], total, each, last, rough)

    def _pulled(self, k: int, each: Penalty, fit: Fit, q: np.ndarray) -> np.ndarray:
        """v of the k-th model's derivative."""
        total = self.total[k]
        if self.grams:
            l2 = Penalty(each.l1 / total, each.l2 / total)
            return self.grams[k].pull(l2, fit.coef, q[:-1], q[-1])
        return lasso_solver.pull(self.design, self.share[k], total, each, fit, q[:-1], q[-1])

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        value = sum(self.valid[k] @ self._losses(y[k]) for k in range(len(y)))
        half = 0.5 * self._differences(x)
        differ = (np.logaddexp(half, -half) - np.log(2.0)).sum(axis=1)
        return float(value + self.free * (self.doubt @ differ))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f and grad_y f."""
        in_x, in_y, loss = np.zeros_like(x), np.zeros_like(y), self.design.loss
        half = 0.5 * self._differences(x)
        in_x[:, 1 : 1 + half.shape[1]] = self.free * 0.5 * self.doubt[:, None] * np.tanh(half)
        for k in np.flatnonzero(self.valid.any(axis=1)):
            z = self.design.outputs(y[k, :-1], y[k, -1])
            slopes = self.valid[k][:, None] * loss.slope(z, self.design.target, 1)
            if loss.is_log_loss:
                slopes *= bounded_slope(loss.value(z, self.design.target, 1))[:, None]
            in_y[k, :-1], in_y[k, -1] = self.design.table.gradient(slopes), slopes.sum(axis=0)
        return self(x, y), in_x, in_y

    def judges(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        """The mean loss of the rows that judge."""
        of = np.flatnonzero(self.plan.judge.any(axis=0))
        parts = weight[:, None] * self.plan.judge
        return float(sum(parts[:, k] @ self._losses(y[k]) for k in of) / parts.sum())

    def _losses(self, y: np.ndarray) -> np.ndarray:
        losses = self.design.loss.value(self.design.outputs(y[:-1], y[-1]), self.design.target, 1)
        return bounded(losses) if self.design.loss.is_log_loss else losses

    def _differences(self, x: np.ndarray) -> np.ndarray:
        return x[:, 1:-1] if self.mixed else x[:, 1:]

    def _logarithms(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.bend(self.plan.mix @ (x[:, :1] + self.free * self._differences(x)))

    def _share(self, x: np.ndarray) -> np.ndarray:
        if not self.mixed:
            return np.ones(len(self.plan.mix))
        return np.maximum(expit(self.plan.mix @ x[:, -1]), LEAST_SHARE)


def penalty(strengths: np.ndarray, rho: float) -> Penalty:
    """The two parts of strengths (features, columns)."""
    return Penalty(rho * strengths, (1 - rho) * strengths)
