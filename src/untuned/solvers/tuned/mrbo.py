"""MRBO: momentum by differences for y and x, v by a Neumann series.

Yang, Ji and Liang, "Provably faster algorithms for bilevel optimization". With G = grad_y g and
D = grad_x f - (grad_xy g) v at the new and the previous point on the same rows (`recursive.py`),

    u <- G + (1 - eta_t) (u - G'),   d <- D + (1 - eta_t) (d - D')
    y_{t+1} = y_t - rho u,           x_{t+1} = x_t - gamma d        simultaneous

with rho and gamma falling as (t+1)^{-1/3}, eta_t as (t+1)^{-2/3}: the paper's powers, with two
constants in place of its five. The paper draws the rows of the cross product apart from those of G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info
from untuned.solvers.numerics.neumann import shia
from untuned.solvers.tuned.recursive import Recursive, State


@dataclass(frozen=True)
class MRBO(Recursive):
    """Momentum by differences with a full Neumann series; parameters as in `Recursive`."""

    name: ClassVar[str] = "mrbo"

    @property
    def inner_draws(self) -> int:
        """One batch for G and the cross product, one per product of the series."""
        return 1 + self.linear_steps

    @property
    def cost(self) -> Counts:
        """Evaluations per step."""
        return Counts(2, 2, 2 * self.linear_steps, 2)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Both directions, then y and x together."""
        rates = self.rates(o, state.t, state.y)
        n = self.linear_steps
        return self.move(
            o, state, batch, rates, lambda product, b: shia(o.ops, product, b, n, rates.v), n
        )
