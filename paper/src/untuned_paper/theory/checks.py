"""The paper's inequalities, checked at every step of a recorded run.

Norms, errors and values come from the problem's closed forms at the recorded points; the method's
own reports are used for its accumulators and loop counts only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.solvers.dtfbo import DTFBO
from untuned.solvers.stfbo import STFBO
from untuned.theory import double_loop, single_loop
from untuned.theory.constants import Constants, l_phi
from untuned_paper.theory.problems import KnownProblem
from untuned_paper.theory.trajectory import Trajectory

ROUNDING = 1e-9  # relative; far above float64's, far below any margin of the theory
EPS = float(np.finfo(np.float64).eps)


class Check(NamedTuple):
    """One inequality over a run: its worst measured value as a share of the bound, and where."""

    claim: str
    holds: bool
    worst: float  # the largest measured / bound; above 1 the claim fails
    step: int

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        return f"{self.claim}: {verdict}, at most {self.worst:.3g} of the bound (step {self.step})"


class Stages(NamedTuple):
    """k_1, k_2, k_3 of Prop. 1: the last step at which an accumulator is within its threshold.

    None where it never leaves it.
    """

    x: int | None
    y: int | None
    v: int | None


def crossing(accumulator: np.ndarray, threshold: float) -> int | None:
    """k with accumulator[k] <= threshold < accumulator[k + 1] (Prop. 1), or None."""
    beyond = np.flatnonzero(accumulator > threshold)
    return int(beyond[0]) - 1 if len(beyond) else None


def average_gradients(problem: KnownProblem, run: Trajectory) -> np.ndarray:
    """(1/T) sum over t < T of |grad Phi(x_t)|^2, for every T up to the length of the run."""
    squares = _squared(problem.grad_phi(run.x[:-1]))
    return np.cumsum(squares) / np.arange(1, run.steps + 1)


def check_double_loop(
    problem: KnownProblem, solver: DTFBO, run: Trajectory, k: Constants | None = None
) -> list[Check]:
    """Algorithm 1, Props. 1 and 2, the descent inequalities, Theorem 1 and what leads to it."""
    k = k or problem.constants()
    T, steps = run.steps, np.arange(run.steps)
    x, alpha = run.x[:-1], run.alpha[1:]
    h = problem.hypergradient(x, run.y, run.v)
    error = _squared(problem.grad_phi(x) - h)
    epsilon = double_loop.tolerances(solver, T)
    epsilon_prime = double_loop.epsilon_prime(k, solver, T)
    c = double_loop.thresholds(k, solver)
    most = [double_loop.alpha_bound(k, solver, T, t) for t in (0, 1)]
    short = run.inner_steps < 2
    first = run.inner_steps * np.sqrt(_squared(problem.inner_grad(x, run.y_before)))
    return [
        _recursion("alpha_{t+1}^2 = alpha_t^2 + |h_t|^2 (Alg. 1)", run.alpha, _squared(h)),
        # Only loops of one step or none say what beta must be from the points recorded.
        _equal("beta_1^2 = beta_0^2 + |grad_y g|^2, anew at every t (Alg. 1)", run.beta[short],
               np.hypot(solver.beta0, first[short]), np.flatnonzero(short)),
        _at_most("P_t epsilon_y <= beta_P^2 - beta_0^2 (eq:k_2bound1)",
                 run.inner_steps * epsilon.y, run.beta**2 - solver.beta0**2),
        _at_most("|grad_y g|^2 <= epsilon_y where the sub-loop ends (Alg. 1)",
                 _squared(problem.inner_grad(x, run.y)), epsilon.y),
        _at_most("|grad_v R|^2 <= epsilon_v where the sub-loop ends (Alg. 1)",
                 _squared(problem.residual(x, run.y, run.v)), epsilon.v),
        _at_most("P_t <= P' (Prop. 2)", run.inner_steps, double_loop.p_prime(k, solver, T)),
        _at_most("Q_t <= Q' (Prop. 2)", run.linear_steps, double_loop.q_prime(k, solver, T)),
        _at_most("beta <= beta_max (eq:y_k2_doube7)", run.beta,
                 double_loop.beta_max(k, solver, T)),
        _at_most("gamma <= gamma_max (eq:v_k3_doube7)", run.gamma,
                 double_loop.gamma_max(k, solver, T)),
        _at_most("|h_t| <= C_f (lm:boundoff_double)", np.sqrt(_squared(h)),
                 double_loop.c_f(k, solver, T)),
        _at_most("|grad Phi - h_t|^2 <= epsilon' (eq:doubledescent3)", error, epsilon_prime),
        _descent(problem, run, k, solver.eta_x / alpha, h, epsilon_prime),
        _late_descent(problem, run, k, solver.eta_x / alpha, h, epsilon_prime, alpha > c.alpha),
        _at_most("alpha_t <= C_alpha + 2 c_0 + 2 t epsilon' / alpha_0 (lm:alpha_double)",
                 run.alpha[1:], most[0] + (steps + 1) * (most[1] - most[0])),
        _at_most("average |grad Phi|^2 <= c_1 (C_alpha + 2 c_1) / T (Theorem 1)",
                 average_gradients(problem, run)[-1:], double_loop.theorem_1(k, solver, T)),
    ]  # fmt: skip


def check_single_loop(
    problem: KnownProblem, solver: STFBO, run: Trajectory, k: Constants | None = None
) -> list[Check]:
    """Algorithm 2, Prop. 1, and Props. 3 to 5 and Theorem 2 at every step."""
    k = k or problem.constants()
    x, alpha, beta = run.x[:-1], run.alpha[1:], run.beta[1:]
    phi = np.maximum(run.beta, run.gamma)
    g, r = problem.inner_grad(x, run.y), problem.residual(x, run.y, run.v)
    h = problem.hypergradient(x, run.y, run.v)
    in_y, in_v = single_loop.error_weights(k)
    error_bound = in_y * _squared(g) + in_v * _squared(r)
    noise = 8 * EPS * (k.C_fx + k.C_gxy * np.sqrt(_squared(run.v)))  # of h itself
    step = solver.eta_x / (alpha * phi[1:])
    c = single_loop.thresholds(k, solver)
    times = np.arange(1, run.steps + 1)

    def over_time(bound: Callable[..., float]) -> np.ndarray:
        """A bound a log(t) + b at every t from its values at two times."""
        b, a_and_b = bound(1), bound(3)
        return b + (a_and_b - b) * np.log(times) / np.log(3)

    averages = average_gradients(problem, run)
    checked = np.unique(np.geomspace(1, run.steps, 60).astype(int))
    return [
        _recursion("alpha_{t+1}^2 = alpha_t^2 + |h_t|^2 (Alg. 2)", run.alpha, _squared(h)),
        _recursion("beta_{t+1}^2 = beta_t^2 + |grad_y g|^2 (Alg. 2)", run.beta, _squared(g)),
        _recursion("gamma_{t+1}^2 = gamma_t^2 + |grad_v R|^2 (Alg. 2)", run.gamma, _squared(r)),
        _equal("x_{t+1} = x_t - eta_x / (alpha phi) h_t (Alg. 2)",
               run.x[1:], x - step[:, None] * h, times - 1),
        _at_most("|v_t| <= sqrt(2) / mu (phi + C_fy sqrt(t)) (lm:vk)",
                 np.sqrt(_squared(run.v)),
                 np.sqrt(2) / k.mu * (phi[1:] + k.C_fy * np.sqrt(times - 1))),
        _at_most("|grad Phi - h_t|^2 <= error of y and v (eq:gapconvert)",
                 _squared(problem.grad_phi(x) - h), error_bound + noise**2),
        _descent(problem, run, k, step, h, error_bound),
        _late_descent(problem, run, k, step, h, error_bound, alpha > c.alpha),
        _at_most("sum |grad_y g|^2 / beta <= a_2 log(t+1) + b_2 (Prop. 4)",
                 np.cumsum(_squared(g) / beta),
                 over_time(lambda t: _sum_bound(single_loop.a_2, single_loop.b_2, k, solver, t))),
        _at_most("sum |grad_v R|^2 / phi <= a_3 log(t+1) + b_3 (Prop. 4)",
                 np.cumsum(_squared(r) / phi[1:]),
                 over_time(lambda t: _sum_bound(single_loop.a_3, single_loop.b_3, k, solver, t))),
        _at_most("phi_t <= a_1 log(t) + b_1 (Prop. 5)", phi[1:],
                 over_time(lambda t: single_loop.phi_bound(k, solver, t))),
        _at_most("alpha_t <= C_alpha + (a_4 log(t) + b_4 + 4 gap) phi_t (Prop. 5)", alpha,
                 c.alpha + phi[1:] * over_time(lambda t: single_loop.promise(k, solver, t))),
        _at_most("average |grad Phi|^2 <= the bound (Theorem 2), for every T",
                 averages[checked - 1],
                 np.array([single_loop.theorem_2(k, solver, int(T)) for T in checked])),
    ]  # fmt: skip


def _descent(
    problem: KnownProblem, run: Trajectory, k: Constants, step: np.ndarray, h: np.ndarray,
    error_bound: Any,
) -> Check:  # fmt: skip
    """Prop. 3 and lm:objective_double: by how much Phi misses the descent, over its error term."""
    curved = (1 - l_phi(k) * step) * _squared(h)
    name = "descent of Phi at every step (Prop. 3)"
    return _short(problem, run, k, step, curved, error_bound, name)


def _late_descent(
    problem: KnownProblem, run: Trajectory, k: Constants, step: np.ndarray, h: np.ndarray,
    error_bound: Any, late: np.ndarray,
) -> Check:  # fmt: skip
    """The second form of Prop. 3, for steps with alpha beyond C_alpha."""
    name = "descent of Phi beyond C_alpha (Prop. 3, second form)"
    return _short(problem, run, k, step, _squared(h) / 2, error_bound, name, late)


def _short(
    problem: KnownProblem, run: Trajectory, k: Constants, step: np.ndarray, kept: np.ndarray,
    error_bound: Any, claim: str, where: np.ndarray | None = None,
) -> Check:  # fmt: skip
    """Phi(x+) - Phi(x) + step/2 (|grad Phi|^2 + kept) <= step/2 error_bound."""
    phi = problem.phi(run.x)
    falls = np.diff(phi) + step / 2 * (_squared(problem.grad_phi(run.x[:-1])) + kept)
    # Phi is only known to its own rounding and to that of x.
    moved = EPS * np.sqrt(_squared(run.x[1:]))
    slopes = np.sqrt(_squared(problem.grad_phi(run.x)))
    falls -= 8 * EPS * phi[:-1] + moved * (slopes[1:] + slopes[:-1]) + l_phi(k) * moved**2
    bound = np.broadcast_to(step / 2 * error_bound, falls.shape)
    steps = np.arange(run.steps)
    if where is not None:
        falls, bound, steps = falls[where], bound[where], steps[where]
    return _at_most(claim, np.maximum(falls, 0.0), bound, steps)


def _squared(rows: np.ndarray) -> np.ndarray:
    return (rows**2).sum(-1)


def _at_most(claim: str, measured: Any, bound: Any, steps: np.ndarray | None = None) -> Check:
    measured = np.asarray(measured, np.float64)
    if not measured.size:
        return Check(claim, True, 0.0, -1)
    bound = np.broadcast_to(bound, measured.shape)
    # Zero against a bound of zero is no violation; anything above it, or a NaN, is.
    shares = np.where(measured == 0, 0.0, measured / np.maximum(bound, 1e-300))
    shares = np.where(np.isnan(shares), np.inf, shares)
    at = int(np.argmax(shares))
    where = at if steps is None else int(steps[at])
    return Check(claim, bool(shares[at] <= 1 + ROUNDING), float(shares[at]), where)


def _equal(claim: str, measured: np.ndarray, expected: np.ndarray, steps: np.ndarray) -> Check:
    """Equality up to rounding, as the largest deviation over what is allowed."""
    deviation = np.abs(measured - expected) / (ROUNDING * np.abs(expected) + 1e-300)
    worst = deviation.max(-1) if deviation.ndim > 1 else deviation
    return _at_most(claim, worst, 1.0, steps)


def _recursion(claim: str, accumulator: np.ndarray, squares: np.ndarray) -> Check:
    expected = np.sqrt(accumulator[:-1] ** 2 + squares)
    return _equal(claim, accumulator[1:], expected, np.arange(len(squares)))


def _sum_bound(a: Callable, b: Callable, k: Constants, solver: STFBO, t: int) -> float:
    """A bound on the sum over t steps of squared norms over accumulators (Prop. 4)."""
    return float(a(k, solver) * math.log(t) + b(k, solver))
