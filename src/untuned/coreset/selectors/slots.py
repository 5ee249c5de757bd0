"""The memory that will be drawn, as a bilevel problem: one row for each of its slots.

The rows of a class are dealt at random to as many slots as the class may keep. x_i is the
probability that row i is drawn for its slot, so x lies in a product of simplices. With phi_i what a
row is in the kernel of `auto`, less the mean of its class and in units of its class's spread:

    g(x, y) = sum over classes of |y_c - sum_i x_i phi_i|^2 / 2      y*: the sum that is expected
    f(x, y) = sum over classes of |y_c|^2
              + sum_i x_i |phi_i|^2 - sum over slots of |sum_i x_i phi_i|^2

At y* this f is exactly E |sum of the rows drawn|^2, K^2 times the squared distance of their mean
from the mean of the class: the expected loss of the prototypes of a memory that is drawn by x. As
slots are drawn independently it is linear in each slot's x. So its least values are corners, which
are rows, and the start, where it is uniform sampling of equal numbers per class, is not one.

Weights on one simplex have neither property: 1/n is already best for a loss on all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.coreset.baselines import Selection, equal_quotas, in_turns
from untuned.coreset.selectors.candidates import Candidates
from untuned.coreset.selectors.prototypes import herd_towards, kernel_of, looked_at, mass_of
from untuned.ops import numpy_roots
from untuned.run import minimize
from untuned.solution.regions import simplex

JITTER = 1e-6  # of a kernel whose root is taken, as a share of its diagonal


class Deal(NamedTuple):
    """The rows of one class in its slots: (slots, places), and what they are."""

    rows: np.ndarray  # row numbers; places that are empty repeat the first
    filled: np.ndarray  # which places are not empty
    phi: np.ndarray  # (slots, places, features), zero where empty

    @property
    def size(self) -> int:
        """How many features."""
        return self.phi.shape[2]


class Slots:
    """What f and g share: the deals of all classes. x is (slots, places), y one long vector."""

    def __init__(self, deals: list[Deal]):
        self.deals = deals
        self.places = max(deal.rows.shape[1] for deal in deals)
        self.slots = np.cumsum([0, *(len(deal.rows) for deal in deals)])
        self.ends = np.cumsum([0, *(deal.size for deal in deals)])
        self.rows, self.filled = (
            np.concatenate([self._padded(part) for part in parts])
            for parts in zip(*((deal.rows, deal.filled) for deal in deals), strict=True)
        )
        squares = [np.einsum("kpf,kpf->kp", deal.phi, deal.phi) for deal in deals]
        self.squares = np.concatenate([self._padded(part) for part in squares])
        self._of: np.ndarray | None = None

    def _padded(self, part: np.ndarray) -> np.ndarray:
        return np.pad(part, ((0, 0), (0, self.places - part.shape[1])))

    def parts(self, x: np.ndarray) -> list[tuple[Deal, np.ndarray]]:
        """Each class with its part of x."""
        return [
            (deal, x[start:stop, : deal.rows.shape[1]])
            for deal, start, stop in zip(self.deals, self.slots, self.slots[1:], strict=False)
        ]

    def means(self, x: np.ndarray) -> list[np.ndarray]:
        """Of every slot, (slots, features) per class."""
        if self._of is None or not np.array_equal(x, self._of):
            self._of = x
            self._means = [np.matmul(own[:, None], deal.phi)[:, 0] for deal, own in self.parts(x)]
        return self._means

    def sums(self, x: np.ndarray) -> np.ndarray:
        """What y should be."""
        return np.concatenate([means.sum(axis=0) for means in self.means(x)])

    def along(self, vectors: list[np.ndarray]) -> np.ndarray:
        """<phi_i, vector> of every row, the vectors being one per class or one per slot."""
        found = np.zeros(self.rows.shape)
        for (deal, own), vector in zip(self.parts(found), vectors, strict=True):
            own[:] = np.matmul(deal.phi, vector[..., None])[..., 0]
        return found

    def by_class(self, y: np.ndarray) -> list[np.ndarray]:
        """y as one vector per class."""
        return np.split(y, self.ends[1:-1])

    def project(self, x: np.ndarray) -> np.ndarray:
        """The nearest probabilities, slot by slot."""
        most = np.where(self.filled, x, -np.inf).max(axis=1, keepdims=True)
        # An entry two below the largest is projected to zero.
        return simplex(numpy_roots, np.where(self.filled, x, most - 2))

    def start(self, share: np.ndarray) -> np.ndarray:
        """Uniform sampling; rows that count for more are likelier by as much."""
        weight = np.where(self.filled, share[self.rows], 0)
        weight = np.where(weight.sum(axis=1, keepdims=True) > 0, weight, self.filled)
        return weight / weight.sum(axis=1, keepdims=True)

    def over_rows(self, x: np.ndarray, count: int) -> np.ndarray:
        """x as weights of all `count` candidates that sum to one."""
        weights = np.zeros(count)
        weights[self.rows[self.filled]] = x[self.filled] / len(x)
        return weights

    def in_slots(self, weights: np.ndarray) -> np.ndarray:
        """Weights of all candidates as x."""
        return np.where(self.filled, weights[self.rows] * len(self.rows), 0)


class Inner:
    """g: y is drawn to the sums that are expected."""

    def __init__(self, slots: Slots):
        self.slots = slots

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        gap = self.grad_y(x, y)
        return 0.5 * float(gap @ gap)

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        return y - self.slots.sums(x)

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g and its gradients."""
        gap = self.grad_y(x, y)
        return 0.5 * float(gap @ gap), self._in_x(gap), gap

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""

        def pull(v: np.ndarray, wrt: str) -> Any:
            if wrt == "y":
                return v
            return self._in_x(v) if wrt == "x" else (self._in_x(v), v)

        return pull

    def _in_x(self, v: np.ndarray) -> np.ndarray:
        return -self.slots.along(self.slots.by_class(v))


