"""The bilevel problem of L1 penalties and elastic nets: the loss of validation rows in penalties.

x is as in penalties.py, and has for the elastic net a last entry r: of a penalty s the share
rho = 1 / (1 + exp(-r)) is L1 and the rest L2. Each model starts from its last solution. The
derivative lives on the support (l1.py). What differences between groups cost is as for L2
penalties; the common penalty costs nothing, as coefficients that do not pay are zero.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from untuned.closed_form.losses import bounded, bounded_slope
from untuned.estimators.penalties import gram, l1, penalties
from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.gram import Gram
from untuned.estimators.penalties.l1 import Design, Fit, Penalty
from untuned.estimators.penalties.penalties import Bend, Penalties

LEAST_SHARE = 0.01  # of the L1 penalty in an elastic net: it is one


class L1Objective:
    """f of the models of a plan."""

    def __init__(
        self, design: Design, weight: np.ndarray, plan: RowRoles, group: np.ndarray, mixed: bool,
        variance: float,
    ):  # fmt: skip
        self.design, self.plan, self.mixed = design, plan, mixed
        owner, vectors = plan.mix.argmax(axis=1), plan.mix.shape[1]
        self.penalties = Penalties(owner, vectors, group, Bend.of_rows(weight))
        train, valid = weight[:, None] * plan.train, weight[:, None] * plan.valid
        self.total = train.sum(axis=0)
        self.share = (train / self.total).T
        counted = np.bincount(owner, valid.sum(axis=0), vectors)
        self.valid = (valid / counted[owner]).T
        self.price = variance / counted
        self.grams: list[Gram] = []
        if design.quadratic and gram.fits(len(group), len(self.total)):
            self.grams = gram.make(design, weight, plan.train)
        shape = (len(self.total), *group.shape)
        self.near = [Fit(np.zeros(shape[1:]), np.zeros(shape[2])) for _ in range(shape[0])]
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def solve(self, x: np.ndarray) -> np.ndarray:
        """The models at x, (models, features + 1, columns); the last are kept."""
        if self._last is None or not np.array_equal(x, self._last[0]):
            self._last = x.copy(), self.fitted(self._penalties(x))
        return self._last[1]

    def fitted(self, each: list[Penalty], rough: float = 0.0) -> np.ndarray:
        """Every model with its own penalties; `rough` as in `l1.solve`."""
        self.near = [self._solved(k, one, rough) for k, one in enumerate(each)]
        return np.stack([np.vstack([fit.coef, fit.intercept]) for fit in self.near])

    def losses(self, x: np.ndarray) -> np.ndarray:
        """Of all rows, (models, rows)."""
        return np.stack([self._losses(y) for y in self.solve(x)])

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """f and its gradient."""
        models, logs, loss = self.solve(x), self._logs(x), self.design.loss
        each, target = self._penalties(x), self.design.target
        in_log = np.zeros((len(self.penalties.group), len(models), target.shape[1]))
        in_share = np.zeros((len(x), 1))
        for k in map(int, np.flatnonzero(self.valid.any(axis=1))):
            coef = models[k, :-1]
            z = self.design.outputs(coef, models[k, -1])
            slopes = self.valid[k][:, None] * loss.slope(z, target, 1)
            if loss.is_log_loss:
                slopes *= bounded_slope(loss.value(z, target, 1))[:, None]
            v = self._pulled(k, each[k], coef, models[k, -1], slopes) / self.total[k]
            signs = np.sign(coef)
            in_log[:, k] = -(each[k].l1 * signs + each[k].l2 * coef) * v
            if self.mixed:
                owner = self.penalties.owner[k]
                rho = self._shares(x)[owner]
                turned = -(each[k].l1 / rho * (signs - coef) * v).sum()
                in_share[owner] += turned * rho * (1 - rho)
        doubt, slope = penalties.doubt(logs, self.price)
        in_x = self.penalties.pull(logs, in_log) + slope
        value = doubt + np.vdot(self.valid, self.losses(x))
        return float(value), np.hstack([in_x, in_share]) if self.mixed else in_x

    def _solved(self, k: int, each: Penalty, rough: float) -> Fit:
        """The k-th model, from where it was last."""
        last, total = self.near[k], self.total[k]
        if self.grams:
            return self.grams[k].solve(Penalty(each.l1 / total, each.l2 / total), last.coef)
        return l1.solve(self.design, self.share[k], total, each, last, rough)

    def _pulled(
        self, k: int, each: Penalty, coef: np.ndarray, intercept: np.ndarray, slopes: np.ndarray
    ) -> np.ndarray:
        """v of the k-th model's derivative."""
        q, q_b, total = self.design.table.gradient(slopes), slopes.sum(axis=0), self.total[k]
        if self.grams:
            return self.grams[k].pull(Penalty(each.l1 / total, each.l2 / total), coef, q, q_b)
        return l1.pull(self.design, self.share[k], total, each, Fit(coef, intercept), q, q_b)

    def _losses(self, y: np.ndarray) -> np.ndarray:
        losses = self.design.loss.value(self.design.outputs(y[:-1], y[-1]), self.design.target, 1)
        return bounded(losses) if self.design.loss.is_log_loss else losses

    def _penalties(self, x: np.ndarray) -> list[Penalty]:
        """Of each model."""
        s, shares = np.exp(self.penalties.logarithms(self._logs(x))[0]), self._shares(x)
        group = self.penalties.group
        return [penalty(s[v][group], shares[v]) for v in self.penalties.owner]

    def _logs(self, x: np.ndarray) -> np.ndarray:
        return x[:, :-1] if self.mixed else x

    def _shares(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(expit(x[:, -1]), LEAST_SHARE) if self.mixed else np.ones(len(x))


def penalty(strengths: np.ndarray, rho: float) -> Penalty:
    """The two parts of penalties (features, columns)."""
    return Penalty(rho * strengths, (1 - rho) * strengths)
