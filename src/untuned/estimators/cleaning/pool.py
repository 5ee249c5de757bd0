"""Stacking: a log-linear pool of base models, its weights learned through the label noise.

    p_i = softmax(sum_k w_k log p_i^k + b)          base models k, rows i, one offset b per class
    loss_i(w, b) = -log sum_j P(label given to i | true label j) p_ij

A weight is a model's share and its temperature in one: above 1 it makes an underconfident model
surer. x holds the roots of the weights and an angle that gives a strength s. It is a bilevel
problem over two halves h of the rows. Inside, each half learns its offsets; outside, the weights
and the strength that holds offsets back are chosen so that each half's offsets predict the other
half:

    g(x, y) = sum_h mean of loss_i(w, y_h), i in h,       + s / 2 |y_h|^2
    f(x, y) = sum_h mean of loss_i(w, y_h), i not in h,   + sum_k w_k / rows

The last term is a prior that weighs as much as one row. It draws the weight of a model that does
not help to zero; a weight that is then close to zero is set to zero.

Most minima are at a bound: a weight of zero, offsets held back completely or not at all. In a root
or an angle f is convex there, and Newton's method goes there in a step (pool_newton.py). In a
logarithm it would slope down for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form.losses import softmax
from untuned.estimators.cleaning import pool_newton
from untuned.run.result import Result

FAINT = 1e-4  # mixed into each model, so that none is ever certain
FAINTEST = 1e-12  # weight: where no model knows anything, one must count all the same
NOTHING = 0.05  # a weight below this share of the largest one changes no result
STRENGTH, LEAST = 0.1, 1e-2  # at the start; the least keeps g convex where all rows are undecided
MOST_STRENGTH = 100.0  # at which nothing is left of offsets
BOUND = 0.05  # to start from: nearer to a bound, x could hardly find its way back
# The slopes of a row are about 1, so those of the mean are known to 1 / sqrt(rows): a slope of this
# share of that is none.
CHANCE = 0.01
SAMPLED_ENTRIES, FEWEST_ROWS = 2**15, 1024  # enough for so few numbers

Solve = Callable[["Outer", "Inner", np.ndarray, np.ndarray, float], Result]


class Stacked(NamedTuple):
    """What the pool is learned from. Rows are last: sums over classes are of long vectors then."""

    logs: np.ndarray  # (models, classes, rows), logarithms of out-of-fold probabilities
    likelihood: np.ndarray  # (classes, rows), P(given label | true label j)
    weight: np.ndarray
    half: np.ndarray  # False, then True


class Pool(NamedTuple):
    """What was learned."""

    weights: np.ndarray  # one per model
    offsets: np.ndarray  # one per class
    result: Result

    def scores(self, logs: np.ndarray) -> np.ndarray:
        """Logarithms of pooled probabilities, but for a constant in each row."""
        return np.tensordot(self.weights, logs, 1) + self.offsets

    def probabilities(self, logs: np.ndarray) -> np.ndarray:
        """Of true labels, (rows, classes)."""
        return softmax(self.scores(logs).astype(np.float64), 1)


def logs_of(probabilities: np.ndarray) -> np.ndarray:
    """The logarithms of a model's probabilities, none of which is quite zero."""
    classes = probabilities.shape[-1]
    return np.log((probabilities + FAINT / classes) / (1 + FAINT))


