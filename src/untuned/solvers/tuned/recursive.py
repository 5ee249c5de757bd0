"""Gradients and hypergradients at two points on the same rows, and the momentum made of them.

STORM's recursion for a direction d that follows D(z_t): with D at the new and at the previous
point on the same rows,

    d_t = D(z_t) + (1 - eta_t) (d_{t-1} - D(z_{t-1})),   eta_0 = 1,  eta_t <= 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch, draw
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count, require_positive
from untuned.solvers.tuned.base import Rates, Tuned, decayed, report

Series = Callable[[Callable[[Scalar, Tree], Tree], Tree], Tree]


class At(NamedTuple):
    """What a method asks of a point: G = grad_y g, D = grad_x f - (grad_xy g) v, f, and v."""

    gradient: Tree
    hypergradient: Tree
    outer: Scalar
    v: Tree


def evaluate(
    o: Oracles,
    points: tuple[tuple[Tree, Tree], ...],
    inner_rows: Tree,
    outer_rows: Tree,
    product_rows: Callable[[Scalar], Tree],
    series: Series,
) -> list[At]:
    """G and D at every point (x, y), all on the same rows; v by the series given."""
    f = [o.outer(x, y, outer_rows) for x, y in points]

    def product(k: Scalar, w: Tree) -> Tree:
        rows = product_rows(k)
        return tuple(o.linear(x, y, rows).hvp(part) for (x, y), part in zip(points, w, strict=True))

    found = []
    for (x, y), at, v in zip(points, f, series(product, tuple(a.grad_y for a in f)), strict=True):
        gradient, cross = o.inner_cross(x, y, v, inner_rows)
        found.append(At(gradient, o.ops.sub(at.grad_x, cross), at.value, v))
    return found


class State(NamedTuple):
    """What MRBO and SUSTAIN carry: the point before, and the directions of y and x."""

    x: Tree
    y: Tree
    v: Tree
    x_before: Tree
    y_before: Tree
    y_direction: Tree
    x_direction: Tree
    t: Scalar


@dataclass(frozen=True)
class Recursive(Tuned):
    """Momentum by differences for both levels; parameters as in `Tuned`, and

    linear_steps : length of the Neumann series.
    eta : momentum min(1, eta / (t+1)^{2/3}), 1 at the first step.
    """

    linear_steps: int = 10
    eta: float = 0.5

    exponents: ClassVar[tuple[float, float, float]] = (1 / 3, 0.0, 1 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "eta")
        require_count(self, "linear_steps")

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y); the first directions are the plain ones."""
        zero = o.ops.zeros_like
        return State(x, y, zero(y), x, y, zero(y), zero(x), o.ops.counter(0))

    def move(
        self, o: Oracles, state: State, batch: Batch, rates: Rates, series: Series, products: Scalar
    ) -> tuple[State, Info]:
        """One step with v by `series`, which makes `products` products at each point."""
        ops, (x, y, _, x_before, y_before, u, d, t) = o.ops, state
        now, before = evaluate(
            o,
            ((x, y), (x_before, y_before)),
            draw(ops, batch.inner, 0),
            batch.outer,
            lambda k: draw(ops, batch.inner, 1 + k),
            series,
        )
        later = decayed(o, self.eta, t, 2 / 3, y)
        keep = ops.where((t > 0) & (later < 1), 1 - later, 0 * later)
        u = ops.axpy(keep, ops.sub(u, before.gradient), now.gradient)
        d = ops.axpy(keep, ops.sub(d, before.hypergradient), now.hypergradient)
        new_y = ops.axpy(-rates.y, u, y)
        new_x, h_norm = descend_x(o, rates.x, d, ops.norm(d), x)
        info = report(
            o,
            rates,
            outer=now.outer,
            inner_grad_norm=ops.norm(now.gradient),
            hypergrad_norm=h_norm,
            v=now.v,
            inner_steps=1,
            linear_steps=products,
            inner_drawn=1 + products,
            counts=Counts(2, 2, 2 * products, 2),
        )
        return State(new_x, new_y, now.v, x, y, u, d, t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken before anything moves."""
        return old.x, old.y, new.v
