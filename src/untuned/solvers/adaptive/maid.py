"""MAID: inexact solutions, made more exact until a step of x is certain to descend.

Salehi, Mukherjee, Roberts and Ehrhardt, "An adaptively inexact first-order method for bilevel
optimization with application to hyperparameter learning" (arXiv 2308.10098), read. Per step,

    y with |grad_y g| <= mu eps,   v with |(grad_yy g) v - grad_y f| <= delta
    h = grad_x f - (grad_xy g) v;   while omega > (1 - eta) |h|: eps, delta <- eps / 2, delta / 2

where omega bounds the error of h, with J = grad_xy g,

    omega = c eps + |J| delta / mu + L_J L_f eps^2 / mu
    c = L_f |J| / mu + L_i |grad_y f| |J| + L_J |grad_y f| / mu

Then i = 0, 1, ... until, with y+ solved for at x+ = x - beta 0.9^i h,

    f(x+, y+) + |grad_y f(x+, y+)| eps + L_f eps^2 / 2 - f(x, y) + |grad_y f(x, y)| eps
        <= -eta^2 beta 0.9^i |h|^2

After success x <- x+, beta <- 10/9 of the step taken, and eps, delta grow by 1.05; otherwise
they are halved and x stays. The article's y is by FISTA; here it is AdaGrad-Norm, which needs no
constant. |J| is not known and taken as |J v| / |v|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles, Outer
from untuned.solvers.base import Info, Solver, descend_x, value_estimate
from untuned.solvers.hyperparameters import (
    require_count,
    require_not_negative,
    require_positive,
    require_share,
)
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.adagrad_norm import Descent, descend_until

LONGER = 10 / 9  # the next first step over the one that was taken
LOOSER = 1.05  # accuracies after a success


class State(NamedTuple):
    """What MAID carries: also the accuracies of y and v, and the first step to try."""

    x: Tree
    y: Tree
    v: Tree
    eps: Scalar
    delta: Scalar
    beta: Scalar
    t: Scalar


class Solved(NamedTuple):
    """y and v to the accuracies eps and delta, what they cost, and whether h is to be believed."""

    y: Tree
    v: Tree
    hypergrad: Tree
    f: Outer
    g_norm: Scalar
    residual_norm: Scalar
    omega: Scalar
    eps: Scalar
    delta: Scalar
    y_steps: Scalar
    v_steps: Scalar
    capped: Scalar
    tries: Scalar


@dataclass(frozen=True)
class MAID(Solver):
    """Adaptively inexact descent; for all rows, since it compares values.

    Parameters
    ----------
    strong_convexity, outer_smoothness : mu of g and L_f of f, in y. To be known.
    cross_smoothness, inverse_smoothness : L_J and L_i, the Lipschitz constants of grad_xy g and of
        the inverse of grad_yy g in y. Zero is right where g is quadratic in y and x alike.
    eps0, delta0, beta0 : first accuracies of y and v, and the first step of x to try.
    eta : how much of h must be certain.
    shrink : how much shorter every further trial step is.
    most_tries : of halving the accuracies, and of shortening a step, in one step.
    cap : most steps on y, and of conjugate gradients on v.
    """

    strong_convexity: float = 1.0
    outer_smoothness: float = 1.0
    cross_smoothness: float = 0.0
    inverse_smoothness: float = 0.0
    eps0: float = 0.1
    delta0: float = 0.1
    beta0: float = 0.1
    eta: float = 1e-4
    shrink: float = 0.9
    most_tries: int = 20
    cap: int = 10_000

    name: ClassVar[str] = "maid"
    loops: ClassVar[str] = "double"
    to_tune: ClassVar[tuple[str, ...]] = ("strong_convexity", "outer_smoothness")
    first_steps: ClassVar[tuple[str, ...]] = ("beta0",)

    def __post_init__(self) -> None:
        require_positive(self, "strong_convexity", "outer_smoothness", "eps0", "delta0", "beta0")
        require_not_negative(self, "cross_smoothness", "inverse_smoothness")
        require_share(self, "eta", "shrink")
        require_count(self, "most_tries", "cap")

    @property
    def cost(self) -> Counts:
        """Evaluations per step, which depend on the accuracies."""
        return Counts(None, None, None, None)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0 and the first accuracies."""
        ops = o.ops
        eps, delta, beta = (ops.scalar(a, y) for a in (self.eps0, self.delta0, self.beta0))
        return State(x, y, ops.zeros_like(y), eps, delta, beta, ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """y, v and h as exact as h needs them, then a step of x that descends, or none."""
        ops, x = o.ops, state.x
        at = self._certain(o, state, batch)
        h_norm = ops.norm(at.hypergrad)
        slope = ops.norm(at.f.grad_y)
        slack = self.outer_smoothness * at.eps * at.eps / 2

        def trial(rate: Scalar, y: Tree) -> tuple:
            moved, _ = descend_x(o, rate, at.hypergrad, h_norm, x)
            solved = self._inner(o, moved, y, at.eps, batch)
            f = o.outer(moved, solved.point, batch.outer)
            rise = f.value - at.f.value + (ops.norm(f.grad_y) + slope) * at.eps + slack
            descends = rise <= -self.eta * self.eta * rate * h_norm * h_norm
            return moved, solved.point, descends, solved.steps, solved.capped

        def going(carry: tuple) -> Scalar:
            *_, descends, _, _, tries = carry
            return ops.logical_not(descends) & (tries < self.most_tries)

        def shorten(carry: tuple) -> tuple:
            rate, _, y, _, steps, capped, tries = carry
            rate = self.shrink * rate
            moved, y, descends, more, ended = trial(rate, y)
            return rate, moved, y, descends, steps + more, capped | ended, tries + 1

        carry = (state.beta, *trial(state.beta, at.y), ops.counter(1))
        rate, moved, y, descends, steps, capped, tries = ops.while_loop(going, shorten, carry)
        info = Info(
            outer=at.f.value,
            inner_grad_norm=at.g_norm,
            residual_norm=at.residual_norm,
            hypergrad_norm=descend_x(o, rate, at.hypergrad, h_norm, x)[1],
            step_x=ops.where(descends, rate, 0.0 * rate),
            inner_steps=at.y_steps + steps,
            linear_steps=at.v_steps,
            capped=at.capped | capped,
            counts=Counts(
                at.tries + tries, at.y_steps + at.tries + steps + tries,
                at.v_steps + at.tries, at.tries,
            ),
            **value_estimate(o, at.f.value, at.g_norm, at.v),
        )  # fmt: skip
        factor = ops.where(descends, LOOSER, 0.5)
        state = State(
            ops.where(descends, moved, x),
            ops.where(descends, y, at.y),
            at.v,
            factor * at.eps,
            factor * at.delta,
            ops.where(descends, LONGER * rate, state.beta),
            state.t + 1,
        )
        return state, info

    def _inner(self, o: Oracles, x: Tree, y: Tree, eps: Scalar, batch: Batch) -> Descent:
        wanted = (self.strong_convexity * eps) ** 2
        gradient = lambda y: o.inner_grad(x, y, batch.inner)
        return descend_until(o.ops, gradient, y, "auto", 1.0, wanted, self.cap)

    def _certain(self, o: Oracles, state: State, batch: Batch) -> Solved:
        """y and v with their accuracies halved until the error of h is a small part of it."""
        ops, zero = o.ops, o.ops.counter(0)

        def solve(y: Tree, v: Tree, eps: Scalar, delta: Scalar, before: Solved | None) -> Solved:
            inner = self._inner(o, state.x, y, eps, batch)
            f = o.outer(state.x, inner.point, batch.outer)
            linear = o.linear(state.x, inner.point, batch.inner)
            residual = ops.sub(f.grad_y, linear.hvp(v))
            found = conjugate_gradient.solve(
                ops, linear.hvp, residual, v, tolerance=delta * delta, most=self.cap
            )
            cross = linear.cross(found.z)
            return Solved(
                inner.point, found.z, ops.sub(f.grad_x, cross), f, inner.norm,
                found.residual_norm, self._error(o, f, cross, found.z, eps, delta), eps, delta,
                inner.steps + (before.y_steps if before else zero),
                found.steps + (before.v_steps if before else zero),
                inner.capped, 1 + (before.tries if before else zero),
            )  # fmt: skip

        def uncertain(at: Solved) -> Scalar:
            enough = (1 - self.eta) * ops.norm(at.hypergrad)
            return (at.omega > enough) & (at.tries < self.most_tries)

        tighter = lambda at: solve(at.y, at.v, 0.5 * at.eps, 0.5 * at.delta, at)
        first = solve(state.y, state.v, state.eps, state.delta, None)
        return Solved(*ops.while_loop(uncertain, tighter, first))

    def _error(
        self, o: Oracles, f: Outer, cross: Tree, v: Tree, eps: Scalar, delta: Scalar
    ) -> Scalar:
        """omega, the bound of the error of h."""
        ops, mu = o.ops, self.strong_convexity
        size, slope = ops.norm(v), ops.norm(f.grad_y)
        coupling = ops.norm(cross) / ops.where(size > 0, size, 1.0)
        c = (
            self.outer_smoothness * coupling / mu
            + self.inverse_smoothness * slope * coupling
            + self.cross_smoothness * slope / mu
        )
        square = self.cross_smoothness * self.outer_smoothness / mu * eps * eps
        return c * eps + coupling / mu * delta + square

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at x_k; y and v of a step that failed belong to it, else they are near."""
        return old.x, new.y, new.v
