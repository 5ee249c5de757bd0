"""S-TFBO, the single-loop tuning-free bilevel optimizer (Algorithm 2).

Yang, Ban, Huang, Ma and Ji, "Tuning-Free Bilevel Optimization". With all three gradients
taken at (x_t, y_t, v_t),

    beta_{t+1}^2  = beta_t^2  + |grad_y g|^2
    gamma_{t+1}^2 = gamma_t^2 + |grad_v R|^2,       grad_v R = (grad_yy g) v_t - grad_y f
    phi_{t+1}     = max(beta_{t+1}, gamma_{t+1})
    alpha_{t+1}^2 = alpha_t^2 + |h_t|^2,            h_t = grad_x f - (grad_xy g) v_t

    y_{t+1} = y_t - eta_y / beta_{t+1}                  grad_y g
    v_{t+1} = v_t - eta_v / phi_{t+1}                   grad_v R
    x_{t+1} = x_t - eta_x / (alpha_{t+1} phi_{t+1})     h_t

The etas are those of Remark 2; at 1 this is the algorithm to the letter.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, Solver, descend_x, value_estimate
from untuned.solvers.hyperparameters import require_positive, require_start
from untuned.solvers.numerics.adagrad_norm import Start, first_value, step_size


class State(NamedTuple):
    """What S-TFBO carries from step to step."""

    x: Tree
    y: Tree
    v: Tree
    alpha: Scalar
    beta: Scalar
    gamma: Scalar


@dataclass(frozen=True)
class STFBO(Solver):
    """Single-loop tuning-free bilevel optimization: one gradient step on y, v and x together.

    Parameters
    ----------
    alpha0, beta0, gamma0 : first values of the accumulators for x, y and v. They have units
        (docs/methods.md); the theory asks for alpha0 >= 1. "auto" takes the first gradient seen
        instead.
    eta_x, eta_y, eta_v : coefficients of the three step sizes (Remark 2).
    """

    alpha0: Start = 1.0
    beta0: Start = 1.0
    gamma0: Start = 1.0
    eta_x: float = 1.0
    eta_y: float = 1.0
    eta_v: float = 1.0

    name: ClassVar[str] = "s-tfbo"
    start_values: ClassVar[tuple[str, ...]] = ("alpha0", "beta0", "gamma0")

    def __post_init__(self) -> None:
        require_start(self, *self.start_values)
        require_positive(self, "eta_x", "eta_y", "eta_v")
        if self.alpha0 != "auto" and self.alpha0 < 1:
            warnings.warn(
                f"STFBO was given alpha0={self.alpha0}, and its convergence theory asks for "
                "alpha0 >= 1; the run goes on, without that guarantee.",
                stacklevel=3,
            )

    @property
    def cost(self) -> Counts:
        """Evaluations per step."""
        return Counts(1, 1, 1, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0."""
        starts = (self.alpha0, self.beta0, self.gamma0)
        alpha, beta, gamma = (o.ops.scalar(first_value(start), y) for start in starts)
        return State(x, y, o.ops.zeros_like(y), alpha, beta, gamma)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """One pass of lines 3 to 9 of Algorithm 2."""
        ops = o.ops
        x, y, v = state.x, state.y, state.v
        f = o.outer(x, y, batch.outer)
        g = o.inner(x, y, v, batch.inner)
        residual = ops.sub(g.hvp, f.grad_y)
        hypergrad = ops.sub(f.grad_x, g.cross)
        g_norm, r_norm, h_norm = ops.norm(g.grad), ops.norm(residual), ops.norm(hypergrad)

        beta = ops.hypot(state.beta, g_norm)  # line 3
        gamma = ops.hypot(state.gamma, r_norm)  # line 4
        phi = ops.maximum(beta, gamma)  # line 5
        alpha = ops.hypot(state.alpha, h_norm)  # line 6
        step_x = step_size(ops, self.eta_x, alpha * phi)
        step_y = step_size(ops, self.eta_y, beta)
        step_v = step_size(ops, self.eta_v, phi)
        y = ops.axpy(-step_y, g.grad, y)  # line 7
        v = ops.axpy(-step_v, residual, v)  # line 8
        x, h_norm = descend_x(o, step_x, hypergrad, h_norm, x)  # line 9

        info = Info(
            outer=f.value,
            inner_grad_norm=g_norm,
            residual_norm=r_norm,
            hypergrad_norm=h_norm,
            step_x=step_x,
            step_y=step_y,
            step_v=step_v,
            inner_steps=1,
            linear_steps=1,
            counts=self.cost,
            **value_estimate(o, f.value, g_norm, v),
        )
        return State(x, y, v, alpha, beta, gamma), info