def sampled(rows: Stacked, order: np.ndarray) -> Stacked:
    """As many rows as are enough, by an order that is independent of their content."""
    classes, count = rows.likelihood.shape
    most = max(FEWEST_ROWS, SAMPLED_ENTRIES // classes)
    if count <= most:
        return rows
    chosen = order[np.linspace(0, count - 1, most).astype(int)]
    return Stacked(*(leaf[..., chosen] for leaf in rows))


def learn(
    rows: Stacked, start: np.ndarray | Pool, solve: Solve = pool_newton.minimize
) -> Pool:  # fmt: skip
    """The pool of these rows, from weights or from a pool of theirs under another likelihood."""
    models, classes, _ = rows.logs.shape
    order = np.argsort(rows.half, kind="stable")  # sums over contiguous halves are quick
    rows = Stacked(*(np.ascontiguousarray(leaf[..., order]) for leaf in rows))
    if isinstance(start, Pool):
        x, y = start.result.x, start.result.y
    else:
        x, y = np.append(np.sqrt(start), np.pi / 4), np.zeros((2, classes))
    angle = np.arcsin(abs(np.sin(x[-1])))  # the same strength, in the first quarter
    x = np.maximum(np.append(abs(x[:-1]), min(angle, np.pi / 2 - BOUND)), BOUND)
    small = CHANCE / rows.weight.sum() ** 0.5
    result = solve(Outer(rows), Inner(rows), x, y, small)
    weights, offsets = np.square(result.x[:models]), result.y.mean(axis=0)
    weights = np.maximum(weights, FAINTEST)
    weights[weights < NOTHING * weights.max()] = 0.0
    return Pool(weights, offsets - offsets.mean(), result)


class _Evaluated(NamedTuple):
    """What the losses are made of at one (x, y)."""

    x: np.ndarray
    y: np.ndarray
    p: np.ndarray
    posterior: np.ndarray  # of true labels
    value: float


class _Side:
    """Mean losses of rows, by the offsets of their own half or of the other one."""

    def __init__(self, rows: Stacked, own: bool):
        self.rows = rows
        # Of f the offsets are the other half's. Rows come in the order of halves.
        self.by = (rows.half == own).astype(int)
        self.cut = int(np.count_nonzero(~rows.half))
        totals = np.bincount(self.by, rows.weight, 2)
        self.share = rows.weight / np.maximum(totals, np.finfo(float).tiny)[self.by]
        self._last: _Evaluated | None = None
        self._pooled: tuple[np.ndarray, np.ndarray] | None = None  # x, and logs by its weights

    def at(self, x: np.ndarray, y: np.ndarray) -> _Evaluated:
        """Values and derivatives are often needed at the same point."""
        last = self._last
        if last is None or not (np.array_equal(y, last.y) and np.array_equal(x, last.x)):
            if self._pooled is None or not np.array_equal(x, self._pooled[0]):
                self._pooled = x, np.tensordot(np.square(x[:-1]), self.rows.logs, 1)
            scores = self._pooled[1].copy()
            scores[:, : self.cut] += y[self.by[0], :, None]
            scores[:, self.cut :] += y[self.by[-1], :, None]
            p = softmax(scores, 0)
            joint = p * self.rows.likelihood
            total = np.maximum(joint.sum(axis=0), np.finfo(float).tiny)
            joint /= total
            last = self._last = _Evaluated(x, y, p, joint, -float(self.share @ np.log(total)))
        return last

    def slopes(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the loss, in the scores of rows."""
        at = self.at(x, y)
        return self.share * (at.p - at.posterior)

    def by_weight(self, slopes: np.ndarray) -> np.ndarray:
        """Slopes in the weights."""
        return np.tensordot(self.rows.logs, slopes, 2)

    def by_offset(self, slopes: np.ndarray) -> np.ndarray:
        """Slopes in the offsets of both halves, (..., 2, classes) of (..., classes, rows)."""
        found = np.zeros((*slopes.shape[:-2], 2, slopes.shape[-2]))
        found[..., self.by[0], :] += slopes[..., : self.cut].sum(axis=-1)
        found[..., self.by[-1], :] += slopes[..., self.cut :].sum(axis=-1)
        return found

    def bent(self, at: _Evaluated, change: np.ndarray) -> np.ndarray:
        """The change of slopes (..., classes, rows) as scores change."""
        found = _bent(at.p, change)
        found -= _bent(at.posterior, change)
        found *= self.share
        return found


class Inner:
    """g."""

    def __init__(self, rows: Stacked):
        self.side = _Side(rows, own=True)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.side.at(x, y).value + _strength(x) / 2 * float(np.vdot(y, y))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        return self.side.by_offset(self.side.slopes(x, y)) + _strength(x) * y

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        by_weight = self.side.by_weight(self.side.slopes(x, y))
        in_x = np.append(by_weight, _strengthening(x) * float(np.vdot(y, y)) / 2)
        return self(x, y), in_x * Outer.bend(x)[0], self.grad_y(x, y)

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        hessian, cross = self.hessian(x, y), self.cross(x, y)

        def pull(v: np.ndarray, wrt: str) -> Any:
            in_x = Outer.bend(x)[0] * np.tensordot(cross, v, 2)
            in_y = np.einsum("hcd,hd->hc", hessian, v)
            return {"x": in_x, "y": in_y, "xy": (in_x, in_y)}[wrt]

        return pull

    def cross(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Changes of grad_y g, one for each weight and one for the share of the angle."""
        by_weight = self.side.bent(self.side.at(x, y), self.side.rows.logs)
        return np.concatenate([self.side.by_offset(by_weight), _strengthening(x) * y[None]])

    def hessian_blocks(self, y: np.ndarray) -> tuple[int, int, float]:
        """A block for each half, made of all rows."""
        return *y.shape, 1.0

    def hessian(self, x: np.ndarray, y: np.ndarray, convex: bool = False) -> np.ndarray:
        """The blocks; `convex` leaves out what makes them indefinite, the part of the noise."""
        at, share = self.side.at(x, y), self.side.share
        found = np.zeros((2, y.shape[1], y.shape[1]))
        cut = self.side.cut
        for half, part in ((self.side.by[0], slice(cut)), (self.side.by[-1], slice(cut, None))):
            for sign, p in ((1, at.p[:, part]), (-1, at.posterior[:, part]))[: 1 if convex else 2]:
                shared = share[part] * p
                found[half] += sign * (np.diag(shared.sum(axis=1)) - shared @ p.T)
        return found + _strength(x) * np.eye(y.shape[1])


class Outer:
    """f."""

    def __init__(self, rows: Stacked):
        self.side = _Side(rows, own=False)
        self.prior = 1 / rows.weight.sum()

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.side.at(x, y).value + self.prior * float(np.square(x[:-1]).sum())

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f and grad_y f."""
        value, in_shares, in_y = self.by_shares(x, y)
        return value, Outer.bend(x)[0] * in_shares, in_y

    def by_shares(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f and its slopes in weights and the share of the angle, and grad_y f."""
        slopes = self.side.slopes(x, y)
        in_shares = np.append(self.side.by_weight(slopes) + self.prior, 0.0)
        return self(x, y), in_shares, self.side.by_offset(slopes)

    def curvature(self, x: np.ndarray, y: np.ndarray, along: np.ndarray) -> np.ndarray:
        """Second derivatives of the loss as weights change, and offsets with them, as `along`
        says: (numbers, 2, classes)."""
        change = np.swapaxes(along, 1, 2)[..., self.side.by]
        change[:-1] += self.side.rows.logs
        bent = self.side.bent(self.side.at(x, y), change)
        return bent.reshape(len(change), -1) @ change.reshape(len(change), -1).T

    @staticmethod
    def bend(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivatives of weights in their roots, and of sin^2 in the angle."""
        twice = 2 * x[-1]
        first = np.append(2 * x[:-1], np.sin(twice))
        return first, np.append(np.full(len(x) - 1, 2.0), 2 * np.cos(twice))


def _strength(x: np.ndarray) -> float:
    """From none to the most, as an angle goes from a right one to zero; STRENGTH half way."""
    share = float(np.sin(x[-1])) ** 2
    return STRENGTH * (1 - share) / (share + STRENGTH / MOST_STRENGTH) + LEAST


def _strengthening(x: np.ndarray) -> float:
    """The slope of the strength in sin^2."""
    share, least = float(np.sin(x[-1])) ** 2, STRENGTH / MOST_STRENGTH
    return -STRENGTH * (1 + least) / (share + least) ** 2


def _bent(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The change of probabilities p as their logarithms change by v."""
    pv = p * v
    pv -= p * pv.sum(axis=-2, keepdims=True)
    return pv
