"""Linear models with absolute penalties, solved on the few coefficients that are not zero.

Minimizes (1/N) (sum of weight * loss + sum_j l1_j |w_j| + 1/2 sum_j l2_j w_j^2), the intercept
free. Each round takes the coefficients that are not zero, or would not stay so, and minimizes
the loss's second-order model in them (`l1_quadratic`). The derivative of the solution lives on the
support S alone, where signs do not change:

    H_SS v_S = q_S, v = 0 elsewhere;   (dw/d log s)^t q = -(l1 sign(w) + l2 w) v / N.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy import sparse

from untuned.closed_form.losses import LOSSES
from untuned.estimators.penalties.l1_quadratic import JITTER, SWEEPS, quadratic, solved
from untuned.estimators.penalties.standardisation import Standardised
from untuned.util import watch

MOST_ROUNDS = 50
MOST_HALVINGS = 30
NEW_AT_LEAST = 20  # coefficients that may join in one round, or as many as there are
TINY = 1e-100  # a curvature that is none, kept above zero


class Penalty(NamedTuple):
    """Of each coefficient, (features, columns), for a sum over rows."""

    l1: np.ndarray
    l2: np.ndarray


class Fit(NamedTuple):
    """Coefficients (features, columns) and intercepts."""

    coef: np.ndarray
    intercept: np.ndarray


class Design:
    """Rows, and what of them is kept for all models."""

    def __init__(self, loss: str, table: Standardised, target: np.ndarray):
        self.loss, self.table, self.target = LOSSES[loss], table, target
        self.quadratic = loss == "squared"
        self.softmax = loss == "softmax"
        self.X = sparse.csc_array(table.X) if sparse.issparse(table.X) else table.X
        self.work = 0  # entries of all Hessians that were made

    def outputs(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """(rows, columns), from the features that count."""
        used = np.flatnonzero(coef.any(axis=1))
        return self.columns(used) @ coef[used] + intercept

    def columns(self, which: np.ndarray) -> np.ndarray:
        """Some standardised features."""
        if sparse.issparse(self.X):
            return self.X[:, which].toarray() - self.table.shift[which]
        return self.X[:, which]

    def objective(self, z: np.ndarray, share: np.ndarray, w: np.ndarray, each: Penalty) -> float:
        """What is minimized; penalties are those for shares that sum to one."""
        value = share @ self.loss.value(z, self.target, 1)
        return float(value + (each.l1 * abs(w)).sum() + 0.5 * (each.l2 * w**2).sum())

    def hessian(
        self, z: np.ndarray, share: np.ndarray, place: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """H of the loss in the coefficients at `place`, with the intercepts, and in those."""
        feature, column = place
        self.work += len(feature) ** 2
        B = self.columns(feature).astype(np.float64)
        count = z.shape[1]
        if count == 1:  # the same, without cutting B by columns
            one = self.loss.bend(z, 1, self.target)(np.ones_like(z)) * share[:, None]
            scaled = one * B
            return scaled.T @ B, scaled.sum(axis=0)[:, None], self.fixed(one.sum(keepdims=True))
        units = np.eye(count)
        # curve[c, d]: the second derivative of each row's loss in its outputs c and d.
        bend = self.loss.bend(z, 1, self.target)
        curve = np.stack([bend(np.repeat(unit[None], len(z), axis=0)).T for unit in units]) * share
        in_b = curve.sum(axis=2)
        across = np.empty((len(column), count))
        H = np.empty((len(column), len(column)))
        places = [np.flatnonzero(column == c) for c in range(count)]
        parts = [B[:, here] for here in places]
        for c, here in enumerate(places):
            across[here] = parts[c].T @ curve[c].T
            for d, there in enumerate(places[: c + 1]):
                part = (parts[c] * curve[c, d][:, None]).T @ parts[d]
                H[np.ix_(here, there)] = part
                H[np.ix_(there, here)] = part.T
        return H, across, self.fixed(in_b)

    def fixed(self, in_b: np.ndarray) -> np.ndarray:
        """Softmax is blind to intercepts that all grow alike, which shall sum to zero; and all but
        blind to that of a class that no row here is of."""
        if not self.softmax:
            return in_b
        size = max(float(np.trace(in_b)), TINY) / len(in_b)
        return in_b + size * (1 / len(in_b) + JITTER * np.eye(len(in_b)))


def solve(
    design: Design, share: np.ndarray, total: float, penalty: Penalty,
    start: tuple[np.ndarray, np.ndarray], rough: float = 0.0,
) -> Fit:  # fmt: skip
    """The model of rows with these shares (which sum to 1) of the weight `total`.

    `rough` is the share of the least absolute penalty that its slope may be off by.
    """
    each = Penalty(penalty.l1 / total, penalty.l2 / total)
    w, b = start[0].astype(np.float64), start[1].astype(np.float64)
    tolerance = float(np.finfo(design.table.X.dtype).eps) ** 0.5
    tolerance = max(tolerance, rough * float(each.l1.min()))
    z = design.outputs(w, b)
    value = design.objective(z, share, w, each)
    for _ in range(MOST_ROUNDS):
        if watch.says_stop():
            break
        slopes = share[:, None] * design.loss.slope(z, design.target, 1)
        grad, in_b = design.table.gradient(slopes) + each.l2 * w, slopes.sum(axis=0)
        free = w != 0
        missed = np.where(free, abs(grad + each.l1 * np.sign(w)), abs(grad) - each.l1)
        if max(missed.max(initial=0), abs(in_b).max()) <= tolerance:
            break
        most = max(NEW_AT_LEAST, np.count_nonzero(free))
        new = np.flatnonzero(~free & (missed > tolerance))
        new = new[np.argsort(-missed.flat[new])[:most]]
        place = np.unravel_index(np.sort(np.r_[np.flatnonzero(free), new]), w.shape)
        H, across, in_bb = design.hessian(z, share, place)
        H.flat[:: len(H) + 1] += each.l2[place]
        # The intercepts that suit any coefficients, put in.
        held = _held(in_bb, across, in_b)
        H -= across @ held[:, :-1]
        q = H @ w[place] - grad[place] + across @ held[:, -1]
        u = quadratic(H, q, each.l1[place], w[place])
        d = u - w[place]
        step, in_step = np.zeros_like(w), -held[:, -1] - held[:, :-1] @ d
        step[place] = d
        along = design.outputs(step, in_step)
        t = 1.0
        for _ in range(1 if design.quadratic else MOST_HALVINGS):
            trial = z + t * along
            now = design.objective(trial, share, w + t * step, each)
            if now <= value + 1e-12 * abs(value):
                break
            t /= 2
        else:
            if not design.quadratic:
                break  # rounding leaves nothing to gain
        w, b, z, value = w + t * step, b + t * in_step, trial, now
    return Fit(w, b)


def pull(
    design: Design, share: np.ndarray, total: float, penalty: Penalty, fit: Fit, q: np.ndarray,
    q_b: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """v of the solution's derivative, (features, columns): zero off the support."""
    v = np.zeros_like(fit.coef)
    place = np.nonzero(fit.coef)
    if not len(place[0]):
        return v
    z = design.outputs(fit.coef, fit.intercept)
    H, across, in_bb = design.hessian(z, share, place)
    H.flat[:: len(H) + 1] += penalty.l2[place] / total
    held = _held(in_bb, across, q_b)
    v[place] = solved(H - across @ held[:, :-1], q[place] - across @ held[:, -1])
    return v


