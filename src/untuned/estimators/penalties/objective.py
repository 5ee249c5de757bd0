"""The bilevel problem of L2 penalties: the loss of validation rows as a function of penalties.

    f(x) = sum over vectors of (1/n) (sum over their n validation rows of weight * loss + doubt)

at the models that training rows give with the penalties of x (glm.py). With v from H v = df/d(w, b)
the derivative in a penalty's logarithm is -s_j w_j v_j / N. So `minimize` sees a function of x, and
an inner problem of which nothing is left. Log-losses of validation rows are bounded at -log(eps),
or one row far out would choose for all others. Squared errors and deviances are in units of their
variance, so theirs multiplies `doubt` (penalties.py).
"""

from __future__ import annotations

import numpy as np

from untuned.closed_form.losses import LOSSES, bounded, bounded_slope
from untuned.estimators.penalties import glm, penalties
from untuned.estimators.penalties.curvature import Diagonal
from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.glm import Glm
from untuned.estimators.penalties.penalties import Bend, Penalties
from untuned.estimators.penalties.validation import Rows

ADJOINT = 1e-4  # the share of an adjoint system's size that its solution may be off by
LARGE = 2**18  # coefficients, above which models are solved one after another


class Objective:
    """f of the models of a plan."""

    def __init__(self, rows: Rows, plan: RowRoles, group: np.ndarray, variance: float):
        owner, vectors = plan.mix.argmax(axis=1), plan.mix.shape[1]
        train, valid = (rows.weight[:, None] * part for part in (plan.train, plan.valid))
        self.models = Glm(rows.loss, rows.table, rows.target, train, owner)
        self.penalties = Penalties(owner, vectors, group, Bend.of_rows(rows.weight))
        counted = np.bincount(owner, valid.sum(axis=0), vectors)
        self.valid = (valid / counted[owner]).T.astype(self.models.dtype)[:, None]
        self.price = (1.0 if LOSSES[rows.loss].is_log_loss else variance) / counted
        self.tol = tolerance(self.models)
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def solve(self, x: np.ndarray) -> np.ndarray:
        """The models at x become the last; the penalties (features, vectors, columns)."""
        if self._last is None or not np.array_equal(x, self._last[0]):
            s = self.penalties.at(x)
            self.models.solve(s, self.tol)
            self._last = x.copy(), s
        return self._last[1]

    def losses(self, x: np.ndarray) -> np.ndarray:
        """Of all rows, (models, rows)."""
        self.solve(x)
        return losses(self.models)

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """f and its gradient."""
        s, m = self.solve(x), self.models
        slopes = self.valid * m.loss.slope(m.at.z, m.target, 1)
        if m.loss.is_log_loss:
            slopes *= bounded_slope(m.loss.value(m.at.z, m.target, 1))[:, None]
        v = m.adjoint(s, slopes, max(self.tol, ADJOINT))
        v *= m.at.w
        v *= -m.of_models(s)
        doubt, slope = penalties.doubt(x, self.price)
        value = float(np.vdot(self.valid[:, 0], losses(m))) + doubt
        return value, (self.penalties.pull(x, v) + slope).astype(x.dtype)


def losses(models: Glm) -> np.ndarray:
    """Of all rows at the last models, (models, rows); those of probabilities are bounded."""
    found = models.loss.value(models.at.z, models.target, 1)
    return bounded(found) if models.loss.is_log_loss else found


def tolerance(models: Glm, last: bool = False) -> float:
    """The share of the penalty's pull that solutions may be off by, in a search or as the result.

    Very many coefficients of classes are compared where they are off by a hundredth.
    """
    if isinstance(models.curvature, Diagonal) and models.loss.is_log_loss:
        return glm.EXACT["float32"] if last else glm.ROUGH
    return (glm.EXACT if last else glm.SEARCH)[models.dtype.name]


def fit(rows: Rows, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (features, columns) and intercepts on all rows, with penalties `s`."""
    models = Glm(rows.loss, rows.table, rows.target, rows.weight[:, None], hold=0.0)
    at = models.solve(s, tolerance(models, last=True))
    return at.w[:, 0], at.b[0]


class Part:
    """Models of some folds, which are solved together, and the rows held back from them.

    One large model goes through its own rows alone. It is made for each of its penalties and then
    forgotten but for its coefficients, so that memory holds the rows of one fold and not of all.
    """

    def __init__(self, rows: Rows, train: np.ndarray, held: np.ndarray, alone: bool):
        self.rows, self.train, self.held = rows, train, held
        self.weight = np.concatenate([rows.weight[each] for each in held.T])
        self.passes = 0  # through the rows, so far
        self.w = self.b = self.s = np.zeros((0, 0, 0))  # of the last models, and their penalties
        self.models = None if alone else _models(rows, train)

    def losses(self, s: np.ndarray) -> np.ndarray:
        """Of the rows held back, model by model, with penalties s."""
        models = self.models
        if models is None:
            own = self.train[:, 0]
            models = _models(self.rows.some(np.flatnonzero(own)), self.train[own])
            if self.passes:
                models.begin(self.w, self.b, self.s)
        before = models.passes
        at = models.solve(s, tolerance(models))
        self.w, self.b, self.s = at.w, at.b, models.of_models(s)
        self.passes += models.passes - before
        if self.models is not None:
            return losses(models)[self.held.T].astype(np.float64)
        del models, at
        return self.rows.some(np.flatnonzero(self.held[:, 0])).losses(self.w, self.b)[0]


def _models(rows: Rows, train: np.ndarray) -> Glm:
    return Glm(rows.loss, rows.table, rows.target, rows.weight[:, None] * train)


def parts(rows: Rows, train: np.ndarray, held: np.ndarray) -> list[Part]:
    """All models of these masks (rows, models): together, or one by one where they are large."""
    if rows.table.X.shape[1] * rows.target.shape[1] * train.shape[1] <= LARGE:
        return [Part(rows.divided(), train, held, alone=False)]
    return [
        Part(rows, train[:, k : k + 1], held[:, k : k + 1], alone=True)
        for k in range(train.shape[1])
    ]
