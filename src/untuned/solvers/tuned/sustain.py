"""SUSTAIN: as MRBO, with a randomly truncated Neumann series.

Khanduri, Zeng, Hong, Wai, Wang and Yang, "A near-optimal algorithm for stochastic bilevel
optimization via double-momentum". The two points of a step share the rows and the length p of
the series, which is uniform on 0..n-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info
from untuned.solvers.numerics.neumann import hia, truncation
from untuned.solvers.tuned.recursive import Recursive, State


@dataclass(frozen=True)
class SUSTAIN(Recursive):
    """Momentum by differences with a random Neumann series; parameters as in `Recursive`."""

    name: ClassVar[str] = "sustain"
    needs_uniform: ClassVar[bool] = True

    @property
    def inner_draws(self) -> int:
        """One batch for G and the cross product, p for the series."""
        return self.linear_steps

    @property
    def cost(self) -> Counts:
        """Evaluations per step, in the mean over p."""
        return Counts(2, 2, self.linear_steps - 1, 2)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Both directions, then y and x together."""
        rates = self.rates(o, state.t, state.y)
        n = self.linear_steps
        p = truncation(o.ops, batch.uniform, n)
        return self.move(
            o, state, batch, rates, lambda product, b: hia(o.ops, product, b, n, rates.v, p), p
        )
