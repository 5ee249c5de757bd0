"""From x, logarithms of penalties, to the penalty of each coefficient; and back for gradients.

x has a row (c, d_1, ..., d_G) per vector of penalties: group k has the logarithm c + d_k; or c
alone, for one group. It bends smoothly towards limits: below LEAST_PER_ROW for each row a
standardised feature is as good as free, and above MOST_PER_ROW it is as good as gone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

LEAST_PER_ROW, MOST_PER_ROW = 1e-7, 100.0
TINY = 1e-300  # keeps the logarithm of a penalty of zero finite


class Bend(NamedTuple):
    """From x to the logarithm of a penalty within limits, and back."""

    limits: np.ndarray  # (2,), logarithms of the least and the largest penalty

    @classmethod
    def of_rows(cls, weight: np.ndarray) -> Bend:
        """For rows of these weights."""
        return cls(np.log(np.array([LEAST_PER_ROW, MOST_PER_ROW]) * weight.sum()))

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logarithms, and their derivatives in x."""
        bent = np.tanh((x - self._middle) / self._half)
        return self._middle + self._half * bent, 1 - bent**2

    def inverse(self, logarithm: Any) -> Any:
        """The x of a logarithm; of a limit, one from which there is a way back."""
        share = np.clip((logarithm - self._middle) / self._half, -0.99, 0.99)
        return self._middle + self._half * np.arctanh(share)

    @property
    def _middle(self) -> np.floating:
        return (self.limits[0] + self.limits[1]) / 2

    @property
    def _half(self) -> np.floating:
        return (self.limits[1] - self.limits[0]) / 2


class Penalties(NamedTuple):
    """Which entries of x are whose penalties."""

    owner: np.ndarray  # (models,), the vector of each model
    vectors: int
    group: np.ndarray  # (features, columns)
    bend: Bend

    def logarithms(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of each vector's groups, (vectors, groups), and their derivatives in x."""
        return self.bend(x[:, :1] + x[:, 1:] if x.shape[1] > 1 else x)

    def at(self, x: np.ndarray) -> np.ndarray:
        """Those of coefficients, (features, vectors, columns), or 1 along an axis where they repeat
        themselves: there may be very many coefficients."""
        return np.exp(self.logarithms(x)[0])[:, self.group[self._once]].swapaxes(0, 1)

    def pull(self, x: np.ndarray, in_log: np.ndarray) -> np.ndarray:
        """The gradient in x, from those in the logarithms of `at`, (features, models, columns)."""
        slope = self.logarithms(x)[1]
        for axis, part in ((0, self._once[0]), (2, self._once[1])):
            if part != slice(None):
                in_log = in_log.sum(axis=axis, keepdims=True)
        groups = slope.shape[1]
        place = groups * self.owner[:, None] + self.group[self._once][:, None]
        sums = np.bincount(place.ravel(), in_log.ravel(), slope.size).reshape(slope.shape) * slope
        return np.hstack([sums.sum(axis=1, keepdims=True), sums]) if x.shape[1] > 1 else sums

    @property
    def _once(self) -> tuple[slice, slice]:
        """Of `group` all that differs: along an axis that it repeats itself on, the first alone."""
        features, columns = (slice(None if step else 1) for step in self.group.strides)
        return features, columns


def each(penalties: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The penalties (features, 1, columns) of groups, each kept once where they repeat."""
    if np.ptp(penalties) == 0:
        return np.full((1, 1, 1), penalties[0])
    once = tuple(slice(None if step else 1) for step in group.strides)
    return np.asarray(penalties[group[once]][:, None])


def doubt(x: np.ndarray, price: np.ndarray) -> tuple[float, np.ndarray]:
    """What differences between groups cost, and the gradient: large ones are unlikely.

    Minus the logarithm of half-Cauchy densities of exp(-d_k / 2) in logarithms, as in the horseshoe
    prior (Carvalho, Polson and Scott). Those are flat enough to let a few groups go far. `price` is
    1 / n for the weight n of a vector's validation rows: the more rows, the less it counts.
    """
    half, slope = 0.5 * x[:, 1:], np.zeros_like(x)
    differ = (np.logaddexp(half, -half) - np.log(2.0)).sum(axis=1)
    slope[:, 1:] = 0.5 * price[:, None] * np.tanh(half)
    return float(price @ differ), slope


def two_digits(logarithms: np.ndarray) -> np.ndarray:
    """Penalties of two digits: data resolve no more, and no rounding of a run shows in them."""
    s = np.exp(logarithms)
    power = np.floor(np.log10(np.maximum(s, TINY))).astype(int) - 1
    grown, shrunk = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
    # Whole numbers and one division: the nearest float to what is shown.
    return np.rint(s / grown * shrunk) * grown / shrunk
