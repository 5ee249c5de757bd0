"""One L2 penalty for all coefficients, in strides of half a decade from strong to weak.

Coefficients then only have to grow, which takes the fewest steps. The bottom is that of a parabola
through three losses. Where models are small the walk goes on beyond the first rise, as there may be
another valley and the path has two sides; and it looks at the bottom until that stays where it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from untuned.estimators.penalties import objective
from untuned.estimators.penalties.curvature import Diagonal
from untuned.estimators.penalties.folds import RowRoles
from untuned.estimators.penalties.outcome import Limit
from untuned.estimators.penalties.path import Trail
from untuned.estimators.penalties.penalties import Bend
from untuned.estimators.penalties.validation import Rows, is_far_worse
from untuned.util import watch

STRIDE = 0.5 * np.log(10)
PER_ROW, LEAST = 0.1, 10.0  # where large models begin: penalties for each row, and at all
SMALL = 31.6  # the same of small models, for each row
BEYOND = 3  # strides that small models go on after the loss has risen
ASIDE = 0.25  # of the work until then, that they may take
LOOKS, SAME = 4, 0.03  # at the bottom, at most; and the share of a penalty that is no move


class Bottom(NamedTuple):
    """Where the loss along penalties is least."""

    logarithm: float
    losses: list[float]  # of each stride


class Walk:
    """The models of all folds at the penalty that was looked at last."""

    def __init__(self, rows: Rows, plan: RowRoles, limit: Limit, trail: Trail):
        self.parts = objective.parts(rows, plan.train, plan.valid)
        self.weight = np.concatenate([part.weight for part in self.parts])
        self.limit, self.trail, self.bend = limit, trail, Bend.of_rows(rows.weight)
        self.seen: dict[float, np.ndarray] = {}  # losses of rows, by the logarithm of a penalty

    @property
    def is_small(self) -> bool:
        """Whether a fit is."""
        models = self.parts[0].models
        return models is not None and not isinstance(models.curvature, Diagonal)

    @property
    def passes(self) -> int:
        """Through the rows, so far."""
        return sum(part.passes for part in self.parts)

    def look(self, logarithm: float) -> float:
        """The mean loss of the rows held back there, which is noted."""
        s, found = np.full((1, 1, 1), np.exp(logarithm)), []
        sizes: np.ndarray | float = 0.0
        for part in self.parts:
            with watch.over(self.limit.is_over):
                found.append(part.losses(s))
            w = part.w
            seen = w[:, :, 0] if w.shape[2] == 1 else np.abs(w).max(axis=2)
            sizes = sizes + seen.sum(axis=1) * (w.shape[1] / len(self.parts) / w.shape[1] ** 2)
        losses = np.concatenate(found)
        self.trail.add(float(np.exp(logarithm)), losses, self.weight, np.asarray(sizes)[:, None])
        self.seen[logarithm] = losses
        return self.mean(logarithm)

    def mean(self, logarithm: float) -> float:
        """Of the losses there."""
        return float(self.weight @ self.seen[logarithm] / self.weight.sum())

    def down(self, first: float) -> None:
        """From there to weaker penalties while the loss falls; if it does not fall at once, to
        stronger ones."""
        low, high = self.bend.limits
        before = self.look(first)
        for side in (-1, 1):
            at, risen, most = first, 0, 0.0
            while low < at + side * STRIDE < high and not self.limit.is_over():
                at += side * STRIDE
                best = self.best()
                loss = self.look(at)
                risen = risen + 1 if loss > self.mean(best) else 0
                most = most if risen > 1 else (1 + ASIDE) * self.passes
                if risen and (
                    not self.is_small
                    or risen >= BEYOND
                    or self.passes > most
                    or is_far_worse(self.seen[at], self.seen[best], self.weight)
                ):
                    break
            if self.best() < first or self.limit.is_over() or self.mean(first) < before:
                break
        looks = LOOKS if self.is_small else 1
        while looks and not self.limit.is_over():
            bottom = self.lowest()
            if min(abs(bottom - each) for each in self.seen) < SAME:
                break
            self.look(bottom)
            looks -= 1

    def best(self) -> float:
        """The logarithm with the least loss so far."""
        return min(self.seen, key=self.mean)

    def lowest(self) -> float:
        """The bottom of the parabola through the best place and those beside it."""
        best = self.best()
        left = max((each for each in self.seen if each < best), default=None)
        right = min((each for each in self.seen if each > best), default=None)
        if left is None or right is None:
            return best
        slopes = [(self.mean(best) - self.mean(each)) / (best - each) for each in (left, right)]
        # The slope is zero between the middles of both sides, where it is known.
        middles = 0.5 * (left + best), 0.5 * (best + right)
        share = slopes[0] / min(slopes[0] - slopes[1], -1e-300)
        return float(middles[0] + share * (middles[1] - middles[0]))

    def bottom(self) -> Bottom:
        """By the losses seen."""
        return Bottom(self.lowest(), [self.mean(each) for each in self.seen])


def descend(
    rows: Rows, plan: RowRoles, limit: Limit, trail: Trail, near: float | None = None
) -> Bottom:
    """The best penalty; where it is known to be `near`, the walk begins one stride above."""
    walk = Walk(rows, plan, limit, trail)
    total = rows.weight.sum()
    if near is not None:
        first = near + STRIDE
    elif walk.is_small:
        first = float(np.log(SMALL * total))
    else:
        first = float(np.log(max(LEAST, PER_ROW * total)))
    walk.down(first)
    return walk.bottom()
