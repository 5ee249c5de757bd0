"""From x, logarithms of strengths, to each model's strengths and to its coordinates; and back.

**Strengths have limits**, towards which x bends smoothly: below LOWEST a standardised feature is
as good as free, and above MOST_PER_ROW for each row it is as good as gone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.penalties.objectives.scaling import BLOCK, Scaling, Turn

LOWEST, MOST_PER_ROW = 1e-4, 100.0
TINY = 1e-300  # keeps the logarithm of a strength of zero finite


class Bend(NamedTuple):
    """From x to the logarithm of a strength within limits, and back."""

    limits: np.ndarray  # (2,), logarithms of the least and the largest strength

    @classmethod
    def of_rows(cls, weight: np.ndarray) -> Bend:
        """For rows of these weights."""
        return cls(np.log([LOWEST, MOST_PER_ROW * weight.sum()]))

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logarithms, and their derivatives in x."""
        middle, half = self._middle, self._half
        bent = np.tanh((x - middle) / half)
        return middle + half * bent, 1 - bent**2

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


class Shares(NamedTuple):
    """Which entries of x are whose strengths, and how models are scaled."""

    mix: np.ndarray  # (models, vectors), shares
    group: np.ndarray  # (features, columns)
    total: np.ndarray  # (models,), N
    bend: Bend
    free: float  # 1 where groups may differ, else 0
    scaling: Scaling

    def logarithms(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each model's strengths: (models, groups), and (models, 1) without differences."""
        (own, _), (common, _) = self._bent(x)
        return own, common

    @property
    def once(self) -> tuple[slice, slice]:
        """Of `group` all that differs: along an axis that it repeats itself on, the first alone."""
        features, columns = (slice(None if step else 1) for step in self.group.strides)
        return features, columns

    def at(self, x: np.ndarray) -> Strengths:
        """All that x decides."""
        (own, own_slope), (common, common_slope) = self._bent(x)
        if self.free:
            s = np.exp(own)[:, self.group[self.once]].swapaxes(0, 1)
        else:  # the same for all coefficients of a model: no array of their size
            s = np.repeat(np.exp(common)[None], self.group.shape[1], axis=2)
        turn = Turn.make(s, np.exp(common[:, 0]), self.total, self.scaling)
        if self.free:
            s = np.broadcast_to(s, (len(self.group), len(own), self.group.shape[1]))
        return Strengths(self, s, np.exp(common), turn, own_slope, common_slope)

    def fixed(self, s: np.ndarray) -> Strengths:
        """Strengths (features, columns) that every model has, whatever x; nothing to pull on."""
        dtype = self.total.dtype
        t = np.full((len(self.total), 1), np.exp(np.log(s).mean()), dtype)
        once = tuple(slice(None if step else 1) for step in s.strides)
        s = np.repeat(s[once][:, None].astype(dtype), len(self.total), axis=1)
        turn = Turn.make(s, t[:, 0], self.total, self.scaling)
        s = np.broadcast_to(s, (len(self.group), len(self.total), self.group.shape[1]))
        return Strengths(self, s, t, turn, np.zeros((0, 0)), np.zeros((0, 0)))

    def _bent(self, x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Logarithms and slopes of own and common strengths."""
        common = self.mix @ x[:, :1]
        own = common + self.free * (self.mix @ x[:, 1:])
        return [self.bend(own), self.bend(common)]


class Strengths(NamedTuple):
    """The strengths at one x, and the map T from u to coefficients that they set."""

    shares: Shares
    s: np.ndarray  # (features, models, columns), or (1, models, columns) where all are alike
    t: np.ndarray  # (models, 1), where groups do not differ
    turn: Turn
    own_slope: np.ndarray  # of logarithms in what x gives, (models, groups)
    common_slope: np.ndarray  # (models, 1)

    def pull(self, in_w: list[tuple[np.ndarray, np.ndarray]], in_s: np.ndarray) -> np.ndarray:
        """The gradient in x of <in_s, s> plus the sum of <q, T(x) u> over pairs (u, q).

        Where features do not mix, some are gone through after others, as there may be very many.
        """
        features = len(self.turn.spread)
        if len(self.turn.basis) or features <= BLOCK:
            return self._pull(in_w, in_s)
        found: Any = 0  # not an array, which would widen the sum
        for start in range(0, features, BLOCK):
            part = slice(start, start + BLOCK)
            some = self._replace(
                shares=self.shares._replace(group=self.shares.group[part]),
                s=_some(self.s, part),
                turn=self.turn.some(part),
            )
            found = found + some._pull([(u[part], q[part]) for u, q in in_w], _some(in_s, part))
        return found

    def _pull(self, in_w: list[tuple[np.ndarray, np.ndarray]], in_s: np.ndarray) -> np.ndarray:
        turn, k, N = self.turn, self.shares.scaling.curvature, self.shares.total[:, None]
        if not self.shares.free:
            return self._pull_together(in_w, in_s)
        # In place: there may be very many coefficients.
        qw = np.zeros(self.s.shape, self.s.dtype)
        for u, q in in_w:
            part = turn.forth(u)
            part *= q
            qw += part
        # By logarithms of s and t: E falls by half of (s/N) / (k + s/N), and grows likewise with t,
        # with which the first factor, (k Lambda + t/N)^(-1/2), falls.
        grows = np.einsum("jkc,kc->k", qw, 0.5 / (k * N + self.t)) - self._falls(in_w)
        in_common = self.t * grows[:, None] * self.common_slope
        qw *= -0.5
        qw /= k * N + self.s
        qw += in_s
        qw *= self.s
        in_own = self._by_group(qw) * self.own_slope
        mix, free = self.shares.mix, self.shares.free
        in_vectors = mix.T @ np.hstack([in_own.sum(axis=1, keepdims=True) + in_common, in_own])
        in_vectors[:, 1:] *= free
        return in_vectors.astype(self.s.dtype, copy=False)

    def _pull_together(
        self, in_w: list[tuple[np.ndarray, np.ndarray]], in_s: np.ndarray
    ) -> np.ndarray:
        """`pull` where groups do not differ: E is 1, and only the first factor follows x."""
        in_t = in_s.sum(axis=(0, 2)) - self._falls(in_w)
        in_common = self.t * in_t[:, None] * self.common_slope
        nothing = np.zeros_like(self.own_slope)
        in_vectors = self.shares.mix.T @ np.hstack([in_common, nothing])
        return in_vectors.astype(self.s.dtype, copy=False)

    def _falls(self, in_w: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """By how much the sum of <q, T u> falls with t of each model, by T's first factor."""
        falls = np.zeros(len(self.shares.total))
        for u, q in in_w:
            by_factor = self.turn.back(q)
            by_factor *= u
            by_factor /= self.turn.root() ** 2
            falls += 0.5 * by_factor.sum(axis=(0, 2)) / self.shares.total
        return falls

    def _by_group(self, values: np.ndarray) -> np.ndarray:
        """Sums over the coefficients of each group: (models, groups)."""
        models, groups = self.own_slope.shape
        group, once = self.shares.group, self.shares.once
        if once[0] != slice(None):
            values = values.sum(axis=0, keepdims=True)
        if once[1] != slice(None):
            values = values.sum(axis=2, keepdims=True)
        place = groups * np.arange(models)[:, None] + group[once][:, None]
        sums = np.bincount(place.ravel(), values.ravel(), models * groups)
        return sums.reshape(models, groups)


def _some(values: np.ndarray, part: slice) -> np.ndarray:
    """Of some features, or what is the same for all."""
    return values if len(values) == 1 else values[part]


def two_digits(logarithms: np.ndarray) -> np.ndarray:
    """Strengths of two digits: data resolve no more, and no rounding of a run shows in them."""
    s = np.exp(logarithms)
    power = np.floor(np.log10(np.maximum(s, TINY))).astype(int) - 1
    grown, shrunk = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
    # Whole numbers and one division: the nearest float to what is shown.
    return np.rint(s / grown * shrunk) * grown / shrunk
