"""FSLA: a fully single loop with a momentum estimate of the hypergradient.

Li, Gu and Huang, "A fully single loop algorithm for bilevel optimization without Hessian
inverse". Per step, with batches B1, B2, B3 of inner and C1, C2 of outer rows,

    y_{t+1} = y_t - rho grad_y g(x_t, y_t; B1)
    v_{t+1} = v_t - rho ((grad_yy g) v_t - grad_y f)           at (x_t, y_{t+1}), on B2 and C1
    D = h(x_t, y_{t+1}, v_{t+1}),  D' = h(x_{t-1}, y_t, v_t)   both on B3 and C2
    d <- D + (1 - eta_t) (d - D'),                             eta_0 = 1
    x_{t+1} = x_t - gamma d

with rho, gamma and eta_t = min(1, step_size / (t+1)^{1/2}) falling alike, as in the field's
benchmark; the constants of the paper are its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch, draw
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.tuned.base import Tuned, report


class State(NamedTuple):
    """What FSLA carries: also the x before, and the direction d."""

    x: Tree
    y: Tree
    v: Tree
    x_before: Tree
    direction: Tree
    t: Scalar


@dataclass(frozen=True)
class FSLA(Tuned):
    """A single loop with momentum, which is tied to step_size; parameters as in `Tuned`."""

    name: ClassVar[str] = "fsla"
    exponents: ClassVar[tuple[float, float, float]] = (0.5, 0.5, 0.5)

    @property
    def inner_draws(self) -> int:
        """For y, for v, and for the cross products."""
        return 3

    @property
    def outer_draws(self) -> int:
        """For v, and for the hypergradients."""
        return 2

    @property
    def cost(self) -> Counts:
        """Evaluations per step."""
        return Counts(3, 1, 1, 2)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0; the first direction is the plain one."""
        zero = o.ops.zeros_like
        return State(x, y, zero(y), x, zero(x), o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, then v, then the direction, then x."""
        ops, (x, y, v, x_before, direction, t) = o.ops, state
        rates = self.rates(o, t, y)
        b1, b2, b3 = (draw(ops, batch.inner, k) for k in range(3))
        c1, c2 = (draw(ops, batch.outer, k) for k in range(2))
        gradient = o.inner_grad(x, y, b1)
        new_y = ops.axpy(-rates.y, gradient, y)
        f = o.outer(x, new_y, c1)
        residual = ops.sub(o.linear(x, new_y, b2).hvp(v), f.grad_y)
        new_v = ops.axpy(-rates.v, residual, v)

        def hypergradient(x: Tree, y: Tree, v: Tree) -> Tree:
            return ops.sub(o.outer(x, y, c2).grad_x, o.linear(x, y, b3).cross(v))

        # rates.y is step_size / (t+1)^{1/2}
        keep = ops.where((t > 0) & (rates.y < 1), 1 - rates.y, 0 * rates.y)
        drift = ops.sub(direction, hypergradient(x_before, y, v))
        direction = ops.axpy(keep, drift, hypergradient(x, new_y, new_v))
        new_x, h_norm = descend_x(o, rates.x, direction, ops.norm(direction), x)
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=ops.norm(gradient),
            residual_norm=ops.norm(residual),
            hypergrad_norm=h_norm,
            v=new_v,
            inner_steps=1,
            linear_steps=1,
            inner_drawn=3,
            outer_drawn=2,
            counts=self.cost,
        )
        return State(new_x, new_y, new_v, x, direction, t + 1), info
