"""PBCS: probabilistic bilevel coresets.

Zhou, Pi, Zhang, Lin and Zhang, "Probabilistic bilevel coreset selection". Row i is kept with
probability s_i; s lies in [0, 1]^n and sums to K. A step draws masks, trains on each from the model
as it was, and moves s by the policy gradient of the loss on all rows,

    1 / (masks - 1) * sum_k (L_k - mean L) (mask_k - s) / (s (1 - s)),   clipped,

by Adam; no derivative of the trained model is needed. The model is the last layer. The budget is
that of the authors: 2000 steps of 5 masks with 100 inner steps each.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from untuned.closed_form.losses import LOSSES
from untuned.coreset.baselines import Selection
from untuned.coreset.selectors.candidates import Candidates
from untuned.util.wording import brief

STEPS, MASKS, INNER_STEPS = 2000, 5, 100
CLIP = 3.0
RATE, INNER_RATE = 5e-2, 5e-3
CLOSEST = 0.01  # to 0 and 1 that s counts as in the gradient, which would be infinite there
SOFTMAX = LOSSES["softmax"]


def adam(slope: Any, first: Any, second: Any, step: int) -> tuple[Any, Any, Any]:
    """Adam's direction, and its two running means after it."""
    first = 0.9 * first + 0.1 * slope
    second = 0.999 * second + 0.001 * slope**2
    move = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return move, first, second


def onto_sum(x: Any, total: float) -> Any:
    """The nearest point with entries in [0, 1] that sum to `total`: a shift, by bisection."""
    low, high = float(x.min()) - 1, float(x.max())
    for _ in range(50):
        middle = (low + high) / 2
        if (x - middle).clip(0, 1).sum() > total:
            low = middle
        else:
            high = middle
    return (x - (low + high) / 2).clip(0, 1)


class Heads:
    """Last layers side by side, each weighing rows in its own way; ridge on all their entries.

    `weights` are (heads, rows), y is (heads, classes, features + 1), the intercept last. Heads keep
    different numbers of rows; the shorter ones are filled up by rows that weigh nothing.
    """

    def __init__(self, c: Candidates, weights: np.ndarray):
        A, target = rows_of(c)
        most = max(int(np.count_nonzero(weights, axis=1).max()), 1)
        rows = np.argsort(weights == 0, axis=1, kind="stable")[:, :most]
        self.weight = np.take_along_axis(weights, rows, axis=1)[:, None]
        self.A = A[rows]
        self.transposed = np.ascontiguousarray(self.A.transpose(0, 2, 1))
        self.target = np.ascontiguousarray(target[:, rows].transpose(1, 0, 2))
        self.ridge = c.ridge

    def gradient(self, y: np.ndarray) -> np.ndarray:
        """Of the weighted losses and the ridge."""
        slopes = SOFTMAX.slope(y @ self.transposed, self.target, 1)
        slopes *= self.weight
        return slopes @ self.A + self.ridge * y


def rows_of(c: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """Features with a one for the intercept, (rows, features + 1); labels as (classes, rows)."""
    A = np.column_stack([c.features, np.ones(len(c), c.features.dtype)])
    return A, np.eye(len(c.classes), dtype=A.dtype)[:, c.label]


def pbcs(
    c: Candidates, size: int, *, steps: int = STEPS, masks: int = MASKS,
    inner_steps: int = INNER_STEPS,
) -> Selection:  # fmt: skip
    """The rows of largest probability, and these as weights."""
    for name, value in (("steps", steps), ("masks", masks), ("inner_steps", inner_steps)):
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(
                f"{name}={brief(value)} is not usable; expected a whole number from 1 up."
            )
    seed = int(c.rng.integers(2**31))
    share = c.share.astype(c.features.dtype)
    A, target = rows_of(c)
    head = np.vstack([c.head.coef, c.head.intercept]).T
    s = np.full_like(share, size / len(c))
    first = second = np.zeros_like(s)
    for step in range(steps):
        kept = np.random.default_rng([seed, step]).random((masks, len(c))) < s
        kept = kept.astype(s.dtype)
        trained = _train(c, kept, np.stack([head] * masks), inner_steps)
        losses = np.array([SOFTMAX.value(y @ A.T, target, 0) @ share for y in trained], s.dtype)
        inside = np.clip(s, CLOSEST, 1 - CLOSEST)
        slope = (losses - losses.mean()) @ (kept - s) / (inside * (1 - inside))
        slope = slope / max(masks - 1, 1)
        norm = float(np.linalg.norm(slope))
        slope = slope * min(1.0, CLIP / norm) if norm > 0 else slope
        move, first, second = adam(slope, first, second, step + 1)
        s = onto_sum(s - RATE * move, size)
    s = s.astype(np.float64)
    order = np.lexsort((c.rng.random(len(c)), -s))[:size]
    return order, s[order] / s[order].max()


def _train(c: Candidates, masks: np.ndarray, y: np.ndarray, steps: int) -> np.ndarray:
    """Adam on every mask, from the model as it was, its rate falling along a cosine."""
    heads = Heads(c, masks / masks.sum(axis=1, keepdims=True).clip(min=1))
    first = second = np.zeros_like(y)
    for k in range(steps):
        move, first, second = adam(heads.gradient(y), first, second, k + 1)
        y = y - INNER_RATE * 0.5 * (1 + math.cos(math.pi * k / steps)) * move
    return y
