"""TTSA: two time scales, one step on y and one on x.

Hong, Wai, Wang and Yang, "A two-timescale stochastic algorithm framework for bilevel
optimization". Per step, with one batch B of inner rows,

    y_{t+1} = y_t - rho grad_y g(x_t, y_t; B)
    v = n sigma (I - sigma grad_yy g)^p grad_y f,  at y_{t+1}, p uniform on 0..n-1, fresh rows
    x_{t+1} = x_t - gamma (grad_x f - (grad_xy g(x_t, y_{t+1}; B)) v)

with rho falling as (t+1)^{-2/5} and gamma as (t+1)^{-3/5}. The paper draws anew for the cross
product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch, draw
from untuned.ops import Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count
from untuned.solvers.numerics.neumann import hia, truncation
from untuned.solvers.tuned.base import Tuned, report
from untuned.solvers.tuned.soba import State


@dataclass(frozen=True)
class TTSA(Tuned):
    """Two time scales; parameters as in `Tuned`, and linear_steps, the length n of the series."""

    linear_steps: int = 10

    name: ClassVar[str] = "ttsa"
    exponents: ClassVar[tuple[float, float, float]] = (0.4, 0.0, 0.6)
    needs_uniform: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "linear_steps")

    @property
    def inner_draws(self) -> int:
        """One batch for y and the cross product, p for the series."""
        return self.linear_steps

    @property
    def cost(self) -> Counts:
        """Evaluations per step, in the mean over p."""
        return Counts(1, 1, (self.linear_steps - 1) / 2, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y)."""
        return State(x, y, o.ops.zeros_like(y), o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, then v from nothing, then x."""
        ops, (x, y, _, t) = o.ops, state
        rates = self.rates(o, t, y)
        p = truncation(ops, batch.uniform, self.linear_steps)
        first = draw(ops, batch.inner, 0)
        gradient = o.inner_grad(x, y, first)
        y = ops.axpy(-rates.y, gradient, y)
        f = o.outer(x, y, batch.outer)
        v = hia(
            ops,
            lambda k, w: o.linear(x, y, draw(ops, batch.inner, 1 + k)).hvp(w),
            f.grad_y,
            self.linear_steps,
            rates.v,
            p,
        )
        hypergrad = ops.sub(f.grad_x, o.linear(x, y, first).cross(v))
        x, h_norm = descend_x(o, rates.x, hypergrad, ops.norm(hypergrad), x)
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=ops.norm(gradient),
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=1,
            linear_steps=p,
            inner_drawn=1 + p,
            counts=Counts(1, 1, p, 1),
        )
        return State(x, y, v, t + 1), info
