"""Selectors by chance: uniform, and the seeding of k-means++ on inputs or on features."""

from __future__ import annotations

import numpy as np

from untuned.coreset.baselines import Selection
from untuned.coreset.selectors.candidates import Candidates


def uniform(c: Candidates, size: int) -> Selection:
    """Rows without replacement, drawn in proportion to how much they count."""
    return draw(c.share, size, c.rng), np.ones(size)


def k_means_features(c: Candidates, size: int) -> Selection:
    """k-means++ seeding on the inputs."""
    return spread(c.X.reshape(len(c), -1), c.share, size, c.rng), np.ones(size)


def k_means_embedding(c: Candidates, size: int) -> Selection:
    """k-means++ seeding on the model's features."""
    return spread(c.features, c.share, size, c.rng), np.ones(size)


def spread(X: np.ndarray, share: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Rows one by one, drawn by their squared distance to the nearest row chosen so far."""
    # Centred and in float64, so that a row's distance to itself is zero up to tiny rounding.
    X = X.astype(float)
    X = X - X.mean(axis=0)
    squares = np.einsum("ij,ij->i", X, X)
    nearest, left = np.ones(len(X)), share.copy()
    chosen = np.empty(size, int)
    for k in range(size):
        order = draw(nearest * left, k + 1, rng, among=left)
        chosen[k] = order[~np.isin(order, chosen[:k])][0]  # rows without a share come again
        left[chosen[k]] = 0
        distance = np.maximum(squares - 2 * X @ X[chosen[k]] + squares[chosen[k]], 0)
        distance[distance <= 1e-12 * squares] = 0
        nearest = distance if k == 0 else np.minimum(nearest, distance)
    return chosen


def draw(
    weight: np.ndarray, size: int, rng: np.random.Generator, among: np.ndarray | None = None
) -> np.ndarray:
    """`size` rows without replacement, in order, drawn in proportion to their weights.

    Where too few have a weight, others follow at random: those with a share in `among` first.
    """
    # The smallest of exponential times is such a draw (Efraimidis and Spirakis); in logarithms, so
    # that tiny weights keep their order.
    with np.errstate(divide="ignore"):
        late = np.log(rng.exponential(size=len(weight))) - np.log(weight)
    rest = np.zeros(len(weight)) if among is None else among
    order = np.lexsort((rng.random(len(weight)), late, rest <= 0, weight <= 0))
    return order[:size]


def drawn(weight: np.ndarray, c: Candidates, size: int) -> Selection:
    """Rows drawn by their weights, and these, the largest being one."""
    order = draw(weight, size, c.rng, among=c.share)
    chosen = weight[order]
    return order, chosen / chosen.max() if chosen.max() > 0 else np.ones(size)
