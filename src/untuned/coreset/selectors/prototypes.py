"""`auto`: rows that stand for their class, whatever will be learned after it.

Two models are fitted to the chosen rows and evaluated on all. With phi_i what a row is in a
kernel, S the chosen rows and every class counting alike:

    prototypes   y_c = the mean of the chosen rows of class c
                 f_c = |y_c - mean of class c|^2, in units of how far its rows are from their mean
    classifier   w = argmin sum over S of |w phi_i - t_i|^2 + ridge |w|^2, t_i the label as a vector
                 f_c = the mean over the class of |w phi_i - t_i|^2

f is the mean over classes of the sum of both. Both inner problems are quadratic, so what adding a
row does to f is known in closed form, for all rows at once. Rows are added one by one where f is
least: every prefix of the order is a coreset of its own, which a memory that shrinks needs.
Prototypes know nothing of other classes, the classifier of nothing else.

phi is that of the tangent kernel of the inputs plus that of the model's features. Features alone
know what tells this task's classes apart and have forgotten what will tell them from later ones.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import linalg

from untuned.coreset.baselines import Selection, equal_quotas
from untuned.coreset.selectors.candidates import Candidates, are_words
from untuned.coreset.selectors.kernels import tangent_kernel

MOST_ROWS = 2_000  # of a class that are looked at; more say little more about its mean
ROWS_PER_CHOSEN = 4  # looked at, at least
LANDMARKS = 1_000  # rows by which all are written as features, and that test a classifier
RIDGE = 0.1  # of the classifier, as a share of a row's squared length
JITTER = 1e-6  # of a kernel whose root is taken, as a share of its diagonal


def auto(c: Candidates, size: int) -> Selection:
    """Rows of each class in turn, the rarest class first, with equal weights."""
    members = sorted(c.members(), key=len)
    quotas = [quota for quota in equal_quotas([len(m) for m in members], size) if quota]
    seen = [looked_at(c, m, quota) for m, quota in zip(members, quotas, strict=False)]
    rows, ends = np.concatenate(seen), np.cumsum([0, *map(len, seen)])
    places = [np.arange(*pair) for pair in pairwise(ends)]
    mass = [mass_of(c.share[own]) for own in seen]
    landmarks = _landmarks(c, places)
    phi = _embedded(c, rows, landmarks)
    classifier = Classifier(phi, places, landmarks, np.concatenate(mass), size)
    prototypes = [Prototype(phi[m], own) for m, own in zip(places, mass, strict=True)]
    order: list[int] = []
    for turn in range(max(quotas)):
        for number, prototype in enumerate(prototypes):
            if turn < quotas[number]:
                chosen = int(np.argmin(prototype.losses() + classifier.losses(number)))
                prototype.add(chosen)
                order.append(places[number][chosen])
                classifier.add(order[-1])
    return rows[order], np.ones(size)


class Prototype:
    """The mean of the rows of a class that were added, compared with the mean of all."""

    def __init__(self, phi: np.ndarray, mass: np.ndarray):
        self.phi = phi - mass @ phi
        self.own = np.einsum("ij,ij->i", self.phi, self.phi)
        spread = mass @ self.own
        self.unit = spread if spread > JITTER else 1.0  # else all rows are one and the same
        self.total, self.count = np.zeros(phi.shape[1]), 0
        self.taken = np.zeros(len(phi), bool)

    def losses(self) -> np.ndarray:
        """The squared distance of the means with each row added; infinite for those that are."""
        distance = self.own + 2 * self.phi @ self.total + self.total @ self.total
        return np.where(self.taken, np.inf, distance / (self.count + 1) ** 2 / self.unit)

    def add(self, row: int) -> None:
        """Take a row into the mean."""
        self.total, self.count = self.total + self.phi[row], self.count + 1
        self.taken[row] = True


class Classifier:
    """Ridge regression of labels on the rows that were added, evaluated on rows of all classes.

    A row that is added changes what is left to explain along its covariance with the others given
    the rows before it, so that nothing is ever fitted anew.
    """

    def __init__(
        self, phi: np.ndarray, places: list[np.ndarray], evaluated: np.ndarray, mass: np.ndarray,
        most: int,
    ):  # fmt: skip
        self.phi, self.places, self.evaluated = phi, places, evaluated
        self.wrong = _unit_labels(places)  # what is left to explain of each row's label
        self.own = np.einsum("ij,ij->i", phi, phi)  # variances given the rows added
        self.ridge = RIDGE * float(self.own.mean())
        weight = np.zeros(len(phi))
        for m in places:  # those of each class count for one
            inside = evaluated[np.isin(evaluated, m)]
            weight[inside] = mass_of(mass[inside])
        self.weight = weight[evaluated][:, None]
        self.moves, self.count = np.empty((most, len(phi))), 0
        # Their covariances with the rows of each class, and how many rows they know of.
        self.covariances = [phi[evaluated] @ phi[m].T for m in places]
        self.known = [0] * len(places)

    def losses(self, number: int) -> np.ndarray:
        """How the squared error would change with each row of a class added."""
        rows, covariance = self.places[number], self._covariance(number)
        step = self.wrong[rows] / (self.own[rows] + self.ridge)[:, None]
        left = self.weight * self.wrong[self.evaluated]
        along = np.einsum("it,it->i", covariance.T @ left, step)
        squares = np.square(covariance).T @ self.weight[:, 0]
        return squares * np.einsum("it,it->i", step, step) - 2 * along

    def _covariance(self, number: int) -> np.ndarray:
        """Brought up to date when it is needed: many rows at once take less time."""
        new = self.moves[self.known[number] : self.count]
        found = self.covariances[number]
        found -= new[:, self.evaluated].T @ new[:, self.places[number]]
        self.known[number] = self.count
        return found

    def add(self, row: int) -> None:
        """Fit the row as well."""
        before = self.moves[: self.count]
        covariance = self.phi @ self.phi[row] - before.T @ before[:, row]
        root = np.sqrt(max(covariance[row], 0) + self.ridge)
        move = covariance / root
        self.moves[self.count] = move
        self.count += 1
        self.wrong = self.wrong - np.outer(move, self.wrong[row] / root)
        self.own = self.own - move**2


def _unit_labels(places: list[np.ndarray]) -> np.ndarray:
    """Each row's class as a vector of length one; they sum to zero. Zero where there is but one."""
    count = len(places)
    label = np.repeat(np.arange(count), [len(m) for m in places])
    centred = np.eye(count) - 1 / count
    return centred[label] / np.sqrt(1 - 1 / count) if count > 1 else np.zeros((len(label), 1))


