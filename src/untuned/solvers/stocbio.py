"""StocBiO: inner steps from where y was, then a Neumann series for v.

Ji, Yang and Liang, "Bilevel optimization: convergence analysis and enhanced design". Per step,

    T times, fresh rows:  y <- y - rho grad_y g
    v = sigma sum_{q=0}^{n} (I - sigma grad_yy g)^q grad_y f,   fresh rows for every factor
    x <- x - gamma (grad_x f - (grad_xy g) v)

with constant steps. The paper lets the Hessian batches shrink geometrically; here they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.batches import Batch, draw
from untuned.derivatives import Oracles
from untuned.ops import Scalar, Tree
from untuned.solvers.amigo import AmIGO
from untuned.solvers.base import Info, descend_x
from untuned.solvers.descent import descend
from untuned.solvers.neumann import shia
from untuned.solvers.soba import State
from untuned.solvers.tuned import report


@dataclass(frozen=True)
class StocBiO(AmIGO):
    """Warm-started y, v by a Neumann series; parameters as in `Tuned`, and

    inner_steps, linear_steps : steps on y and products of the series per step of x.
    """

    name: ClassVar[str] = "stocbio"

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, then v from nothing, then x."""
        ops, (x, y, _, t) = o.ops, state
        rates = self.rates(o, t, y)

        def rows(k: Scalar) -> Tree:
            return draw(ops, batch.inner, k)

        y, g_norm = descend(
            ops, lambda k, y: o.inner_grad(x, y, rows(k)), y, rates.y, self.inner_steps
        )
        f = o.outer(x, y, batch.outer)
        v = shia(
            ops,
            lambda k, w: o.linear(x, y, rows(self.inner_steps + k)).hvp(w),
            f.grad_y,
            self.linear_steps,
            rates.v,
        )
        hypergrad = ops.sub(f.grad_x, o.linear(x, y, rows(self.inner_draws - 1)).cross(v))
        x, h_norm = descend_x(o, rates.x, hypergrad, ops.norm(hypergrad), x)
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=g_norm,
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=self.inner_steps,
            linear_steps=self.linear_steps,
            inner_drawn=self.inner_draws,
            counts=self.cost,
        )
        return State(x, y, v, t + 1), info
