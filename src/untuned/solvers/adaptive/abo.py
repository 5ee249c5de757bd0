"""ABO: normalised steps on y averaged by their weights, and AdaGrad-Norm one step late on x.

Antonakopoulos et al., "Adaptive bilevel optimization" (submitted to ICLR 2024), as read in public
code that calls itself that of the submission. At iteration k, from the same y_start every time,

    q = grad_y g(x_k, y_t),  s_t = |q|^2,  G_t = G_{t-1} + 1 / s_t
    y_{t+1} = y_t - 1 / (H G_t) q / s_t                                 for t = 1, ..., k + 1
    ybar = sum_t (y_t / s_t) / sum_t (1 / s_t)
    h = grad_x f(x_k, ybar) - (grad_xy g(x_k, ybar)) v
    z_k = |x_k - x_{k-1}| / gamma_{k-1},   gamma_k = (1 + z_1^2 + ... + z_k^2)^{-1/2}
    x_{k+1} = P(x_k - gamma_k h)

The code sums s_t into G. Only the sum of 1 / s_t, which is Levy's AdaNGD (from memory), gives steps
in the units of y, about |q| / (H t), so it is the default. H is the strong convexity of g, which a
user must know. v is not specified there: here it is conjugate gradients from the last v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.adaptive.state import linear_solution
from untuned.solvers.base import Info, Solver, descend_x, value_estimate
from untuned.solvers.hyperparameters import require_choice, require_count, require_positive

SOLVED = 1e-30  # a squared norm whose inverse float32 still holds


class State(NamedTuple):
    """What ABO carries: y is the last average, `start` is where every inner loop begins."""

    x: Tree
    y: Tree
    v: Tree
    start: Tree
    accumulator: Scalar  # 1 / gamma_{k-1}
    moved: Scalar  # z_k
    t: Scalar


@dataclass(frozen=True)
class ABO(Solver):
    """Adaptive bilevel optimization by normalised gradients.

    Parameters
    ----------
    strong_convexity : H, of g in y. To be known.
    sum_of : "inverse" adds 1 / s_t up, as in AdaNGD; "square" adds s_t up, as the public code.
    inner_steps : None for k + 1 at iteration k, or that many every time.
    linear_steps : steps of conjugate gradients on v.
    """

    strong_convexity: float = 1.0
    sum_of: Literal["inverse", "square"] = "inverse"
    inner_steps: int | None = None
    linear_steps: int = 10

    name: ClassVar[str] = "abo"
    loops: ClassVar[str] = "double"
    to_tune: ClassVar[tuple[str, ...]] = ("strong_convexity",)

    def __post_init__(self) -> None:
        require_positive(self, "strong_convexity")
        require_choice(self, "sum_of", "inverse", "square")
        inner = [] if self.inner_steps is None else ["inner_steps"]
        require_count(self, "linear_steps", *inner)

    @property
    def cost(self) -> Counts:
        """Evaluations per step; without `inner_steps` those of y grow with the iterations."""
        inner = None if self.inner_steps is None else self.inner_steps + 1
        return Counts(1, inner, self.linear_steps + 1, 1)

    @property
    def tests_inner(self) -> bool:
        """Not so: the k + 1 steps at iteration k end by their number."""
        return False

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0 and gamma = 1."""
        ops = o.ops
        one, zero = ops.scalar(1.0, y), ops.scalar(0.0, y)
        return State(x, y, ops.zeros_like(y), y, one, zero, ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """ybar, then v, then x."""
        ops, x = o.ops, state.x
        steps = state.t + 1 if self.inner_steps is None else self.inner_steps
        y, length, taken = self._average(o, x, state.start, steps, batch)
        f = o.outer(x, y, batch.outer)
        g_norm = ops.norm(o.inner_grad(x, y, batch.inner))
        solved, hypergrad = linear_solution(o, x, y, state.v, f, batch.inner, self.linear_steps)
        accumulator = ops.hypot(state.accumulator, state.moved)
        gamma = 1.0 / accumulator
        x, moved = descend_x(o, gamma, hypergrad, ops.norm(hypergrad), x)
        info = Info(
            outer=f.value,
            inner_grad_norm=g_norm,
            residual_norm=solved.residual_norm,
            hypergrad_norm=moved,
            step_x=gamma,
            step_y=length,
            inner_steps=taken,
            linear_steps=solved.steps,
            counts=Counts(1, taken + 1, solved.steps + 1, 1),
            **value_estimate(o, f.value, g_norm, solved.z),
        )
        return State(x, y, solved.z, state.start, accumulator, moved, state.t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at x_k with the average of y and the v just solved for."""
        return old.x, new.y, new.v

    def _average(
        self, o: Oracles, x: Tree, y: Tree, steps: Scalar, batch: Batch
    ) -> tuple[Tree, Scalar, Scalar]:
        """The weighted mean of y_1, ..., y_T, the last step size and T.

        Where y_t solves the inner problem it is the mean, and nothing is left to do.
        """
        ops = o.ops

        def step(carry: tuple) -> tuple:
            y, mean, total, weights, _, _, k = carry
            q = o.inner_grad(x, y, batch.inner)
            s = ops.dot(q, q)
            solved = s <= SOLVED
            s = ops.where(solved, 1.0, s)
            total = total + (1.0 / s if self.sum_of == "inverse" else s)
            weights = weights + 1.0 / s
            share = ops.where(solved, 1.0, 1.0 / (s * weights))
            mean = ops.axpy(share, ops.sub(y, mean), mean)
            length = ops.where(solved, 0.0, 1.0 / (self.strong_convexity * total * s))
            done = ops.where(solved, ops.counter(1), ops.counter(0))
            return ops.axpy(-length, q, y), mean, total, weights, length, done, k + 1

        zero = ops.scalar(0.0, y)
        going = lambda carry: (carry[-1] < steps) & (carry[-2] == 0)
        carry = (y, y, zero, zero, zero, ops.counter(0), ops.counter(0))
        _, mean, _, _, length, _, taken = ops.while_loop(going, step, carry)
        return mean, length, taken
