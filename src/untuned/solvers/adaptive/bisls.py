"""BiSLS: stochastic line search on both levels.

Fan, Choné-Ducasse, Schmidt and Thrampoulidis, "BiSLS/SPS: auto-tune step sizes for stable bi-level
optimization" (2023). Only the abstract was read; the rest is from memory. Per step, T times with
fresh rows, b is first made eta times as long and then shortened until

    g(x, y - b q) <= g(x, y) - rho b |q|^2,    q = grad_y g(x, y),    and y <- y - b q

Then v by conjugate gradients, h = grad_x f - (grad_xy g) v, and a likewise until

    f(x - a h, yhat(a)) <= f(x, y) - rho a |h|^2 + delta,   yhat(a) = y - b grad_y g(x - a h, y)

and x <- x - a h. Values and gradients of one comparison are of the same rows. Where g is badly
conditioned one step on y does not follow x, f does not fall as h says, and the search may stall:
that is what delta is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from untuned.data.batches import Batch, draw
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.adaptive.state import State, linear_solution
from untuned.solvers.base import Info, Solver, descend_x, value_estimate
from untuned.solvers.hyperparameters import (
    require_count,
    require_not_negative,
    require_positive,
    require_share,
)


@dataclass(frozen=True)
class BiSLS(Solver):
    """Stochastic line search on both levels.

    Parameters
    ----------
    first_x, first_y : the first steps that are tried.
    rho : the share of the promised decrease that must be seen.
    delta : how much f may rise at a step of x. To be tuned where f and g are noisy.
    eta : how much longer than the last step the first trial is.
    shrink : how much shorter every further trial is.
    most_trials : of one search; the last one is taken whatever it gives.
    inner_steps, linear_steps : steps on y, and of conjugate gradients on v, per step of x.
    """

    first_x: float = 1.0
    first_y: float = 1.0
    rho: float = 0.1
    delta: float = 0.0
    eta: float = 2.0
    shrink: float = 0.5
    most_trials: int = 30
    inner_steps: int = 10
    linear_steps: int = 10

    name: ClassVar[str] = "bisls"
    loops: ClassVar[str] = "double"
    to_tune: ClassVar[tuple[str, ...]] = ("delta",)
    first_steps: ClassVar[tuple[str, ...]] = ("first_x", "first_y")

    def __post_init__(self) -> None:
        require_positive(self, "first_x", "first_y", "eta")
        require_not_negative(self, "delta")
        require_share(self, "rho", "shrink")
        require_count(self, "most_trials", "inner_steps", "linear_steps")

    @property
    def inner_draws(self) -> int:
        """One per step on y, and one for the second derivatives and the step of x."""
        return self.inner_steps + 1

    @property
    def cost(self) -> Counts:
        """Evaluations per step, which depend on the trials."""
        return Counts(None, None, self.linear_steps + 1, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0 and the first steps."""
        ops = o.ops
        first_x, first_y = ops.scalar(self.first_x, y), ops.scalar(self.first_y, y)
        return State(x, y, ops.zeros_like(y), first_x, first_y, ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, then v, then x. A value without its gradient counts as much as the gradient."""
        ops, x = o.ops, state.x

        def descend(carry: tuple) -> tuple:
            y, _, rate, tried, k = carry
            rows = draw(ops, batch.inner, k)
            value, q = o.inner_value_and_grad(x, y, rows)
            norm = ops.norm(q)
            moved = lambda b: o.inner_value(x, ops.axpy(-b, q, y), rows)
            rate, trials = self._search(ops, moved, rate, value, norm, y)
            return ops.axpy(-rate, q, y), norm, rate, tried + trials, k + 1

        zero = ops.counter(0)
        start = (state.y, ops.scalar(0.0, state.y), state.rate_y, zero, zero)
        y, g_norm, rate_y, inner_trials, _ = ops.while_loop(
            lambda c: c[-1] < self.inner_steps, descend, start
        )
        f = o.outer(x, y, batch.outer)
        rows = draw(ops, batch.inner, self.inner_steps)
        solved, hypergrad = linear_solution(o, x, y, state.v, f, rows, self.linear_steps)
        h_norm = ops.norm(hypergrad)

        def followed(a: Scalar) -> Scalar:
            trial, _ = descend_x(o, a, hypergrad, h_norm, x)
            follower = ops.axpy(-rate_y, o.inner_grad(trial, y, rows), y)
            return o.outer_value(trial, follower, batch.outer)

        level = f.value + self.delta
        rate_x, trials = self._search(ops, followed, state.rate_x, level, h_norm, y)
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
            counts=Counts(
                1 + trials, self.inner_steps + inner_trials + trials, solved.steps + 1, 1
            ),
            **value_estimate(o, f.value, g_norm, solved.z),
        )
        return State(x, y, solved.z, rate_x, rate_y, state.t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at x_k with the y and v just found."""
        return old.x, new.y, new.v

    def _search(
        self, ops: Ops, value_at: Callable[[Scalar], Scalar], last: Scalar, level: Scalar,
        norm: Scalar, like: Tree,
    ) -> tuple[Scalar, Scalar]:  # fmt: skip
        """The first of eta last, shrink eta last, ... with a decrease of rho step norm^2.

        Near a solution that is less than the rounding of values, which then say nothing about
        steps: the last one is kept.
        """
        rounding = ops.epsilon(like) * ops.maximum(level, -level)
        telling = self.rho * last * norm * norm > rounding

        def too_long(carry: tuple) -> Scalar:
            rate, value, trials = carry
            # Written so that a value that is no number is too high.
            fits = value <= level - self.rho * rate * norm * norm
            return telling & ops.logical_not(fits) & (trials < self.most_trials)

        def shorten(carry: tuple) -> tuple:
            rate, _, trials = carry
            rate = self.shrink * rate
            return rate, value_at(rate), trials + 1

        rate = ops.where(telling, self.eta * last, last)
        carry = (rate, value_at(rate), ops.counter(1))
        rate, _, trials = ops.while_loop(too_long, shorten, carry)
        return rate, trials
