"""A kernel that stands for a network nobody has trained: the neural tangent kernel, in closed form.

The network is infinitely wide, of dense layers with ReLU (Cho and Saul's arc-cosine kernels; Jacot,
Gabriel and Hongler). Only the direction of a row counts, so the depth is all there is to choose.
"""

from __future__ import annotations

import numpy as np

from untuned.coreset.selectors.matching import unit_rows

HIDDEN_LAYERS = 2


def tangent_kernel(X: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """The kernel between rows of X and `others` (X itself if None); 1 on a row with itself."""
    left = unit_rows(X)
    right = left if others is None else unit_rows(others)
    cosine = np.clip(left @ right.T, -1, 1)
    tangent = cosine.copy()
    for _ in range(HIDDEN_LAYERS):
        angle = np.arccos(cosine)
        passed = (np.pi - angle) / np.pi  # how often both rows pass a ReLU
        cosine = np.clip(np.sqrt(np.maximum(1 - cosine**2, 0)) / np.pi + passed * cosine, -1, 1)
        tangent = cosine + passed * tangent
    return tangent / (HIDDEN_LAYERS + 1)
