"""BiSPS: Polyak's step on both levels, under an envelope that falls.

Fan, Choné-Ducasse, Schmidt and Thrampoulidis, "BiSLS/SPS: auto-tune step sizes for stable bi-level
optimization" (2023). Only the abstract was read; the rest is from memory. Per step, T times with
fresh rows,

    y <- y - min((g - l_g) / (c |grad_y g|^2),  b_y / sqrt(k + 1)) grad_y g

where value and gradient are of the same rows; then v by conjugate gradients, and

    x <- x - min((f - l_f) / (c |h|^2),  b_x / sqrt(k + 1)) h,    h = grad_x f - (grad_xy g) v

l_g and l_f are lower bounds of g and f; those of losses are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch, draw
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.adaptive.state import State, linear_solution
from untuned.solvers.base import Info, Solver, descend_x, value_estimate
from untuned.solvers.hyperparameters import require_count, require_finite, require_positive


@dataclass(frozen=True)
class BiSPS(Solver):
    """Stochastic Polyak steps on both levels.

    Parameters
    ----------
    longest_x, longest_y : b_x and b_y, the longest first steps. To be tuned.
    c : the divisor of Polyak's step; 0.5 is the step that is exact for squares.
    outer_bound, inner_bound : lower bounds of f and g.
    inner_steps, linear_steps : steps on y, and of conjugate gradients on v, per step of x.
    """

    longest_x: float = 1.0
    longest_y: float = 1.0
    c: float = 0.5
    outer_bound: float = 0.0
    inner_bound: float = 0.0
    inner_steps: int = 10
    linear_steps: int = 10

    name: ClassVar[str] = "bisps"
    loops: ClassVar[str] = "double"
    to_tune: ClassVar[tuple[str, ...]] = ("longest_x", "longest_y")
    first_steps: ClassVar[tuple[str, ...]] = to_tune

    def __post_init__(self) -> None:
        require_positive(self, "longest_x", "longest_y", "c")
        require_finite(self, "outer_bound", "inner_bound")
        require_count(self, "inner_steps", "linear_steps")

    @property
    def inner_draws(self) -> int:
        """One per step on y, and one for the second derivatives."""
        return self.inner_steps + 1

    @property
    def cost(self) -> Counts:
        """Evaluations per step; values come with their gradients."""
        return Counts(1, self.inner_steps, self.linear_steps + 1, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0."""
        one = o.ops.scalar(1.0, y)
        return State(x, y, o.ops.zeros_like(y), one, one, o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, then v, then x."""
        ops, x, t = o.ops, state.x, state.t
        falling = ops.cast((t + 1) ** -0.5, ops.scalar(0.0, state.y))

        def descend(carry: tuple) -> tuple:
            y, _, _, k = carry
            value, q = o.inner_value_and_grad(x, y, draw(ops, batch.inner, k))
            norm = ops.norm(q)
            rate = self._rate(ops, value - self.inner_bound, norm, self.longest_y * falling)
            return ops.axpy(-rate, q, y), norm, rate, k + 1

        zero = ops.scalar(0.0, state.y)
        start = (state.y, zero, zero, ops.counter(0))
        y, g_norm, rate_y, _ = ops.while_loop(lambda c: c[-1] < self.inner_steps, descend, start)
        f = o.outer(x, y, batch.outer)
        rows = draw(ops, batch.inner, self.inner_steps)
        solved, hypergrad = linear_solution(o, x, y, state.v, f, rows, self.linear_steps)
        h_norm = ops.norm(hypergrad)
        rate_x = self._rate(ops, f.value - self.outer_bound, h_norm, self.longest_x * falling)
        x, h_norm = descend_x(o, rate_x, hypergrad, h_norm, x)
        info = Info(
            outer=f.value,
            inner_grad_norm=g_norm,
            residual_norm=solved.residual_norm,
            hypergrad_norm=h_norm,
            step_x=rate_x,
            step_y=rate_y,
            inner_steps=self.inner_steps,
            linear_steps=solved.steps,
            inner_drawn=self.inner_draws,
            counts=Counts(1, self.inner_steps, solved.steps + 1, 1),
            **value_estimate(o, f.value, g_norm, solved.z),
        )
        return State(x, y, solved.z, rate_x, rate_y, t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at x_k with the y and v just found."""
        return old.x, new.y, new.v

    def _rate(self, ops: Ops, gap: Scalar, norm: Scalar, longest: Scalar) -> Scalar:
        """Polyak's step min(gap / (c norm^2), longest); none below the bound or without a slope."""
        steep = norm > 0
        safe = ops.where(steep, norm, 1.0)
        polyak = ops.where(steep & (gap > 0), gap / safe / (self.c * safe), 0.0)
        return ops.where(polyak < longest, polyak, longest)
