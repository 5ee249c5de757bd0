"""VRBO: variance reduction by periodic full-data refresh and recursive differences.

Yang, Ji and Liang, "Provably faster algorithms for bilevel optimization". u and d estimate
G = grad_y g and D = grad_x f - (grad_xy g) v (v by a Neumann series) at the current point:

    every `period` steps: u = G, d = D on all rows
    x_{t+1} = x_t - gamma d
    over the points P_{-1} = (x_t, y_t), P_0 = (x_{t+1}, y_t), P_j = (x_{t+1}, y^j), j = 0..T:
        u += G(P_j) - G(P_{j-1}),  d += D(P_j) - D(P_{j-1})   both ends on the same fresh rows
        y^{j+1} = y^j - rho u                                 but for the last j
    y_{t+1} = y^T

with constant steps. With full batches u and d are exact at the latest point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch, draw
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count
from untuned.solvers.numerics.neumann import shia
from untuned.solvers.tuned.base import Tuned, report
from untuned.solvers.tuned.recursive import At, evaluate


class State(NamedTuple):
    """What VRBO carries: also the estimates of G and D at (x, y)."""

    x: Tree
    y: Tree
    v: Tree
    u: Tree
    d: Tree
    t: Scalar


@dataclass(frozen=True)
class VRBO(Tuned):
    """Variance-reduced steps; parameters as in `Tuned`, and

    inner_steps, linear_steps : steps on y per step of x, and length of the Neumann series.
    period : steps of x between refreshes on all rows. To be tuned.
    """

    inner_steps: int = 10
    linear_steps: int = 10
    period: int = 50

    name: ClassVar[str] = "vrbo"
    needs_all_rows: ClassVar[bool] = True
    loops: ClassVar[str] = "double"
    to_tune: ClassVar[tuple[str, ...]] = ("step_size", "outer_ratio", "period")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "inner_steps", "linear_steps", "period")

    @property
    def inner_draws(self) -> int:
        """At each point visited, one batch and one per product of the series."""
        return (self.inner_steps + 1) * (1 + self.linear_steps)

    @property
    def outer_draws(self) -> int:
        """One at each point visited."""
        return self.inner_steps + 1

    @property
    def cost(self) -> Counts:
        """Evaluations per step, in the mean over a period."""
        points = 2 * (self.inner_steps + 1) + 1 / self.period
        return Counts(points, points, points * self.linear_steps, points)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y); the first step refreshes."""
        zero = o.ops.zeros_like
        return State(x, y, zero(y), zero(y), zero(x), o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Refresh if due, then x, then the walk over y."""
        ops, (x, y, _, u, d, t) = o.ops, state
        rates = self.rates(o, t, y)
        stride = 1 + self.linear_steps

        def at_all_rows() -> tuple[Tree, Tree]:
            inner, outer = batch.data[:2]
            (now,) = self._evaluate(o, ((x, y),), inner, outer, lambda k: inner, rates.v)
            return now.gradient, now.hypergradient

        due = t % self.period == 0
        u, d = ops.cond(due, at_all_rows, lambda: (u, d))
        new_x, h_norm = descend_x(o, rates.x, d, ops.norm(d), x)

        def visit(carry: tuple) -> tuple:
            before, y, _, u, d, _, j = carry
            now, old = self._evaluate(
                o,
                ((new_x, y), before),
                draw(ops, batch.inner, stride * j),
                draw(ops, batch.outer, j),
                lambda k: draw(ops, batch.inner, stride * j + 1 + k),
                rates.v,
            )
            u = ops.axpy(1.0, ops.sub(now.gradient, old.gradient), u)
            d = ops.axpy(1.0, ops.sub(now.hypergradient, old.hypergradient), d)
            # At the last point u and d are brought up to date, and y stays.
            next_y = ops.where(j < self.inner_steps, ops.axpy(-rates.y, u, y), y)
            value = ops.cast(now.outer, ops.scalar(0.0, y))
            return (new_x, y), next_y, now.v, u, d, value, j + 1

        zero = ops.scalar(0.0, y)
        start = ((x, y), y, ops.zeros_like(y), u, d, zero, ops.counter(0))
        visited = ops.while_loop(lambda carry: carry[-1] <= self.inner_steps, visit, start)
        _, y, v, u, d, outer, _ = visited
        refreshed = ops.where(due, 1, 0)
        points = 2 * (self.inner_steps + 1) + refreshed
        info = report(
            o,
            rates,
            outer=outer,
            inner_grad_norm=ops.norm(u),
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=self.inner_steps,
            linear_steps=self.linear_steps,
            inner_drawn=self.inner_draws,
            outer_drawn=self.outer_draws,
            counts=Counts(points, points, points * self.linear_steps, points),
        )
        return State(new_x, y, v, u, d, t + 1), info

    def _evaluate(
        self, o: Oracles, points: tuple, inner: Tree, outer: Tree, products: Callable, sigma: Scalar
    ) -> list[At]:
        n = self.linear_steps
        return evaluate(
            o, points, inner, outer, products, lambda product, b: shia(o.ops, product, b, n, sigma)
        )  # fmt: skip

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at the last point visited."""
        return new.x, new.y, new.v
