"""D-TFBO (Algorithm 1): thresholds, sub-loop bounds, Theorem 1 and Corollary 1.

Every function takes the problem's `Constants` and a `DTFBO`, which holds alpha0, beta0, gamma0 and
the coefficients of Remark 1, and where it matters the number T of outer steps. At coefficients of
1 the formulas are the paper's, except for the oddities that docs/theory.md lists by number: there
they are what the proof supports, and `theory.paper_formulas` has the printed ones.
Coefficients enter by repeating the proofs with steps eta / accumulator.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from untuned.solvers.dtfbo import DTFBO
from untuned.theory.constants import (
    Constants,
    l_phi,
    l_v_bar,
    l_y,
    require_accuracy,
    require_numbers,
    require_steps,
)


class Thresholds(NamedTuple):
    """C_alpha, C_beta, C_gamma: beyond them steps are short enough to descend."""

    alpha: float
    beta: float
    gamma: float


class Tolerances(NamedTuple):
    """epsilon_y and epsilon_v, the squared norms at which the sub-loops end."""

    y: float
    v: float


class Complexity(NamedTuple):
    """Work that suffices for accuracy epsilon: outer steps, sub-steps of each, evaluations."""

    steps: int
    inner_steps: int
    linear_steps: int
    evaluations: int


def thresholds(k: Constants, solver: DTFBO) -> Thresholds:
    """C_alpha, C_beta, C_gamma (def:C_double), with 2 L_Phi, L_g1, C_gyy times their etas.

    Where a start value is above its constant the threshold is the start value: stage one is
    empty, and log(C_beta / beta0) is zero.
    """
    require_numbers(solver)
    return Thresholds(
        max(2 * solver.eta_x * l_phi(k), solver.alpha0),
        max(solver.eta_y * k.L_g1, solver.beta0),
        max(solver.eta_v * k.C_gyy, solver.gamma0),
    )


def tolerances(solver: DTFBO, T: int) -> Tolerances:
    """epsilon_y = c_y / T and epsilon_v = c_v / T (Algorithm 1, Remark 1)."""
    T = require_steps(T)
    for name in ("inner_steps", "linear_steps"):
        if getattr(solver, name) is not None:
            raise ValueError(
                f"DTFBO was given {name}={getattr(solver, name)}; Theorem 1 is about loops that "
                "run until they are solved, so leave it out."
            )
    if solver.horizon not in (None, T):
        raise ValueError(
            f"DTFBO was given horizon={solver.horizon!r} and T is {T}; Theorem 1 ends the "
            "sub-loops at c_y / T and c_v / T, so leave horizon out."
        )
    return Tolerances(solver.c_y / T, solver.c_v / T)


def l_bar(k: Constants) -> float:
    """L-bar of D-TFBO (lm:objective_double): the hypergradient's error from those of y and v.

    2 max{(C_fy^2 L_g2^2 / mu^2 + L_f1^2 + C_gxy^2 L_v-bar^2)^(1/2), C_gxy}. Printed with C_gyy,
    since its proof writes grad_yy g and grad_y f where the hypergradient has grad_xy g and
    grad_x f (oddity 3), and with sqrt(2) C_gyy where its proof ends with 4 C_gyy^2 (oddity 4).
    """
    in_y = (k.C_fy * k.L_g2 / k.mu) ** 2 + k.L_f1**2 + (k.C_gxy * l_v_bar(k)) ** 2
    return 2 * max(math.sqrt(in_y), k.C_gxy)


def epsilon_prime(k: Constants, solver: DTFBO, T: int) -> float:
    """epsilon' = (L-bar / mu)^2 (epsilon_y + epsilon_v), a bound on |grad Phi - h_t|^2.

    lm:objective_double and eq:doubledescent3; eq:epsilonprime1 prints another value, with a term
    that no step of the proof gives (oddity 5).
    """
    epsilon = tolerances(solver, T)
    return (l_bar(k) / k.mu) ** 2 * (epsilon.y + epsilon.v)


def c_f(k: Constants, solver: DTFBO, T: int) -> float:
    """C_f, a bound on |h_t| (lm:boundoff_double).

    (2 C_gxy^2 epsilon_v / mu^2 + 4 C_gxy^2 C_fy^2 / mu^2 + 4 C_fx^2)^(1/2). Printed with C_fy in
    place of C_fx, since its proof writes grad_y f for grad_x f (oddity 1).
    """
    solved = 2 * tolerances(solver, T).v + 4 * k.C_fy**2
    return math.sqrt(l_y(k) ** 2 * solved + 4 * k.C_fx**2)


def c_0(k: Constants, solver: DTFBO) -> float:
    """c_0 = 2 (Phi(x0) - inf Phi) / eta_x + eta_x L_Phi C_alpha^2 / alpha0^2 (eq:c0_double).

    Printed with half the second term: the descent inequality eq:objective_title_double1 has
    L_Phi / (2 alpha) where its proof, and Prop. 3 for S-TFBO, give L_Phi / alpha (oddity 2).
    """
    first_stage = l_phi(k) * (thresholds(k, solver).alpha / solver.alpha0) ** 2
    return 2 * k.phi_gap / solver.eta_x + solver.eta_x * first_stage


def c_1(k: Constants, solver: DTFBO, T: int) -> float:
    """c_1 = c_0 + T epsilon' / alpha0 (eq:c1_double), which does not depend on T.

    With epsilon' of lm:objective_double; see `epsilon_prime` for the printed one.
    """
    return c_0(k, solver) + T * epsilon_prime(k, solver, T) / solver.alpha0


def alpha_bound(k: Constants, solver: DTFBO, T: int, t: int) -> float:
    """alpha_t <= C_alpha + 2 c_0 + 2 t epsilon' / alpha0, for every t <= T (lm:alpha_double)."""
    error = t * epsilon_prime(k, solver, T) / solver.alpha0
    return thresholds(k, solver).alpha + 2 * (c_0(k, solver) + error)


