"""Formulas as the paper prints them where its own proof gives others, at coefficients of 1.

For comparison only: some of them are too small, and docs/lab/theory.md shows runs that exceed them.
The functions of the same name in `double_loop` and `single_loop` are the ones to use.
"""

from __future__ import annotations

import math

from untuned.solvers.dtfbo import DTFBO
from untuned.solvers.stfbo import STFBO
from untuned.theory import double_loop, single_loop
from untuned.theory.constants import (
    Constants,
    l_phi,
    l_v_bar,
    l_y,
    require_accuracy,
    sensitivity,
)
from untuned.theory.double_loop import thresholds, tolerances


def c_f(k: Constants, solver: DTFBO, T: int) -> float:
    """lm:boundoff_double, with C_fy for C_fx (oddity 1)."""
    solved = 2 * tolerances(solver, T).v + 4 * k.C_fy**2
    return math.sqrt(l_y(k) ** 2 * solved + 4 * k.C_fy**2)


def l_bar(k: Constants) -> float:
    """lm:objective_double, with C_gyy for C_gxy and sqrt(2) for 2 (oddities 3 and 4)."""
    in_y = (k.C_fy * k.L_g2 / k.mu) ** 2 + k.L_f1**2 + (k.C_gyy * l_v_bar(k)) ** 2
    return max(2 * math.sqrt(in_y), math.sqrt(2) * k.C_gyy)


def epsilon_prime(k: Constants, solver: DTFBO, T: int) -> float:
    """lm:objective_double with the printed L-bar."""
    epsilon = tolerances(solver, T)
    return (l_bar(k) / k.mu) ** 2 * (epsilon.y + epsilon.v)


def c_0(k: Constants, solver: DTFBO) -> float:
    """eq:c0_double, with half the term of stage one (oddity 2)."""
    return 2 * k.phi_gap + l_phi(k) * (thresholds(k, solver).alpha / solver.alpha0) ** 2 / 2


def c_1(k: Constants, solver: DTFBO) -> float:
    """eq:c1_double, with the epsilon' of eq:epsilonprime1 (oddity 5)."""
    extra = (2 / k.mu**2 * sensitivity(k) + 1) * k.L_g1**2 + 2 / k.mu**2
    return c_0(k, solver) + l_bar(k) ** 2 * extra / solver.alpha0


def theorem_1(k: Constants, solver: DTFBO, T: int) -> float:
    """Theorem 1 with the printed c_1."""
    c = c_1(k, solver)
    return c * (thresholds(k, solver).alpha + 2 * c) / T


def beta_max(k: Constants, solver: DTFBO, T: int) -> float:
    """eq:y_k2_doube7, without the start of y (oddity 7) and with the printed C_f."""
    moved = l_y(k) * c_f(k, solver, T) / solver.alpha0
    start = 2 * tolerances(solver, T).y / k.mu**2 + 2 * moved**2
    c = thresholds(k, solver).beta
    return c + k.L_g1 * (start + 2 * math.log(c / solver.beta0) + 1)


def p_prime(k: Constants, solver: DTFBO, T: int) -> float:
    """lm:subloop-bound-P, with L_g1^2 (beta_max - C_beta) in the logarithm (oddity 9)."""
    c, epsilon = thresholds(k, solver).beta, tolerances(solver, T).y
    most = beta_max(k, solver, T)
    first = 2 * math.log(c / solver.beta0) / math.log1p(epsilon / c**2)
    return first + most / k.mu * math.log(k.L_g1**2 * (most - c) / epsilon)


def q_prime(k: Constants, solver: DTFBO, T: int) -> float:
    """lm:subloop-bound-Q, with C_gyy^2 (gamma_max - C_gamma) in the logarithm (oddity 9)."""
    c, epsilon = thresholds(k, solver).gamma, tolerances(solver, T).v
    most = double_loop.gamma_max(k, solver, T)
    first = 2 * math.log(c / solver.gamma0) / math.log1p(epsilon / c**2)
    return first + most / k.mu * math.log(k.C_gyy**2 * (most - c) / epsilon)


def closed_form_steps(k: Constants, solver: STFBO, epsilon: float) -> float:
    """T = M N / epsilon log^4(M / epsilon) with N = 12^4, of the proof of Corollary 2.

    M is such that the bound is at most M log^4(T) / T for T >= 3 (below e no M does, since
    log(1) = 0). The proof asks for epsilon "sufficiently small": log log z <= log(z) / 4 at
    z = M / epsilon, which fails between z = 4.2 and z = 5503; there T is taken at z = 5504.
    """
    epsilon = require_accuracy(epsilon)
    bracket = single_loop.a_4(k, solver) + single_loop.b_4(k, solver) + 4 * k.phi_gap / solver.eta_x
    phi = single_loop.a_1(k, solver) + single_loop.b_1(k, solver)
    M = bracket * phi * (bracket * phi + single_loop.thresholds(k, solver).alpha) / 2
    z = max(M / epsilon, 5504.0)
    return max(3.0, 12**4 * z * math.log(z) ** 4)
