"""Selectors that match a mean: iCaRL's herding, Grad Matching and GCR.

Gradients are those of the last layer, row i's being the outer product of its residual r_i and of
its features h_i with a one appended, so <grad_i, grad_j> = <r_i, r_j> (<h_i, h_j> + 1), and no
gradient is ever written out.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from untuned.coreset.baselines import Selection, class_quotas, herd, in_turns
from untuned.coreset.selectors.candidates import Candidates

PENALTY = 0.5  # of GCR's weights, as in its authors' release


def icarl(c: Candidates, size: int) -> Selection:
    """Per class, features of unit length whose mean follows the class mean; classes take turns."""
    unit = unit_rows(c.features)
    orders = [m[herd(unit[m], min(len(m), size), c.share[m])] for m in c.members()]
    return in_turns(orders, size), np.ones(size)


def grad_matching(c: Candidates, size: int) -> Selection:
    """Rows whose mean gradient, each of unit length, follows that of all; classes do not count."""
    residuals, features = c.residuals, _with_one(c.features)
    lengths = np.linalg.norm(residuals, axis=1) * np.linalg.norm(features, axis=1)
    residuals = residuals / np.where(lengths > 0, lengths, 1)[:, None]
    target = residuals.T @ (c.share[:, None] * features)
    squares = np.where(lengths > 0, 1.0, 0.0)
    total = np.zeros_like(target)
    chosen = np.empty(size, int)
    for k in range(size):
        gap = total - (k + 1) * target
        distance = squares + 2 * np.einsum("ij,ij->i", residuals @ gap, features)
        distance[chosen[:k]] = np.inf
        chosen[k] = np.argmin(distance)
        total += np.outer(residuals[chosen[k]], features[chosen[k]])
    return chosen, np.ones(size)


def gcr(c: Candidates, size: int) -> Selection:
    """Per class in proportion, weights of few gradients that sum to the gradient of all.

    Tiwari, Killamsetty, Iyer and Shenoy, "GCR: gradient coreset based replay buffer selection".
    Rows that come with weights, being chosen from before, count by them in the sum to be matched.
    Where the pursuit ends early, random rows fill up, as light as the lightest chosen one.
    """
    counts = np.bincount(c.label, minlength=len(c.classes))
    quotas = class_quotas(counts, size, c.rng)
    orders, weights = [], np.zeros(len(c))
    for place, quota in enumerate(quotas):
        m = np.flatnonzero(c.label == place)
        if quota == 0:
            continue
        residuals, features = c.residuals[m], _with_one(c.features[m])
        gram = (residuals @ residuals.T) * (features @ features.T)
        mass = c.share[m] / c.share[m].mean() if c.share[m].any() else np.ones(len(m))
        chosen, found = nonnegative_omp(gram, gram @ mass, quota)
        rest = c.rng.permutation(np.setdiff1d(np.arange(len(m)), chosen))[: quota - len(chosen)]
        weights[m[chosen]] = found
        weights[m[rest]] = found.min() if len(found) else 1.0
        heaviest_first = chosen[np.argsort(-found, kind="stable")]
        orders.append(m[np.concatenate([heaviest_first, rest])])
    order = in_turns(orders, size)
    return order, weights[order] / weights[order].max()


def nonnegative_omp(
    gram: np.ndarray, target: np.ndarray, most: int, penalty: float = PENALTY
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and weights w >= 0 that lower |sum of all - sum_j w_j grad_j|^2 + penalty |w|^2.

    The row of steepest descent joins, then all weights are the best nonnegative ones; a row whose
    weight falls to zero leaves. `target` are the products of every gradient with the sum to match.
    Ends early where no row would take a positive weight.
    """
    chosen = np.zeros(0, int)
    weight = np.zeros(0)
    tried = np.zeros(len(gram), bool)  # so that a row that left does not come again
    while len(chosen) < most:
        slope = np.where(tried, -np.inf, target - gram[:, chosen] @ weight)
        best = int(np.argmax(slope))
        if not slope[best] > 0:
            break
        tried[best] = True
        chosen = np.append(chosen, best)
        inside = gram[np.ix_(chosen, chosen)] + penalty * np.eye(len(chosen))
        weight = _nonnegative_solution(inside, target[chosen])
        chosen, weight = chosen[weight > 0], weight[weight > 0]
    return chosen, weight


def _nonnegative_solution(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """w >= 0 of least w' matrix w / 2 - target' w, for a positive definite matrix."""
    root = np.linalg.cholesky(matrix)
    return optimize.nnls(root.T, np.linalg.solve(root, target))[0]


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Rows of length one; rows of zeros stay."""
    X = np.asarray(X, float)  # squares of large numbers overflow in float32
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(lengths > 0, lengths, 1)


def _with_one(features: np.ndarray) -> np.ndarray:
    return np.column_stack([features, np.ones(len(features))])