class Outer:
    """f: the expected loss of the memory that is drawn."""

    def __init__(self, slots: Slots):
        self.slots = slots
        # A slot's x sums to one, so a constant less per slot changes nothing along the set; with
        # it the first gradient has no part that the projection would take away again.
        self.slope = np.where(slots.filled, slots.squares - 1, 0)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        of_slots = sum(float(np.vdot(means, means)) for means in self.slots.means(x))
        return float(y @ y + np.vdot(x, self.slope) - of_slots + len(x))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f and its gradients."""
        in_x = self.slope - 2 * self.slots.along(self.slots.means(x))
        return self(x, y), in_x, 2 * y


def deal(c: Candidates, size: int) -> Slots:
    """The rows of every class in slots, as many as it may keep; the rarest class first."""
    members = sorted(c.members(), key=len)
    deals = []
    for m, count in zip(members, equal_quotas([len(m) for m in members], size), strict=True):
        if count == 0:
            continue
        seen = c.rng.permutation(looked_at(c, m, count))
        places = -(-len(seen) // count)
        number = np.arange(count * places).reshape(places, count).T
        filled = number < len(seen)
        phi = spread_units(kernel_of(c, seen), c.share[seen])
        at = np.where(filled, number, 0)
        deals.append(Deal(seen[at], filled, np.where(filled[..., None], phi[at], 0)))
    return Slots(deals)


def spread_units(kernel: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Features of a kernel, less their mean, with a mean squared length of one."""
    mass = mass_of(share)
    towards = kernel @ mass
    centred = kernel - towards[:, None] - towards + mass @ towards
    scale = float(mass @ np.diagonal(centred))
    if not scale > JITTER:  # all rows are one and the same
        return np.zeros((len(kernel), 1))
    return np.linalg.cholesky(centred / scale + JITTER * np.eye(len(kernel)))


def solved(slots: Slots, c: Candidates, method: Any, steps: int) -> np.ndarray:
    """x after `steps` of a method of `minimize`, from uniform sampling and its sums."""
    x0 = slots.start(c.share)
    result = minimize(
        Outer(slots), Inner(slots), x0, slots.sums(x0), method=method, max_steps=steps,
        constraint=slots.project, eval_every=steps,
    )  # fmt: skip
    last = result.state.x  # a method that diverged has none, so its best one is used
    return last if np.isfinite(last).all() else np.asarray(result.x)


def pick(slots: Slots, weights: np.ndarray) -> Selection:
    """One row per slot, so that the loss is at most the one expected; the classes take turns.

    Slot by slot, the row with which the expected loss is least while the others are still drawn:
    f is linear in a slot's x, so that this never raises it (the method of conditional
    expectations). Each class in the order of herding: a prefix, which is what a memory that
    shrinks keeps, has a good mean as well.
    """
    orders = []
    for own, x in slots.parts(slots.in_slots(weights)):
        means = np.matmul(x[:, None], own.phi)[:, 0]
        total = means.sum(axis=0)
        place = np.empty(len(x), int)
        for slot, phi in enumerate(own.phi):
            total -= means[slot]
            loss = 2 * phi @ total + np.einsum("pf,pf->p", phi, phi)
            place[slot] = np.argmin(np.where(own.filled[slot], loss, np.inf))
            total += phi[place[slot]]
        at = np.arange(len(x)), place
        order = herd_towards(own.phi[at] @ own.phi[at].T, np.zeros(len(x)), len(x))
        orders.append(own.rows[at][order])
    size = len(slots.rows)
    return in_turns(orders, size), np.ones(size)
