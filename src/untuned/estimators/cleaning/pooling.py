"""How much each judge is worth: a logarithmic pool, its weights learned through the noise.

    p_i = softmax(sum_k w_k log p_i^k + b)          judges k, rows i, one offset b per class
    loss_i(w, b) = -log sum_j P(label given to i | true label j) p_ij

A weight is a judge's share of the say and its temperature in one: above 1 it makes a hesitant judge
surer. x holds the logarithms of weights and of a strength s. It is a bilevel problem over two
halves h of the rows. Inside, each half learns its offsets; outside, the weights and the strength
that holds offsets back are chosen so that each half's offsets predict the other half:

    g(x, y) = sum_h mean of loss_i(w, y_h), i in h,       + s / 2 |y_h|^2
    f(x, y) = sum_h mean of loss_i(w, y_h), i not in h,   + sum_k w_k / rows

The last term is a prior that weighs as much as one row; it draws the weight of a judge that does
not help to zero, and what is then next to nothing is taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form.losses import softmax
from untuned.run import minimize
from untuned.run.result import Result

FAINT = 1e-4  # mixed into each judge, so that none is ever certain
NOTHING = 0.05  # a weight below this share of the largest one changes no verdict
STRENGTH, LEAST = 0.1, 1e-2  # at the start; the least makes g curve where all rows are undecided
SMALLEST, LARGEST = -6.0, 6.0  # logarithms to start from: beyond, x could hardly find its way back
# The slopes of a row are about 1, so those of the mean are known to 1 / sqrt(rows): a slope of this
# share of that is none.
CHANCE = 0.01
MOST_STEPS = 40
SAMPLED_ENTRIES, FEWEST_ROWS = 2**15, 1024  # for a handful of numbers more would be a waste


class Rows(NamedTuple):
    """What the pool is learned from. Rows are last: sums over classes are of long vectors then."""

    voices: np.ndarray  # (judges, classes, rows), logarithms of unseen probabilities
    likelihood: np.ndarray  # (classes, rows), P(given label | true label j)
    weight: np.ndarray
    half: np.ndarray  # False, then True


class Pool(NamedTuple):
    """What was learned."""

    weights: np.ndarray  # one per judge
    offsets: np.ndarray  # one per class
    result: Result

    def scores(self, voices: np.ndarray) -> np.ndarray:
        """Logarithms of pooled probabilities, but for a constant in each row."""
        return np.tensordot(self.weights, voices, 1) + self.offsets

    def probabilities(self, voices: np.ndarray) -> np.ndarray:
        """Of true labels, (rows, classes)."""
        return softmax(self.scores(voices).astype(np.float64), 1)


def voice(probabilities: np.ndarray) -> np.ndarray:
    """The logarithm of a judge's probabilities, none of them quite zero."""
    classes = probabilities.shape[-1]
    return np.log((probabilities + FAINT / classes) / (1 + FAINT))