def y_error(k: Constants, solver: DTFBO, T: int) -> float:
    """A bound on |y^{k_2} - y*(x_t)|^2 where stage two of a sub-loop begins (eq:y_k2_doube1).

    max{2 epsilon_y / mu^2 + 2 L_y^2 (eta_x C_f / alpha0)^2, y_gap^2}
    + eta_y^2 (2 log(C_beta / beta0) + 1). The paper has no y_gap: it starts every sub-loop where
    the last one ended, and t = 0 has none before it (oddity 7). Its use of lm:log needs a first
    gradient of at least beta0, which is not given; the sum is at most 2 log(C_beta / beta0)
    without that (oddity 6).
    """
    moved = l_y(k) * solver.eta_x * c_f(k, solver, T) / solver.alpha0
    start = 2 * tolerances(solver, T).y / k.mu**2 + 2 * moved**2
    grown = 2 * math.log(thresholds(k, solver).beta / solver.beta0) + 1
    return max(start, k.y_gap**2) + solver.eta_y**2 * grown


def v_error(k: Constants, solver: DTFBO, T: int) -> float:
    """A bound on |v^{k_3} - v-hat*|^2 where stage two begins (eq:v_k3_new_doube1).

    2 epsilon_v / mu^2 + 8 C_fy^2 / mu^2 + eta_v^2 (2 log(C_gamma / gamma0) + 1); printed with
    epsilon_y (oddity 8). At t = 0 it holds since v starts at zero.
    """
    start = (2 * tolerances(solver, T).v + 8 * k.C_fy**2) / k.mu**2
    grown = 2 * math.log(thresholds(k, solver).gamma / solver.gamma0) + 1
    return start + solver.eta_v**2 * grown


def beta_max(k: Constants, solver: DTFBO, T: int) -> float:
    """beta_max = C_beta + L_g1 / eta_y y_error (eq:y_k2_doube7), a bound on beta in sub-loops."""
    return thresholds(k, solver).beta + k.L_g1 / solver.eta_y * y_error(k, solver, T)


def gamma_max(k: Constants, solver: DTFBO, T: int) -> float:
    """gamma_max = C_gamma + C_gyy / eta_v v_error (eq:v_k3_doube7)."""
    return thresholds(k, solver).gamma + k.C_gyy / solver.eta_v * v_error(k, solver, T)


def p_prime(k: Constants, solver: DTFBO, T: int) -> int:
    """P', the most steps a sub-loop for y takes (Prop. 2, lm:subloop-bound-P).

    log(C_beta^2 / beta0^2) / log(1 + epsilon_y / C_beta^2)
    + beta_max / (eta_y mu) log(L_g1^2 y_error / epsilon_y),
    each rounded to whole steps, the second at least zero: its logarithm is of a number below 1
    where the tolerance is met when stage two begins. Printed with L_g1^2 (beta_max - C_beta) in
    the logarithm, a factor L_g1 more than the error it stands for (oddity 9).
    """
    return _most_steps(
        thresholds(k, solver).beta / solver.beta0,
        tolerances(solver, T).y / thresholds(k, solver).beta ** 2,
        beta_max(k, solver, T) / (solver.eta_y * k.mu),
        k.L_g1**2 * y_error(k, solver, T) / tolerances(solver, T).y,
    )


def q_prime(k: Constants, solver: DTFBO, T: int) -> int:
    """Q', the most steps a sub-loop for v takes (Prop. 2, lm:subloop-bound-Q); see `p_prime`."""
    return _most_steps(
        thresholds(k, solver).gamma / solver.gamma0,
        tolerances(solver, T).v / thresholds(k, solver).gamma ** 2,
        gamma_max(k, solver, T) / (solver.eta_v * k.mu),
        k.C_gyy**2 * v_error(k, solver, T) / tolerances(solver, T).v,
    )


def _most_steps(growth: float, least: float, time: float, excess: float) -> int:
    first = math.floor(2 * math.log(growth) / math.log1p(least))
    return first + math.ceil(time * max(0.0, math.log(excess)))


def theorem_1(k: Constants, solver: DTFBO, T: int) -> float:
    """Theorem 1: (1/T) sum over t < T of |grad Phi(x_t)|^2 <= c_1 (C_alpha + 2 c_1) / T."""
    c = c_1(k, solver, T)
    return c * (thresholds(k, solver).alpha + 2 * c) / T


def corollary_1(k: Constants, solver: DTFBO, epsilon: float) -> Complexity:
    """Corollary 1: the T at which Theorem 1 promises epsilon, and what that costs at most.

    The paper counts T (P' + Q') gradients; `evaluations` adds the test that ends each loop, the
    gradient of f and the cross product, so that it compares with `sum(result.counts.values())`.
    The order 1 / epsilon^2 comes from stage one alone: where beta0 >= eta_y L_g1 and
    gamma0 >= eta_v C_gyy it is 1 / epsilon up to a logarithm.
    """
    T = max(1, math.ceil(theorem_1(k, solver, 1) / require_accuracy(epsilon)))
    inner, linear = p_prime(k, solver, T), q_prime(k, solver, T)
    return Complexity(T, inner, linear, T * (inner + linear + 4))
