"""SOBA: one stochastic step on y, v and x at once.

Dagréou, Ablin, Vaiter and Moreau, "A framework for bilevel optimization that enables stochastic
and global variance reduction algorithms". All at (x_t, y_t, v_t), on one batch of each side,

    y_{t+1} = y_t - rho   grad_y g
    v_{t+1} = v_t - rho   ((grad_yy g) v_t - grad_y f)
    x_{t+1} = x_t - gamma (grad_x f - (grad_xy g) v_t)

with rho and gamma falling as (t+1)^{-1/2}, as in the authors' benchmark (2/5 and 3/5 in the first
version of the paper). The paper's v is the negative of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.tuned.base import Tuned, report


class State(NamedTuple):
    """What SOBA carries."""

    x: Tree
    y: Tree
    v: Tree
    t: Scalar


@dataclass(frozen=True)
class SOBA(Tuned):
    """Simultaneous stochastic steps; parameters as in `Tuned`."""

    name: ClassVar[str] = "soba"
    exponents: ClassVar[tuple[float, float, float]] = (0.5, 0.5, 0.5)

    @property
    def cost(self) -> Counts:
        """Evaluations per step."""
        return Counts(1, 1, 1, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0."""
        return State(x, y, o.ops.zeros_like(y), o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """The three updates, simultaneous."""
        ops, (x, y, v, t) = o.ops, state
        rates = self.rates(o, t, y)
        f = o.outer(x, y, batch.outer)
        g = o.inner(x, y, v, batch.inner)
        residual = ops.sub(g.hvp, f.grad_y)
        hypergrad = ops.sub(f.grad_x, g.cross)
        x, h_norm = descend_x(o, rates.x, hypergrad, ops.norm(hypergrad), x)
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=ops.norm(g.grad),
            residual_norm=ops.norm(residual),
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=1,
            linear_steps=1,
            counts=self.cost,
        )
        y = ops.axpy(-rates.y, g.grad, y)
        v = ops.axpy(-rates.v, residual, v)
        return State(x, y, v, t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken before anything moves."""
        return old.x, old.y, old.v
