"""AmIGO: amortized implicit gradients, y and v warm-started and solved for by a few steps.

Arbel and Mairal, "Amortized implicit differentiation for stochastic bilevel optimization".
Per step,

    T times, fresh rows:  y <- y - rho grad_y g
    N times, fresh rows:  v <- v - sigma ((grad_yy g) v - grad_y f),   grad_y f frozen at the new y
    x <- x - gamma (grad_x f - (grad_xy g) v)

with constant steps. The paper's z is -v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch, draw
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count
from untuned.solvers.numerics.neumann import Product, descend
from untuned.solvers.tuned.base import Tuned, report
from untuned.solvers.tuned.soba import State


@dataclass(frozen=True)
class AmIGO(Tuned):
    """Amortized implicit gradients; parameters as in `Tuned`, and

    inner_steps, linear_steps : steps on y and on v per step of x.
    """

    inner_steps: int = 10
    linear_steps: int = 10

    name: ClassVar[str] = "amigo"
    loops: ClassVar[str] = "double"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "inner_steps", "linear_steps")

    @property
    def inner_draws(self) -> int:
        """One batch per sub-step and one for the cross product."""
        return self.inner_steps + self.linear_steps + 1

    @property
    def cost(self) -> Counts:
        """Evaluations per step."""
        return Counts(1, self.inner_steps, self.linear_steps, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0."""
        return State(x, y, o.ops.zeros_like(y), o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, then v, then x."""
        ops, (x, y, v, t) = o.ops, state
        rates = self.rates(o, t, y)

        def rows(k: Scalar) -> Tree:
            return draw(ops, batch.inner, k)

        y, g_norm = descend(
            ops, lambda k, y: o.inner_grad(x, y, rows(k)), y, rates.y, self.inner_steps
        )
        f = o.outer(x, y, batch.outer)
        v, r_norm = self.solve_linear(
            o,
            lambda k, w: o.linear(x, y, rows(self.inner_steps + k)).hvp(w),
            f.grad_y,
            v,
            rates.v,
        )
        cross = o.linear(x, y, rows(self.inner_draws - 1)).cross(v)
        hypergrad = ops.sub(f.grad_x, cross)
        x, h_norm = descend_x(o, rates.x, hypergrad, ops.norm(hypergrad), x)
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=g_norm,
            residual_norm=r_norm,
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=self.inner_steps,
            linear_steps=self.linear_steps,
            inner_drawn=self.inner_draws,
            counts=self.cost,
        )
        return State(x, y, v, t + 1), info

    def solve_linear(
        self, o: Oracles, product: Product, f_y: Tree, v: Tree, sigma: Scalar
    ) -> tuple[Tree, Scalar]:
        """v, and the last residual's norm where there is one."""
        return descend(
            o.ops, lambda k, v: o.ops.sub(product(k, v), f_y), v, sigma, self.linear_steps
        )
