"""F2SA: fully first-order, with a penalty in place of second derivatives.

Kwon, Kwon, Wright and Nowak, "A fully first-order method for stochastic bilevel optimization".
y follows the minimizer of f + lambda g, z that of g; per step, T times with fresh rows,

    y <- y - rho_y (grad_y f + lambda grad_y g(x, y)),   z <- z - rho_z grad_y g(x, z)

then, again with fresh rows,

    x <- x - gamma (grad_x f(x, y) + lambda (grad_x g(x, y) - grad_x g(x, z)))
    lambda <- lambda + delta / (t+1)^{1/7}

with rho_y falling as (t+1)^{-5/7}, rho_z and gamma as (t+1)^{-4/7}. lambda (z - y) estimates v.
The growth of lambda is the field benchmark's: faster than the t^{1/7} of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch, draw
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count, require_positive
from untuned.solvers.tuned.base import Tuned, decayed, report


class State(NamedTuple):
    """What F2SA carries: also z and the penalty lambda."""

    x: Tree
    y: Tree
    v: Tree
    z: Tree
    penalty: Scalar
    t: Scalar


@dataclass(frozen=True)
class F2SA(Tuned):
    """First-order penalty method; parameters as in `Tuned`, and

    inner_steps : steps on y and z per step of x.
    delta, lambda0 : growth and first value of the penalty. To be tuned.
    """

    inner_steps: int = 10
    delta: float = 0.01
    lambda0: float = 1.0

    name: ClassVar[str] = "f2sa"
    loops: ClassVar[str] = "double"
    to_tune: ClassVar[tuple[str, ...]] = ("step_size", "outer_ratio", "delta", "lambda0")
    exponents: ClassVar[tuple[float, float, float]] = (5 / 7, 4 / 7, 4 / 7)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "delta", "lambda0")
        require_count(self, "inner_steps")

    @property
    def inner_draws(self) -> int:
        """Two per step on y and z, and two for x."""
        return 2 * self.inner_steps + 2

    @property
    def outer_draws(self) -> int:
        """One per step on y, and one for x."""
        return self.inner_steps + 1

    @property
    def cost(self) -> Counts:
        """Evaluations per step; two of the inner gradients are in x."""
        return Counts(outer_grad=self.inner_steps + 1, inner_grad=2 * self.inner_steps + 2)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with z = y."""
        ops = o.ops
        return State(x, y, ops.zeros_like(y), y, ops.scalar(self.lambda0, y), ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y and z, then x, then the penalty."""
        ops, (x, y, _, z, penalty, t) = o.ops, state
        rates = self.rates(o, t, y)

        def descend(carry: tuple) -> tuple:
            y, z, k = carry
            f = o.outer(x, y, draw(ops, batch.outer, k))
            toward = o.inner_grad(x, y, draw(ops, batch.inner, 2 * k))
            gradient = o.inner_grad(x, z, draw(ops, batch.inner, 2 * k + 1))
            y = ops.axpy(-rates.y, ops.axpy(penalty, toward, f.grad_y), y)
            return y, ops.axpy(-rates.v, gradient, z), k + 1

        start = (y, z, ops.counter(0))
        y, z, _ = ops.while_loop(lambda carry: carry[-1] < self.inner_steps, descend, start)
        f = o.outer(x, y, draw(ops, batch.outer, self.inner_steps))
        at_y, gradient = o.inner_grads(x, y, draw(ops, batch.inner, 2 * self.inner_steps))
        at_z, _ = o.inner_grads(x, z, draw(ops, batch.inner, 2 * self.inner_steps + 1))
        direction = ops.axpy(penalty, ops.sub(at_y, at_z), f.grad_x)
        x, h_norm = descend_x(o, rates.x, direction, ops.norm(direction), x)
        v = ops.axpy(penalty, ops.sub(z, y), ops.zeros_like(y))
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=ops.norm(gradient),
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=self.inner_steps,
            inner_drawn=self.inner_draws,
            outer_drawn=self.outer_draws,
            counts=self.cost,
        )
        penalty = penalty + decayed(o, self.delta, t, 1 / 7, y)
        return State(x, y, v, z, penalty, t + 1), info
