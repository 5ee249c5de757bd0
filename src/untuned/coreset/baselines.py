"""Selectors that do not look at a model: uniform, k-means, herding. Each gives rows and weights.

Rows are row numbers, the most important first; weights are in [0, 1], one per row chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

Selection = tuple[np.ndarray, np.ndarray]


def uniform(rows: int, size: int, rng: np.random.Generator) -> Selection:
    """`size` random rows with equal weights."""
    return rng.permutation(rows)[:size], np.ones(size)


def k_means(X: np.ndarray, size: int, rng: np.random.Generator) -> Selection:
    """The rows nearest to the centres of `size` clusters, weighted by how many rows are near."""
    from sklearn.cluster import MiniBatchKMeans

    clusters = MiniBatchKMeans(
        size, random_state=int(rng.integers(2**31)), n_init=1, batch_size=max(1024, 4 * size)
    ).fit(X)
    chosen = np.unique(nearest_rows(X, clusters.cluster_centers_))
    if len(chosen) < size:  # two centres with one nearest row: random ones fill up
        rest = np.setdiff1d(np.arange(len(X)), chosen)
        chosen = np.concatenate([chosen, rng.permutation(rest)[: size - len(chosen)]])
    counts = np.bincount(nearest_rows(X[chosen], X), minlength=size)
    order = np.argsort(-counts, kind="stable")
    return chosen[order], counts[order] / counts.max()


def nearest_rows(X: np.ndarray, points: np.ndarray) -> np.ndarray:
    """For each point the number of the row of X that is nearest."""
    squares = np.einsum("ij,ij->i", X, X)
    block = max(1, 2**22 // len(X))  # so that distances take little memory
    return np.concatenate(
        [
            np.argmin(squares - 2 * points[start : start + block] @ X.T, axis=1)
            for start in range(0, len(points), block)
        ]
    )


def herding(X: np.ndarray, label: np.ndarray, size: int, rng: np.random.Generator) -> Selection:
    """Per class, rows whose mean follows the mean of the class, in turns; with equal weights.

    Every class has its share of `size`, and at least one row where there are enough.
    """
    quotas = class_quotas(np.bincount(label), size, rng)
    orders = [
        members[herd(X[members], quota)]
        for members, quota in ((np.flatnonzero(label == c), q) for c, q in enumerate(quotas))
    ]
    return in_turns(orders, size), np.ones(size)


def in_turns(orders: Iterable[np.ndarray], size: int) -> np.ndarray:
    """The first row of every class, then the second, and so on; a class that runs out drops out."""
    orders = list(orders)
    turns = np.concatenate([np.arange(len(order)) for order in orders])
    return np.concatenate(orders)[np.argsort(turns, kind="stable")][:size]


def herd(X: np.ndarray, count: int, share: np.ndarray | None = None) -> np.ndarray:
    """`count` rows, each the one that brings the mean of those so far nearest to the mean of X.

    `share` says how much each row counts in that mean; equally if all shares are zero.
    """
    mean = X.mean(axis=0) if share is None or not share.any() else share @ X / share.sum()
    centred = X - mean.astype(X.dtype)
    squares = np.einsum("ij,ij->i", centred, centred)
    total = np.zeros(X.shape[1], X.dtype)
    chosen = np.empty(count, int)
    for k in range(count):
        distance = squares + 2 * centred @ total  # of the new sum from 0, up to a constant
        distance[chosen[:k]] = np.inf
        chosen[k] = np.argmin(distance)
        total += centred[chosen[k]]
    return chosen


def class_quotas(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """How many rows of each class: in proportion, but one of each class where `size` allows it."""
    least = (counts > 0).astype(int)
    if size < least.sum():
        least[rng.permutation(np.flatnonzero(least))[size:]] = 0
        return least
    exact = counts * size / counts.sum()
    quotas = np.maximum(np.floor(exact).astype(int), least)
    while quotas.sum() != size:
        short = quotas.sum() < size
        gap = exact - quotas
        allowed = quotas < counts if short else quotas > least
        c = np.argmax(np.where(allowed, gap if short else -gap, -np.inf))
        quotas[c] += 1 if short else -1
    return quotas


def equal_quotas(counts: list[int], size: int) -> list[int]:
    """The same number for every class, as far as its rows go; the first ones have one more."""
    quotas = [0] * len(counts)
    while sum(quotas) < min(size, sum(counts)):
        for place, count in enumerate(counts):
            if quotas[place] < count and sum(quotas) < size:
                quotas[place] += 1
    return quotas
