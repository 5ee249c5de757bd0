"""Features standardised and turned so that a linear model on them is quick to solve for.

Standardised features are turned into their principal axes and divided by sqrt(variance + FLOOR), so
that all of them vary about alike. None is left out, and a ridge on coefficients of the standardised
features stays exactly that: in the new coordinates it falls on each with its own share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

FLOOR = 0.1  # of variance, standardised ones being 1: about ten times the ridges that are learned
MOST_FEATURES = 2048  # above, the axes cost more than they save; features are only standardised
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


def fit(block: Callable[[int], np.ndarray], weight: np.ndarray) -> Whitening:
    """The whitening of weighted rows; `block(start)` gives some of them, from row `start` on."""

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
    if len(mean) > MOST_FEATURES:
        return Whitening(mean, scale, np.ones(len(mean)))
    covariance = np.zeros((len(mean), len(mean)))
    for rows, share in blocks():
        standard = (rows - mean) * scale
        covariance += (share[:, None] * standard).T @ standard
    along, axes = np.linalg.eigh(covariance)
    penalty = 1 / (np.maximum(along, 0) + FLOOR)
    return Whitening(mean, scale[:, None] * axes * np.sqrt(penalty), penalty)
