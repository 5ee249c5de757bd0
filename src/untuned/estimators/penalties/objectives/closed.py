"""Models that solve their own g, whatever the strengths: f(x, y*(x)) as it stands.

With its gradient it is known where w and b are, and the solution v of their system for a gradient q
in w and b: d<q, (w, b)>/ds_j = -v_j w_j. Nothing is left to solve for, so `minimize` gets it as f,
and `Nothing` as g. How w, b and v are found is what the two kinds of models differ in:
closed_ridge.py and kernel_newton.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form import stacked
from untuned.estimators.penalties.objectives.objective import Models

MOST_ENTRIES = 2**23  # of all factors: 64 MB

Fit = tuple[np.ndarray, np.ndarray, Callable]  # w, b, and from a gradient in outputs to v


class Point(NamedTuple):
    """Strengths, and the models with them; `fit` holds until another point is looked at."""

    x: np.ndarray
    s: np.ndarray  # (features, vectors, columns)
    slope: np.ndarray  # of their logarithms in what x gives, (vectors, groups)
    fit: Fit
    z: np.ndarray  # outputs, (models, columns, rows)


class Closed(ABC):
    """f of the models of a plan, which solve their own g."""

    def __init__(self, models: Models):
        self.models, shares = models, models.shares
        self.X, self.t = models.table.X.astype(np.float64, copy=False), models.target.T
        self.owner = shares.mix.argmax(axis=1)  # the vector of each model
        self.weight = models.train[:, 0] * shares.total[:, None]  # (models, rows)
        self.rows = [np.flatnonzero(each) for each in self.weight]
        self.choosing = np.flatnonzero(models.valid.any(axis=(1, 2)))  # others only judge
        self._last: Point | None = None

    @abstractmethod
    def fit(self, s: np.ndarray) -> Fit:
        """The models with strengths s (features, vectors, columns)."""

    def at(self, x: np.ndarray) -> Point:
        """All that is known at x; the last one is kept, as judges ask for it too."""
        last, shares = self._last, self.models.shares
        if last is None or not np.array_equal(x, last.x):
            logarithms, slope = shares.bend(x[:, :1] + shares.free * x[:, 1:])
            s = np.exp(logarithms)[:, shares.group].swapaxes(0, 1)
            w, b, adjoint = self.fit(s)
            z = stacked.outputs(self.X, w, b)
            last = self._last = Point(x.copy(), s, slope, (w, b, adjoint), z)
        return last

    def _pull(self, at: Point, in_s: np.ndarray) -> np.ndarray:
        """In x, from gradients in the strengths of each model, (features, models, columns)."""
        shares, (vectors, groups) = self.models.shares, at.slope.shape
        of_vector = np.tensordot(shares.mix, in_s, axes=(0, 1)) * at.s.swapaxes(0, 1)
        place = groups * np.arange(vectors)[:, None, None] + shares.group
        sums = np.bincount(place.ravel(), of_vector.ravel(), vectors * groups)
        own = sums.reshape(vectors, groups) * at.slope
        return np.hstack([own.sum(axis=1, keepdims=True), shares.free * own])

    def model(self, x: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (features, models, columns) and intercepts (models, columns)."""
        return self.at(x).fit[:2]

    def seen(self, x: np.ndarray, _: np.ndarray) -> np.ndarray:
        """The outputs, (models, columns, rows)."""
        return self.at(x).z

    def judged(self, z: np.ndarray) -> np.ndarray:
        """The losses of rows that judge, (models, rows)."""
        return self.models.judged(z)

    def __call__(self, x: np.ndarray, _: np.ndarray) -> float:
        m = self.models
        return float(np.vdot(m.valid[:, 0], m.judged(self.at(x).z)) + m.doubts(x))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, its gradient in x, and that in y, on which it does not depend."""
        m, at = self.models, self.at(x)
        w, _, adjoint = at.fit
        v = adjoint(m.chosen_by(at.z))
        return self(x, y), self._pull(at, -v * w) + m.doubts_slope(x), np.zeros_like(y)


class Nothing:
    """g of a problem without one: |y|^2 / 2, which y = 0 solves."""

    def __call__(self, _: np.ndarray, y: np.ndarray) -> float:
        return 0.5 * float(y @ y)

    def grad_y(self, _: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        return y

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        return self(x, y), np.zeros_like(x), y

    def products(self, x: np.ndarray, _: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""

        def pull(v: np.ndarray, wrt: str) -> Any:
            nothing = np.zeros_like(x)
            return v if wrt == "y" else nothing if wrt == "x" else (nothing, v)

        return pull
