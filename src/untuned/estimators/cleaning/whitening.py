"""Features standardised and turned so that a linear model on them is quick to solve for.

Standardised features are turned into their principal axes and divided by sqrt(variance + floor). A
loss that bends by a tenth per unit of variance, and a ridge of a tenth of the floor, together bend
alike along all of these, so that conjugate gradients need few steps. Axes along which no row
differs are left out. A ridge on coefficients of the standardised features stays exactly that: in
the new coordinates it falls on each with its own share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

PER_RIDGE = 10.0  # of floor
MOST_AXES = 2048  # above, they cost more than they save; features are only standardised
ROUNDING = 1e-6  # of its mean: a feature that varies less is constant


@dataclass(frozen=True)
class Whitening:
    """The map x -> (x - mean) @ matrix; a vector stands for a diagonal matrix."""

    mean: np.ndarray
    matrix: np.ndarray
    penalty: np.ndarray  # of each new feature, per unit of ridge

    def apply(self, features: np.ndarray) -> np.ndarray:
        """The new features."""
        centred = features - self.mean
        return centred * self.matrix if self.matrix.ndim == 1 else centred @ self.matrix

    def coefficients(
        self, coef: np.ndarray, intercept: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Those of the features as they came."""
        original = self.matrix[:, None] * coef if self.matrix.ndim == 1 else self.matrix @ coef
        return original, intercept - self.mean @ original


def usual_ridge(rows: int, columns: int) -> float:
    """The ridge to expect: that of coefficients which together make scores of about a unit."""
    return columns / (2 * rows)


def fit(block: Callable[[int], np.ndarray], weight: np.ndarray, ridge: float) -> Whitening:
    """The whitening of weighted rows; `block(start)` gives some of them, from row `start` on.

    `ridge` is the one to expect.
    """

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        start = 0
        while start < len(weight):
            rows = block(start).astype(np.float64)
            yield rows, weight[start : start + len(rows)] / weight.sum()
            start += len(rows)

    mean = sum(share @ rows for rows, share in blocks())
    variance = sum(share @ (rows - mean) ** 2 for rows, share in blocks())
    varies = variance > (ROUNDING * mean) ** 2
    scale = np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)
    if min(len(mean), len(weight)) > MOST_AXES:
        return Whitening(mean, scale, np.ones(len(mean)))
    shared = (np.sqrt(share)[:, None] * (rows - mean) * scale for rows, share in blocks())
    along, axes = _axes(shared, len(weight), len(mean))
    penalty = 1 / (along + PER_RIDGE * ridge)
    return Whitening(mean, scale[:, None] * axes * np.sqrt(penalty), penalty)


def _axes(
    standard: Iterator[np.ndarray], rows: int, columns: int
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Variances along principal axes, and the axes as columns, from blocks of rows."""
    if columns <= rows:
        along, axes = np.linalg.eigh(sum(block.T @ block for block in standard))
        differ = along > ROUNDING
        return along[differ], axes[:, differ]
    every = np.concatenate(list(standard))
    along, turned = np.linalg.eigh(every @ every.T)
    differ = along > ROUNDING
    along = along[differ]
    return along, every.T @ turned[:, differ] / np.sqrt(along)
