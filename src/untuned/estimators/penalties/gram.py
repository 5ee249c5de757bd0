"""What squared errors say about coefficients, as a small matrix for each model.

Of rows with shares a that sum to one, the mean loss is 1/2 w^t G w - q^t w plus a constant, with
G the products of the centred features and q those with the centred target, once the intercept is
the one that suits w. Rows with the same roles (folds.py) are gone through once, however many
models train on them; after that no solve looks at a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from untuned.estimators.penalties.folds import alike
from untuned.estimators.penalties.l1 import (
    MOST_ROUNDS,
    NEW_AT_LEAST,
    Design,
    Fit,
    Penalty,
)
from untuned.estimators.penalties.l1_quadratic import quadratic, solved

MOST_ENTRIES = 2**23  # of all matrices: 64 MB


class Gram(NamedTuple):
    """Of one model: G, q and where the intercept is found."""

    G: np.ndarray  # (features, features)
    q: np.ndarray  # (features, columns)
    mean: np.ndarray  # (features,)
    target: np.ndarray  # (columns,), its mean
    spread: np.ndarray  # (columns,), the mean square of the centred target

    def fit(self, coef: np.ndarray) -> Fit:
        """With the intercepts that suit these coefficients."""
        return Fit(coef, self.target - self.mean @ coef)

    def solve(self, each: Penalty, start: np.ndarray) -> Fit:
        """The minimizer; `each` are penalties for shares, as in `l1`."""
        coef = np.zeros_like(start)
        for c in range(start.shape[1]):
            coef[:, c] = self._column(c, each.l1[:, c], each.l2[:, c], start[:, c])
        return self.fit(coef)

    def pull(
        self, each: Penalty, coef: np.ndarray, in_w: np.ndarray, in_b: np.ndarray
    ) -> np.ndarray:
        """v of the solution's derivative (`l1.pull`)."""
        v = np.zeros_like(coef)
        for c in range(coef.shape[1]):
            S = np.flatnonzero(coef[:, c])
            if len(S):
                H = self.G[np.ix_(S, S)] + np.diag(each.l2[S, c])
                v[S, c] = solved(H, in_w[S, c] - self.mean[S] * in_b[c])
        return v

    def _column(self, c: int, l1: np.ndarray, l2: np.ndarray, start: np.ndarray) -> np.ndarray:
        q, tolerance = self.q[:, c], 1e-9 * max(abs(self.q[:, c]).max(initial=0), 1e-300)
        w, left = np.zeros_like(start), q
        S = np.flatnonzero(start)
        held = start[S]
        for _ in range(MOST_ROUNDS):
            if len(S):
                rows = self.G[S]
                H = rows[:, S]
                H[np.diag_indices_from(H)] += l2[S]
                held = quadratic(H, q[S], l1[S], held, self.spread[c])
                w = np.zeros_like(start)
                w[S] = held
                left = q - held @ rows - l2 * w
            missed = np.where(w != 0, 0.0, abs(left) - l1)
            new = np.flatnonzero(missed > tolerance)
            new = np.setdiff1d(new, S, assume_unique=True)
            if not len(new):
                break
            S = np.flatnonzero(w)
            most = max(NEW_AT_LEAST, len(S))
            S = np.sort(np.r_[S, new[np.argsort(-missed[new])[:most]]])
            held = w[S]
        return w


def fits(features: int, models: int) -> bool:
    """Whether the matrices of so many models are small."""
    return models * features**2 <= MOST_ENTRIES


def make(design: Design, weight: np.ndarray, train: np.ndarray) -> list[Gram]:
    """Of each model, whose training rows are a column of `train`."""
    first, number = alike(train)
    sums: list = [None] * train.shape[1]
    number = np.where(weight > 0, number, -1)
    for k in range(len(first)):
        users = np.flatnonzero(train[first[k]])
        which = np.flatnonzero(number == k)
        if not len(users) or not len(which):
            continue
        part = _products(design, weight, which)
        for model in users:
            before = sums[model]
            sums[model] = [a + b for a, b in zip(before, part, strict=True)] if before else part
    return [_centred(*each) for each in sums]


def _products(design: Design, weight: np.ndarray, which: np.ndarray) -> list[np.ndarray]:
    """Sums over some rows: weight, features, targets, and their products."""
    X, t, a = design.table.X[which], design.target[which].astype(np.float64), weight[which]
    if sparse.issparse(X):
        X = X.astype(np.float64)
        scaled = sparse.csr_array(X.multiply(a[:, None]))
        xx, xt, x = (X.T @ scaled).toarray(), scaled.T @ t, X.T @ a
        # The shift that a sparse table leaves out.
        s, total = design.table.shift.astype(np.float64), a.sum()
        xx += total * np.outer(s, s) - np.outer(s, x) - np.outer(x, s)
        xt -= np.outer(s, a @ t)
        x = x - total * s
    else:
        X = X.astype(np.float64, copy=False)
        scaled = a[:, None] * X
        xx, xt, x = X.T @ scaled, scaled.T @ t, scaled.sum(axis=0)
    return [np.asarray(a.sum()), x, a @ t, xx, xt, a @ t**2]


def _centred(
    total: np.ndarray, x: np.ndarray, t: np.ndarray, xx: np.ndarray, xt: np.ndarray, tt: np.ndarray
) -> Gram:
    mean, target = x / total, t / total
    G = xx / total - np.outer(mean, mean)
    return Gram(G, xt / total - np.outer(mean, target), mean, target, tt / total - target**2)