def some(rows: Rows, order: np.ndarray) -> Rows:
    """As many rows as are enough, by an order in which one says nothing of the next."""
    classes, count = rows.likelihood.shape
    most = max(FEWEST_ROWS, SAMPLED_ENTRIES // classes)
    if count <= most:
        return rows
    chosen = order[np.linspace(0, count - 1, most).astype(int)]
    return Rows(*(leaf[..., chosen] for leaf in rows))


def learn(
    rows: Rows, start: np.ndarray | Pool, solve: Callable[..., Result] = minimize
) -> Pool:  # fmt: skip
    """The pool of these rows, from weights or from a pool of theirs under another likelihood.

    `solve` is `minimize`, perhaps with options of its own.
    """
    judges, classes, _ = rows.voices.shape
    order = np.argsort(rows.half, kind="stable")  # halves in one piece each are quick to sum over
    rows = Rows(*(np.ascontiguousarray(leaf[..., order]) for leaf in rows))
    if isinstance(start, Pool):
        x, y = np.clip(start.result.x, SMALLEST, LARGEST), start.result.y
    else:
        x, y = np.log(np.maximum(np.append(start, STRENGTH), 1e-9)), np.zeros((2, classes))
        x = np.maximum(x, SMALLEST)
    small = CHANCE / np.sqrt(rows.weight.sum())
    result = solve(
        Outer(rows), Inner(rows), x, y, max_steps=MOST_STEPS,
        # Where time is up before the first step, nothing is known of slopes.
        callback=lambda seen: seen.step > 0 and seen.record["hypergrad_norm"] <= small,
    )  # fmt: skip
    weights, offsets = np.exp(result.x[:judges]), result.y.mean(axis=0)
    weights[weights < NOTHING * weights.max()] = 0.0
    return Pool(weights, offsets - offsets.mean(), result)


class _At(NamedTuple):
    """What the losses are made of at one (x, y)."""

    x: np.ndarray
    y: np.ndarray
    p: np.ndarray
    posterior: np.ndarray  # of true labels
    value: float


class _Side:
    """Mean losses of rows, by which half's offsets they are predicted."""

    def __init__(self, rows: Rows, own: bool):
        self.rows = rows
        # Of f the offsets are the other half's. Rows come in the order of halves.
        self.by = (rows.half == own).astype(int)
        self.cut = int(np.count_nonzero(~rows.half))
        totals = np.bincount(self.by, rows.weight, 2)
        self.share = rows.weight / np.maximum(totals, np.finfo(float).tiny)[self.by]
        self._last: _At | None = None

    def at(self, x: np.ndarray, y: np.ndarray) -> _At:
        """Values and derivatives are often asked for at the same point."""
        last = self._last
        if last is None or not (np.array_equal(y, last.y) and np.array_equal(x, last.x)):
            scores = np.tensordot(np.exp(x[:-1]), self.rows.voices, 1)
            scores[:, : self.cut] += y[self.by[0], :, None]
            scores[:, self.cut :] += y[self.by[-1], :, None]
            p = softmax(scores, 0)
            joint = p * self.rows.likelihood
            total = np.maximum(joint.sum(axis=0), np.finfo(float).tiny)
            joint /= total
            last = self._last = _At(x, y, p, joint, -float(self.share @ np.log(total)))
        return last

    def value_and_slopes(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss, and its slopes in the scores of rows."""
        at = self.at(x, y)
        return at.value, self.share * (at.p - at.posterior)

    def by_weight(self, x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Slopes in the logarithms of weights."""
        return np.exp(x[:-1]) * np.tensordot(self.rows.voices, slopes, 2)

    def by_offset(self, slopes: np.ndarray) -> np.ndarray:
        """Slopes in the offsets of both halves."""
        found = np.zeros((2, len(slopes)))
        found[self.by[0]] += slopes[:, : self.cut].sum(axis=1)
        found[self.by[-1]] += slopes[:, self.cut :].sum(axis=1)
        return found


class Inner:
    """g."""

    def __init__(self, rows: Rows):
        self.side = _Side(rows, own=True)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.side.at(x, y).value + _strength(x) / 2 * float(np.vdot(y, y))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        _, slopes = self.side.value_and_slopes(x, y)
        return self.side.by_offset(slopes) + _strength(x) * y

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        value, slopes = self.side.value_and_slopes(x, y)
        held, square = _strength(x), float(np.vdot(y, y))
        in_x = np.append(self.side.by_weight(x, slopes), np.exp(x[-1]) * square / 2)
        return value + held / 2 * square, in_x, self.side.by_offset(slopes) + held * y

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        at = self.side.at(x, y)

        def pull(v: np.ndarray, wrt: str) -> Any:
            by_row = v.T[:, self.side.by]
            change = _bent(at.p, by_row) - _bent(at.posterior, by_row)
            change *= self.side.share
            in_y = None if wrt == "x" else self.side.by_offset(change) + _strength(x) * v
            if wrt == "y":
                return in_y
            in_x = np.append(self.side.by_weight(x, change), np.exp(x[-1]) * np.vdot(y, v))
            return in_x if wrt == "x" else (in_x, in_y)

        return pull

    def hessian_blocks(self, y: np.ndarray) -> tuple[int, int, float]:
        """A block for each half, made of all rows."""
        return *y.shape, 1.0

    def hessian(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The blocks."""
        at, share = self.side.at(x, y), self.side.share
        found = np.zeros((2, y.shape[1], y.shape[1]))
        for half in range(2):
            part = self.side.by == half
            for sign, p in ((1, at.p[:, part]), (-1, at.posterior[:, part])):
                shared = share[part] * p
                found[half] += sign * (np.diag(shared.sum(axis=1)) - shared @ p.T)
        return found + _strength(x) * np.eye(y.shape[1])


class Outer:
    """f."""

    def __init__(self, rows: Rows):
        self.side = _Side(rows, own=False)
        self.prior = np.append(np.full(len(rows.voices), 1 / rows.weight.sum()), 0.0)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.side.at(x, y).value + float(self.prior @ np.exp(x))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f and grad_y f."""
        value, slopes = self.side.value_and_slopes(x, y)
        prior = self.prior * np.exp(x)
        in_x = np.append(self.side.by_weight(x, slopes), 0.0) + prior
        return value + prior.sum(), in_x, self.side.by_offset(slopes)


def _strength(x: np.ndarray) -> float:
    return float(np.exp(x[-1])) + LEAST


def _bent(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The change of probabilities p as their logarithms change by v."""
    pv = p * v
    return pv - p * pv.sum(axis=0)
