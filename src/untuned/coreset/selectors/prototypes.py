"""`auto`: rows that stand for their class, whatever will be learned after it.

The bilevel problem with the model that iCaRL classifies by, a prototype per class:

    g(lambda, y) = sum_i lambda_i |phi_i - y_class(i)|^2        y*: the mean of the chosen rows
    f(y)         = sum over classes of the mean over all of its rows of |phi_i - y_class|^2

Every class counts equally and gets an equal share of the rows, however rare it is. Both levels are
quadratic, so y* and the hypergradient are known in closed form, and rows are added one by one
where f falls most: kernel herding. So every prefix of the order is a coreset of its own, which a
memory that shrinks needs.

phi is that of the tangent kernel of the inputs plus that of the model's features. Features alone
know what tells this task's classes apart and have forgotten what will tell them from later ones.
"""

from __future__ import annotations

import numpy as np

from untuned.coreset.baselines import Selection
from untuned.coreset.selectors.candidates import Candidates
from untuned.coreset.selectors.kernels import tangent_kernel
from untuned.coreset.selectors.matching import in_turns

MOST_ROWS = 2_000  # of a class that are looked at; more say little more about its mean
ROWS_PER_CHOSEN = 4  # looked at, at least


def auto(c: Candidates, size: int) -> Selection:
    """Rows of each class in turn, the rarest class first, with equal weights."""
    orders = []
    for m in sorted(c.members(), key=len):
        quota = min(len(m), size)
        seen = looked_at(c, m, quota)
        orders.append(seen[kernel_herd(kernel_of(c, seen), c.share[seen], quota)])
    return in_turns(orders, size), np.ones(size)


def looked_at(c: Candidates, members: np.ndarray, quota: int) -> np.ndarray:
    """The rows of a class that a choice of `quota` is made from: all, or a random part of many."""
    most = max(MOST_ROWS, ROWS_PER_CHOSEN * quota)
    return members if len(members) <= most else c.rng.choice(members, most, replace=False)


def kernel_of(c: Candidates, rows: np.ndarray) -> np.ndarray:
    """The kernel of inputs, plus that of the model's features."""
    kernel = tangent_kernel(c.flat[rows])
    if c.model is not None:
        kernel += tangent_kernel(c.features[rows])
    return kernel


def kernel_herd(kernel: np.ndarray, share: np.ndarray, count: int) -> np.ndarray:
    """Rows in the order that brings the mean of those so far nearest to the mean of all."""
    mass = share / share.sum() if share.any() else np.full(len(kernel), 1 / len(kernel))
    return herd_towards(kernel, kernel @ mass, count)


def herd_towards(kernel: np.ndarray, towards: np.ndarray, count: int) -> np.ndarray:
    """The same, `towards` being the products of every row with the mean to be met."""
    own = np.diagonal(kernel)
    with_chosen = np.zeros(len(kernel))
    chosen = np.empty(count, int)
    for k in range(count):
        # |sum of chosen + phi_i - (k + 1) mean|^2, up to a constant.
        distance = own + 2 * with_chosen - 2 * (k + 1) * towards
        distance[chosen[:k]] = np.inf
        chosen[k] = np.argmin(distance)
        with_chosen += kernel[:, chosen[k]]
    return chosen
