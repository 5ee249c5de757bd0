"""BSA: the first stochastic bilevel method, with a randomly truncated Neumann series.

Ghadimi and Wang, "Approximation methods for bilevel programming". Per step, at (x_t, y_t),

    v = n sigma (I - sigma grad_yy g)^p grad_y f,   p uniform on 0..n-1, fresh rows for every factor
    x_{t+1} = x_t - gamma (grad_x f - (grad_xy g) v)
    T times, fresh rows, at x_{t+1}:  y <- y - rho grad_y g

with rho and gamma falling as (t+1)^{-1/2}. The paper lets T grow with t; here it is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch, draw
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.numerics.neumann import descend, hia, truncation
from untuned.solvers.tuned.amigo import AmIGO
from untuned.solvers.tuned.base import report
from untuned.solvers.tuned.soba import State


@dataclass(frozen=True)
class BSA(AmIGO):
    """x first, by a random Neumann series, then y; parameters as in `Tuned`, and

    inner_steps, linear_steps : steps on y per step of x, and length n of the series.
    """

    name: ClassVar[str] = "bsa"
    exponents: ClassVar[tuple[float, float, float]] = (0.5, 0.0, 0.5)
    needs_uniform: ClassVar[bool] = True

    @property
    def inner_draws(self) -> int:
        """p batches for the series, one for the cross product, one per step on y."""
        return self.inner_steps + self.linear_steps

    @property
    def cost(self) -> Counts:
        """Evaluations per step, in the mean over p."""
        return Counts(1, self.inner_steps, (self.linear_steps - 1) / 2, 1)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """v from nothing, then x, then y."""
        ops, (x, y, _, t) = o.ops, state
        rates = self.rates(o, t, y)
        p = truncation(ops, batch.uniform, self.linear_steps)

        def rows(k: Scalar) -> Tree:
            return draw(ops, batch.inner, k)

        f = o.outer(x, y, batch.outer)
        v = hia(
            ops,
            lambda k, w: o.linear(x, y, rows(k)).hvp(w),
            f.grad_y,
            self.linear_steps,
            rates.v,
            p,
        )
        hypergrad = ops.sub(f.grad_x, o.linear(x, y, rows(p)).cross(v))
        x, h_norm = descend_x(o, rates.x, hypergrad, ops.norm(hypergrad), x)
        y, g_norm = descend(
            ops, lambda k, y: o.inner_grad(x, y, rows(p + 1 + k)), y, rates.y, self.inner_steps
        )
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=g_norm,
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=self.inner_steps,
            linear_steps=p,
            inner_drawn=self.inner_steps + p + 1,
            counts=Counts(1, self.inner_steps, p, 1),
        )
        return State(x, y, v, t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken before y moves."""
        return old.x, old.y, new.v
