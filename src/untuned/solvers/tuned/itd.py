"""ITD: iterative differentiation, the hypergradient of the unrolled inner descent.

Ji, Yang and Liang, "Bilevel optimization: convergence analysis and enhanced design" (ITD-BiO);
Franceschi, Donini, Frasconi and Pontil, "Forward and reverse gradient-based hyperparameter
optimization". Per step, on one batch of each side, from y^0 = y_t, which counts as constant,

    y^{k+1} = y^k - rho grad_y g(x, y^k),   k = 0..D-1
    w = grad_y f(x, y^D),  h = grad_x f(x, y^D);   back over k = D-1..0:
        h <- h - rho (grad_xy g(x, y^k)) w,   w <- w - rho (grad_yy g(x, y^k)) w
    x_{t+1} = x_t - gamma h,   y_{t+1} = y^D

with constant steps. The sum of rho w over k is what stands for v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch
from untuned.ops import Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count
from untuned.solvers.tuned.base import Tuned, report
from untuned.solvers.tuned.soba import State


@dataclass(frozen=True)
class ITD(Tuned):
    """Unrolled differentiation; parameters as in `Tuned`, and inner_steps, the steps on y."""

    inner_steps: int = 10

    name: ClassVar[str] = "itd"
    loops: ClassVar[str] = "double"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "inner_steps")

    @property
    def cost(self) -> Counts:
        """Evaluations per step."""
        return Counts(1, self.inner_steps, self.inner_steps - 1, self.inner_steps)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y)."""
        return State(x, y, o.ops.zeros_like(y), o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Forward over y, back over the path, then x."""
        ops, (x, first, _, t) = o.ops, state
        rates = self.rates(o, t, first)

        def forward(carry: tuple, _: None) -> tuple[tuple, Tree]:
            y, _ = carry
            g = o.inner_grad(x, y, batch.inner)
            return (ops.axpy(-rates.y, g, y), g), y

        # y^0 is apart from the path, since the way back needs no Hessian product there.
        g = o.inner_grad(x, first, batch.inner)
        second = ops.axpy(-rates.y, g, first)
        later = self.inner_steps - 1
        (last, g), path = ops.scan(forward, (second, g), None, later, False)
        f = o.outer(x, last, batch.outer)

        def backward(carry: tuple, y: Tree) -> tuple[tuple, None]:
            h, w, v = carry
            v = ops.axpy(rates.y, w, v)
            linear = o.linear(x, y, batch.inner)
            h = ops.axpy(-rates.y, linear.cross(w), h)
            return (h, ops.axpy(-rates.y, linear.hvp(w), w), v), None

        start = (f.grad_x, f.grad_y, ops.zeros_like(last))
        (h, w, v), _ = ops.scan(backward, start, path, later, True)
        h = ops.axpy(-rates.y, o.linear(x, first, batch.inner).cross(w), h)
        v = ops.axpy(rates.y, w, v)
        x, h_norm = descend_x(o, rates.x, h, ops.norm(h), x)
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=ops.norm(g),
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=self.inner_steps,
            counts=self.cost,
        )
        return State(x, last, v, t + 1), info
