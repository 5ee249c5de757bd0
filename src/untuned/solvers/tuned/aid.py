"""AID: approximate implicit differentiation, y by gradient descent, v by a linear solver.

Ji, Yang and Liang, "Bilevel optimization: convergence analysis and enhanced design" (AID-BiO);
Grazzi, Franceschi, Pontil and Salzo, "On the iteration complexity of hypergradient computation".
Per step, on one batch of each side,

    D times:  y <- y - rho grad_y g
    v: N steps of conjugate gradients on (grad_yy g) v = grad_y f from the last v,
       or of the fixed point v <- v - rho ((grad_yy g) v - grad_y f)
    x <- x - gamma (grad_x f - (grad_xy g) v)

with constant steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from untuned.data.batches import Batch
from untuned.ops import Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_choice, require_count
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.neumann import descend
from untuned.solvers.tuned.base import Tuned, report
from untuned.solvers.tuned.soba import State


@dataclass(frozen=True)
class AID(Tuned):
    """Implicit differentiation; parameters as in `Tuned`, and

    inner_steps, linear_steps : steps on y and of the linear solver per step of x.
    linear_solver : "cg" or "fixed-point".
    """

    inner_steps: int = 10
    linear_steps: int = 10
    linear_solver: Literal["cg", "fixed-point"] = "cg"

    name: ClassVar[str] = "aid"
    loops: ClassVar[str] = "double"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "inner_steps", "linear_steps")
        require_choice(self, "linear_solver", "cg", "fixed-point")

    @property
    def cost(self) -> Counts:
        """Evaluations per step; conjugate gradients need a first residual."""
        return Counts(1, self.inner_steps, self.linear_steps + int(self.linear_solver == "cg"), 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0."""
        return State(x, y, o.ops.zeros_like(y), o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, then v, then x."""
        ops, (x, y, v, t) = o.ops, state
        rates = self.rates(o, t, y)
        y, g_norm = descend(
            ops, lambda _, y: o.inner_grad(x, y, batch.inner), y, rates.y, self.inner_steps
        )
        f = o.outer(x, y, batch.outer)
        linear = o.linear(x, y, batch.inner)
        if self.linear_solver == "cg":
            residual = ops.sub(f.grad_y, linear.hvp(v))
            solved = conjugate_gradient.solve(ops, linear.hvp, residual, v, most=self.linear_steps)
            v, r_norm, linear_steps = solved.z, solved.residual_norm, solved.steps
        else:
            v, r_norm = descend(
                ops, lambda _, v: ops.sub(linear.hvp(v), f.grad_y), v, rates.v, self.linear_steps
            )
            linear_steps = self.linear_steps
        hypergrad = ops.sub(f.grad_x, linear.cross(v))
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
            linear_steps=linear_steps,
            counts=self.cost._replace(hvp=self.cost.hvp - self.linear_steps + linear_steps),
        )
        return State(x, y, v, t + 1), info
