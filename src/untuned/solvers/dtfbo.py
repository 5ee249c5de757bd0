"""D-TFBO, the double-loop tuning-free bilevel optimizer (Algorithm 1).

Yang, Ban, Huang, Ma and Ji, "Tuning-Free Bilevel Optimization". At outer iteration t, from the
y and v where the last iteration ended and from beta_0, gamma_0 anew,

    while |grad_y g(x_t, y^p)|^2 > eps_y:
        beta_{p+1}^2  = beta_p^2  + |grad_y g|^2,   y^{p+1} = y^p - eta_y / beta_{p+1}  grad_y g
    while |grad_v R(x_t, y^P, v^q)|^2 > eps_v:                 grad_v R = (grad_yy g) v - grad_y f
        gamma_{q+1}^2 = gamma_q^2 + |grad_v R|^2,   v^{q+1} = v^q - eta_v / gamma_{q+1} grad_v R
    h_t = grad_x f(x_t, y^P) - (grad_xy g(x_t, y^P)) v^Q
    alpha_{t+1}^2 = alpha_t^2 + |h_t|^2,            x_{t+1} = x_t - eta_x / alpha_{t+1} h_t

with eps_y = c_y / T and eps_v = c_v / T. The etas and cs are those of Remark 1; at 1 this is the
algorithm to the letter. Given loop counts, the loops run that often and test nothing (appendix B).

`linear_solver="cg"` solves for v by conjugate gradients to the same accuracy instead, as AdaRHD
does: of the order of 1 / eps Hessian products in place of 1 / eps^2, and no gamma.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from untuned.data.batches import Batch, Draws, draw
from untuned.ops import Scalar, Tree
from untuned.problem.data_checks import Pair
from untuned.problem.derivatives import Counts, Linear, Oracles
from untuned.solvers.base import Info, Solver, descend_x, value_estimate
from untuned.solvers.hyperparameters import (
    require_choice,
    require_count,
    require_positive,
    require_start,
)
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.adagrad_norm import (
    Descent,
    Start,
    descend_for,
    descend_until,
    first_value,
    step_size,
)

STEPS_BY_HAND = 1000  # T where no run says it: the default max_steps of `minimize`


class State(NamedTuple):
    """What D-TFBO carries from one outer iteration to the next; beta and gamma start anew."""

    x: Tree
    y: Tree
    v: Tree
    alpha: Scalar
    t: Scalar


@dataclass(frozen=True)
class DTFBO(Solver):
    """Double-loop tuning-free bilevel optimization: y and v are solved for, then x moves.

    Parameters
    ----------
    alpha0, beta0, gamma0 : first values of the accumulators for x, y and v; beta and gamma go
        back to theirs at every outer iteration. They have units (docs/methods.md); "auto" takes
        the first gradient seen instead.
    eta_x, eta_y, eta_v : coefficients of the three step sizes (Remark 1).
    c_y, c_v : the sub-loops end at squared norms c_y / T and c_v / T.
    inner_steps, linear_steps : None for the while-loops of Algorithm 1; a whole number for that
        many steps without a test (the paper uses 10 and 10, or 5 and 3).
    linear_solver : "adagrad-norm", as in the paper, or "cg", on one batch per outer iteration.
    cap : most steps of a while-loop; where it is hit the run goes on and the history says so.
    horizon : T. None: `max_steps` of the run (1000 when stepped by hand). "anytime": t + 1 in
        place of T at iteration t, so that a run can be extended later.

    Notes
    -----
    With minibatches, fixed loop counts draw fresh inner rows for every sub-step; the while-loops
    work on one batch per outer iteration, since their test needs one and the same function.
    """

    alpha0: Start = 1.0
    beta0: Start = 1.0
    gamma0: Start = 1.0
    eta_x: float = 1.0
    eta_y: float = 1.0
    eta_v: float = 1.0
    c_y: float = 1.0
    c_v: float = 1.0
    inner_steps: int | None = None
    linear_steps: int | None = None
    linear_solver: Literal["adagrad-norm", "cg"] = "adagrad-norm"
    cap: int = 10_000
    horizon: int | Literal["anytime"] | None = None

    name: ClassVar[str] = "d-tfbo"
    start_values: ClassVar[tuple[str, ...]] = ("alpha0", "beta0", "gamma0")
    loops: ClassVar[str] = "double"

    def __post_init__(self) -> None:
        require_start(self, *self.start_values)
        require_positive(self, "eta_x", "eta_y", "eta_v", "c_y", "c_v")
        require_choice(self, "linear_solver", "adagrad-norm", "cg")
        counts = ("inner_steps", "linear_steps")
        require_count(self, "cap", *(name for name in counts if getattr(self, name) is not None))
        if self.horizon is not None:
            require_count(self, "horizon", otherwise="anytime")

    def for_run(self, rows: Pair, batch_sizes: Pair, max_steps: int) -> DTFBO:
        """This method with the run's number of steps for T, if none was given."""
        return dataclasses.replace(self, horizon=max_steps) if self.horizon is None else self

    @property
    def inner_draws(self) -> int:
        """One batch per sub-step and one for the cross product, or one in all."""
        if self.inner_steps is None or self.linear_steps is None:
            return 1
        return self.inner_steps + (0 if self._by_cg else self.linear_steps) + 1

    @property
    def _by_cg(self) -> bool:
        return self.linear_solver == "cg"

    @property
    def cost(self) -> Counts:
        """Evaluations per step; None for a while-loop, which runs until its problem is solved."""
        linear = self.linear_steps and self.linear_steps + int(self._by_cg)  # a first residual
        return Counts(1, self.inner_steps, linear, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0."""
        return State(
            x, y, o.ops.zeros_like(y), o.ops.scalar(first_value(self.alpha0), y), o.ops.counter(0)
        )

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """One outer iteration, lines 3 to 12 of Algorithm 1."""
        ops = o.ops
        x = state.x
        y = self._solve_inner(o, state, batch)  # lines 4 to 7
        f = o.outer(x, y.point, batch.outer)
        v, linear = self._solve_linear(o, state, batch, y.point, f.grad_y)  # lines 8 to 11
        hypergrad = ops.sub(f.grad_x, linear.cross(v.point))
        h_norm = ops.norm(hypergrad)
        alpha = ops.hypot(state.alpha, h_norm)  # line 12
        step_x = step_size(ops, self.eta_x, alpha)
        x, h_norm = descend_x(o, step_x, hypergrad, h_norm, x)

        # A while-loop evaluates once more than it steps: the test that ends it.
        y_tests = int(self.inner_steps is None)
        v_tests = int(self.linear_steps is None or self._by_cg)
        info = Info(
            outer=f.value,
            inner_grad_norm=y.norm,
            residual_norm=v.norm,
            hypergrad_norm=h_norm,
            step_x=step_x,
            step_y=step_size(ops, self.eta_y, y.accumulator),
            step_v=step_size(ops, self.eta_v, v.accumulator),
            inner_steps=y.steps,
            linear_steps=v.steps,
            capped=y.capped | v.capped,
            indefinite=v.indefinite,
            inner_drawn=self.inner_draws,
            counts=Counts(1, y.steps + y_tests, v.steps + v_tests, 1),
            **value_estimate(o, f.value, y.norm, v.point),
        )
        return State(x, y.point, v.point, alpha, state.t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at x_t with the y and v just solved for."""
        return old.x, new.y, new.v

    def _solve_inner(self, o: Oracles, state: State, batch: Batch) -> Descent:
        ops, x = o.ops, state.x
        if self.inner_steps is None:
            return descend_until(
                ops, lambda y: o.inner_grad(x, y, batch.inner), state.y,
                self.beta0, self.eta_y, self._epsilon(self.c_y, state.t), self.cap,
            )  # fmt: skip
        return descend_for(
            ops, lambda p, y: o.inner_grad(x, y, draw(ops, batch.inner, p)), state.y,
            self.beta0, self.eta_y, self.inner_steps,
        )  # fmt: skip

    def _solve_linear(
        self, o: Oracles, state: State, batch: Batch, y: Tree, f_y: Tree
    ) -> tuple[Descent, Linear]:
        """v^Q, and the second derivatives of g that the cross product is to use."""
        ops, x = o.ops, state.x
        if self._by_cg:
            return self._conjugate(o, state, batch, y, f_y)
        if isinstance(batch.inner, Draws):

            def residual(q: Scalar, v: Tree) -> Tree:
                rows = draw(ops, batch.inner, self.inner_steps + q)
                return ops.sub(o.linear(x, y, rows).hvp(v), f_y)

            last = draw(ops, batch.inner, self.inner_draws - 1)
            linear = o.linear(x, y, last)
        else:
            # One point, one set of rows: linearised once, applied Q_t times.
            linear = o.linear(x, y, batch.inner)

            def residual(q: Scalar, v: Tree) -> Tree:
                return ops.sub(linear.hvp(v), f_y)

        if self.linear_steps is None:
            epsilon = self._epsilon(self.c_v, state.t)
            v = descend_until(
                ops, lambda v: residual(0, v), state.v, self.gamma0, self.eta_v, epsilon, self.cap
            )
        else:
            v = descend_for(ops, residual, state.v, self.gamma0, self.eta_v, self.linear_steps)
        return v, linear

    def _conjugate(
        self, o: Oracles, state: State, batch: Batch, y: Tree, f_y: Tree
    ) -> tuple[Descent, Linear]:
        """The same by conjugate gradients from the last v, on the rows of the cross product."""
        ops = o.ops
        linear = o.linear(state.x, y, draw(ops, batch.inner, self.inner_draws - 1))
        residual = ops.sub(f_y, linear.hvp(state.v))
        until = self.linear_steps is None
        epsilon = self._epsilon(self.c_v, state.t) if until else 0.0
        found = conjugate_gradient.solve(
            ops, linear.hvp, residual, state.v, tolerance=epsilon,
            most=self.linear_steps or self.cap,
        )  # fmt: skip
        v = Descent(found.z, found.residual_norm, ops.scalar(0.0, y), found.steps)  # no rate
        if until:  # without a test, a curvature of zero may be that of a residual of zero
            unsolved = found.residual_norm > epsilon**0.5
            v = v._replace(capped=unsolved & (found.steps >= self.cap), indefinite=found.indefinite)
        return v, linear

    def _epsilon(self, c: float, t: Scalar) -> Scalar:
        if self.horizon == "anytime":
            return c / (t + 1)
        return c / (self.horizon or STEPS_BY_HAND)