def _landmarks(c: Candidates, places: list[np.ndarray]) -> np.ndarray:
    """All rows, or an equal number of each class where there are many."""
    counts = [len(m) for m in places]
    if sum(counts) <= LANDMARKS:
        return np.arange(sum(counts))
    quotas = equal_quotas(counts, max(LANDMARKS, len(places)))
    drawn = [c.rng.choice(m, quota, replace=False) for m, quota in zip(places, quotas, strict=True)]
    return np.concatenate(drawn)


def _embedded(c: Candidates, rows: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    """Features whose products are the kernel, exactly so with landmarks (Nystroem)."""
    inside = kernel_of(c, rows[landmarks])
    jitter = JITTER * float(np.diagonal(inside).mean())
    root = np.linalg.cholesky(inside + jitter * np.eye(len(inside)))
    if len(landmarks) == len(rows):
        return root
    return linalg.solve_triangular(root, kernel_of(c, rows[landmarks], rows), lower=True).T


def mass_of(share: np.ndarray) -> np.ndarray:
    """How much rows count, as shares of one; all alike where none does."""
    return share / share.sum() if share.any() else np.full(len(share), 1 / len(share))


def looked_at(c: Candidates, members: np.ndarray, quota: int) -> np.ndarray:
    """The rows of a class that a choice of `quota` is made from: all, or a random part of many."""
    most = max(MOST_ROWS, ROWS_PER_CHOSEN * quota)
    return members if len(members) <= most else c.rng.choice(members, most, replace=False)


def kernel_of(c: Candidates, rows: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """The kernel of inputs, plus that of the model's features; between rows and `others`.

    Numbers of words have no direction, so there it is that of features alone.
    """
    of = lambda X: tangent_kernel(X[rows], None if others is None else X[others])
    if c.model is None:
        return of(c.flat)
    return of(c.features) if are_words(c.X, c.model) else of(c.flat) + of(c.features)


def herd_towards(kernel: np.ndarray, towards: np.ndarray, count: int) -> np.ndarray:
    """Rows in the order that brings the mean of those so far nearest to a mean.

    `towards` are the products of every row with the mean to be met.
    """
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