def _held(in_bb: np.ndarray, across: np.ndarray, q_b: np.ndarray) -> np.ndarray:
    """How the intercepts follow coefficients, and in the last column q_b."""
    sides = np.concatenate([across.T, q_b[:, None]], axis=1)
    return sides / in_bb if len(in_bb) == 1 else np.linalg.solve(in_bb, sides)


def descend_rows(
    design: Design, share: np.ndarray, column: int, factor: np.ndarray, strengths: np.ndarray,
    start: np.ndarray, ratio: float, tol: float,
) -> np.ndarray:  # fmt: skip
    """As `l1_quadratic.descend`, from rows, where features are too many for their products."""
    from sklearn import config_context
    from sklearn.linear_model import enet_path

    used = np.flatnonzero(share)
    root = (len(used) * share[used]) ** 0.5
    X, t = design.X[used], design.target[used, column].astype(np.float64)
    X = np.asfortranarray(root[:, None] * (X - share[used] @ X) / factor, dtype=design.X.dtype)
    t = (root * (t - share[used] @ t)).astype(X.dtype)
    with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
        warnings.simplefilter("ignore")
        _, path, _ = enet_path(
            X, t, l1_ratio=ratio, alphas=strengths, precompute=False, check_input=False, tol=tol,
            coef_init=start.astype(X.dtype), max_iter=SWEEPS,
        )  # fmt: skip
    return path


def strongest(design: Design, share: np.ndarray, factor: np.ndarray) -> float:
    """The least strength, per row and times `factor`, at which every coefficient is zero."""
    z = np.zeros(design.target.shape)
    slopes = share[:, None] * design.loss.slope(z, design.target, 1)
    slopes -= share[:, None] * slopes.sum(axis=0)
    return float((abs(design.table.gradient(slopes)) / factor).max())
