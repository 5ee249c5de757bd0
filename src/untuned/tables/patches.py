"""Features of images without a pretrained network: which small patches occur where.

After Coates, Lee and Ng (2011). Patches of 6 x 6 pixels are set to one brightness and contrast and
whitened; k-means finds the most typical ones. How much a patch z is like the typical patch c_k is

    f_k(z) = max(0, mean_j |z - c_j| - |z - c_k|),

so that about half are zero. An image's features are the sums of f over each of its quarters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from untuned.util import progress

PATCH = 6
STRIDE = 2  # pixels between patches; 1 takes four times as long
TYPICAL = 400  # typical patches
LEARNED_FROM = 40_000  # patches that k-means sees
CONTRAST, WHITENING = 10.0, 0.1  # added to variances, as in the paper, for pixels from 0 to 255
BLOCK = 64  # images at a time


class Dictionary(NamedTuple):
    """Typical patches and the whitening they are typical after."""

    mean: np.ndarray
    whitening: np.ndarray
    typical: np.ndarray  # TYPICAL x PATCH * PATCH * 3


def learn(squares: np.ndarray, seed: int) -> Dictionary:
    """Typical patches of some images, uint8 of shape (n, side, side, 3)."""
    from sklearn.cluster import MiniBatchKMeans

    rng = np.random.default_rng(seed)
    images = rng.permutation(len(squares))[:LEARNED_FROM]
    each = max(1, LEARNED_FROM // len(images))
    found = np.concatenate([_some(squares[image], each, rng) for image in images])
    found = _levelled(found)
    mean = found.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(found - mean, rowvar=False).astype(np.float64))
    whitening = (vectors / np.sqrt(np.maximum(values, 0) + WHITENING)) @ vectors.T
    whitening = whitening.astype(np.float32)
    white = (found - mean) @ whitening
    clusters = min(TYPICAL, max(2, len(white) // 10))
    model = MiniBatchKMeans(
        clusters, batch_size=4096, n_init=1, max_iter=20, random_state=seed, init="random"
    )
    return Dictionary(mean, whitening, model.fit(white).cluster_centers_.astype(np.float32))


def features(squares: np.ndarray, dictionary: Dictionary) -> np.ndarray:
    """Float32 features, four for each typical patch, on the scale of standard deviations."""
    found = np.empty((len(squares), 4 * len(dictionary.typical)), np.float32)
    lengths = (dictionary.typical**2).sum(axis=1)
    for start in range(0, len(squares), BLOCK):
        block = _all(squares[start : start + BLOCK])  # images, down, across, values
        down, across = block.shape[1:3]
        flat = _levelled(block.reshape(-1, block.shape[-1]))
        white = (flat - dictionary.mean) @ dictionary.whitening
        distance = white @ (-2 * dictionary.typical.T)
        distance += lengths
        distance += (white**2).sum(axis=1, keepdims=True)
        np.sqrt(np.maximum(distance, 0, out=distance), out=distance)
        likeness = distance.mean(axis=1, keepdims=True) - distance
        np.maximum(likeness, 0, out=likeness)
        grid = likeness.reshape(-1, down, across, len(lengths))
        middle = ((down + 1) // 2, (across + 1) // 2)
        quarters = [
            grid[:, rows, columns].sum(axis=(1, 2))
            for rows in (slice(middle[0]), slice(middle[0], None))
            for columns in (slice(middle[1]), slice(middle[1], None))
        ]
        found[start : start + BLOCK] = np.concatenate(quarters, axis=1)
    return found


def of_images(squares: np.ndarray, seed: int) -> tuple[np.ndarray, Dictionary]:
    """Features of some images by their own typical patches."""
    with progress.busy(f"Comparing patches of {len(squares):,} images"):
        dictionary = learn(squares, seed)
        return features(squares, dictionary), dictionary


def save(path: Path, dictionary: Dictionary) -> None:
    """Write the arrays, and nothing that could be run, into an .npz file."""
    np.savez_compressed(path, **dictionary._asdict())


def load(path: Path) -> Dictionary:
    """What `save` wrote."""
    with np.load(path) as archive:
        return Dictionary(*(archive[name] for name in Dictionary._fields))


def _windows(images: np.ndarray) -> Any:
    """All patches, as a view: ..., down, across, PATCH, PATCH, 3."""
    views = np.lib.stride_tricks.sliding_window_view(images, (PATCH, PATCH), axis=(-3, -2))
    return np.moveaxis(views, -3, -1)


def _all(images: np.ndarray) -> np.ndarray:
    taken = _windows(images)[:, ::STRIDE, ::STRIDE].astype(np.float32)
    return taken.reshape(*taken.shape[:3], -1)


def _some(image: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    views = _windows(image)
    down, across = (rng.integers(0, size, count) for size in views.shape[:2])
    return views[down, across].reshape(count, -1).astype(np.float32)


def _levelled(patches: np.ndarray) -> np.ndarray:
    """Each patch with mean 0 and nearly variance 1: brightness and contrast taken away."""
    level = patches - patches.mean(axis=1, keepdims=True)
    return level / np.sqrt(level.var(axis=1, keepdims=True) + np.float32(CONTRAST))
