"""S-TFBO (Algorithm 2): thresholds, the coefficients a_0 .. b_4, Theorem 2 and Corollary 2.

Every function takes the problem's `Constants` and an `STFBO`, which holds alpha0, beta0, gamma0
and the coefficients of Remark 2. Formulas are the paper's except for the oddities that
docs/theory.md lists by number, where they are what the proof supports; coefficients other than 1
enter by repeating the proofs with steps eta_y / beta, eta_v / phi and eta_x / (alpha phi).
"""

from __future__ import annotations

import functools
import math
import sys
from typing import NamedTuple

from untuned.solvers.stfbo import STFBO
from untuned.theory.constants import (
    Constants,
    l_phi,
    l_v,
    l_y,
    require_accuracy,
    require_numbers,
    require_steps,
    sensitivity,
)


class Thresholds(NamedTuple):
    """C_alpha, C_beta, C_gamma and C_phi."""

    alpha: float
    beta: float
    gamma: float
    phi: float


class Complexity(NamedTuple):
    """Work that suffices for accuracy epsilon: steps, and evaluations (four to a step)."""

    steps: int
    evaluations: int


def phi_0(solver: STFBO) -> float:
    """phi_0 = max(beta0, gamma0)."""
    require_numbers(solver)
    return max(solver.beta0, solver.gamma0)


def l_bar(k: Constants) -> float:
    """L-bar of S-TFBO (Prop. 3): max{2 (C_fy^2 L_g2^2 / mu^2 + L_f1^2)^(1/2), sqrt(2) C_gxy}.

    Printed with C_gyy (oddity 3). The paper uses one symbol for this and for another quantity in
    D-TFBO, see `double_loop.l_bar`.
    """
    in_y = 2 * math.hypot(k.C_fy * k.L_g2 / k.mu, k.L_f1)
    return max(in_y, math.sqrt(2) * k.C_gxy)


@functools.lru_cache
def thresholds(k: Constants, solver: STFBO) -> Thresholds:
    """C_alpha, C_beta, C_gamma, C_phi (def:C).

    C_beta is defined through a_0 and a_0 through C_beta. Since a_0 falls as C_beta grows there is
    exactly one C_beta that equals its own maximum, and that is taken (oddity 10). The 1 in the
    maxima and 64 a_0^2 have no unit beside beta and gamma: the proof takes log(phi).
    """
    require_numbers(solver)
    if solver.alpha0 < 1:
        raise ValueError(
            f"STFBO was given alpha0={solver.alpha0}; Theorem 2 asks for alpha0 >= 1, so raise it."
        )
    mu, L, C = k.mu, k.L_g1, k.C_gyy
    least_beta = max(
        solver.eta_y * (mu + L), solver.eta_y * 2 * mu * L / (mu + L), solver.beta0, 1.0
    )
    low, high = least_beta, max(least_beta, 64 * _a_0(k, solver, least_beta) ** 2)
    while (middle := math.sqrt(low * high)) not in (low, high):
        if middle < 64 * _a_0(k, solver, middle) ** 2:
            low = middle
        else:
            high = middle
    beta = high
    gamma = max(
        solver.eta_v * 2 * (mu + C), solver.eta_v * mu * C / (mu + C), solver.gamma0,
        64 * _a_0(k, solver, beta) ** 2, 1.0, solver.eta_v * C,
    )  # fmt: skip
    alpha = max(2 * solver.eta_x * l_phi(k) / phi_0(solver), solver.alpha0)
    return Thresholds(alpha, beta, gamma, beta + gamma)


def _chain(k: Constants) -> float:
    """(4 (mu + C_gyy)^2 / (mu C_gyy) + 8) B^2 / mu^2: how errors of y enter those of v."""
    mu, C = k.mu, k.C_gyy
    return (4 * (mu + C) ** 2 / (mu * C) + 8) * (sensitivity(k) / mu) ** 2


def _drift_y(k: Constants, solver: STFBO) -> float:
    """(mu + L_g1)^2 L_y^2 / (mu L_g1) (eta_x / eta_y)^2: what moves of x cost y (lm:sumG)."""
    ratio = solver.eta_x / solver.eta_y
    return (k.mu + k.L_g1) ** 2 / (k.mu * k.L_g1) * (l_y(k) * ratio) ** 2


def _drift_v(k: Constants, solver: STFBO) -> float:
    """4 (mu + C_gyy)^2 L_v^2 / (mu C_gyy) (eta_x / eta_v)^2: what moves of x cost v (lm:sumR)."""
    ratio = solver.eta_x / solver.eta_v
    return 4 * (k.mu + k.C_gyy) ** 2 / (k.mu * k.C_gyy) * (l_v(k) * ratio) ** 2


def _start_v(k: Constants, solver: STFBO) -> float:
    """8 (mu + C_gyy) / (mu^2 eta_v), the weight of v's error where its stage two begins.

    Twice the printed 4: the proof of lm:sumR takes that error one step too early (oddity 11).
    """
    return 8 * (k.mu + k.C_gyy) / (k.mu**2 * solver.eta_v)


def _late_y(k: Constants, solver: STFBO) -> float:
    """(mu + L_g1) L_y^2 eta_x^2 / (mu L_g1 eta_y phi_0), from eq:yk3_3."""
    moved = (l_y(k) * solver.eta_x) ** 2 / (solver.eta_y * phi_0(solver))
    return (k.mu + k.L_g1) / (k.mu * k.L_g1) * moved


def y_error(k: Constants, solver: STFBO) -> float:
    """A bound on |y_k - y*(x_k)|^2 at k = k_2, where stage two of y begins.

    max{y_gap, (C_beta^2 / mu^2 + eta_y^2)^(1/2) + eta_x L_y / phi_0}^2. The paper has
    C_beta^2 / mu^2, by summing from k_2 - 1 an inequality that needs beta_{k+1} > C_beta and so
    begins at k_2, and there is no k_2 - 1 where k_2 = 0 (oddity 11). One step later y has moved by
    at most eta_y, and x by at most eta_x / phi_0.
    """
    before = math.hypot(thresholds(k, solver).beta / k.mu, solver.eta_y)
    return max(k.y_gap, before + solver.eta_x * l_y(k) / phi_0(solver)) ** 2


def _v_error(k: Constants, solver: STFBO) -> float:
    """What lm:sumR starts from: 2 (mu + C_gyy) / eta_v |v_{k_3} - v*|^2 without its y-part."""
    moved = solver.eta_v + solver.eta_x * l_v(k) / phi_0(solver)
    at_start = (k.C_fy / k.mu) ** 2  # k_3 = 0: v starts at zero
    step = 2 * (k.mu + k.C_gyy) / solver.eta_v * max(2 * moved**2, at_start)
    seen = thresholds(k, solver).gamma ** 2 + sensitivity(k) ** 2 * y_error(k, solver)
    return _start_v(k, solver) * seen + step


def _a_0(k: Constants, solver: STFBO, c_beta: float) -> float:
    in_y = (_chain(k) + 1) * _drift_y(k, solver) / c_beta
    in_v = _start_v(k, solver) * sensitivity(k) ** 2 * _late_y(k, solver)
    return in_y + in_v + _drift_v(k, solver) / solver.gamma0


def a_0(k: Constants, solver: STFBO) -> float:
    """a_0 (def:barab_a0b0; the text calls it alpha_0 once), with the weight of `_start_v`."""
    return _a_0(k, solver, thresholds(k, solver).beta)


def b_0(k: Constants, solver: STFBO) -> float:
    """b_0 (def:barab_a0b0), with `y_error` for C_beta^2 / mu^2 and the start of v repaired."""
    c = thresholds(k, solver)
    first_stage = _chain(k) * (c.beta**2 / solver.beta0 - solver.beta0)
    from_y = (_chain(k) + 1) * (k.mu + k.L_g1) * y_error(k, solver) / solver.eta_y
    return c.phi + _v_error(k, solver) + first_stage + from_y


def a_1(k: Constants, solver: STFBO) -> float:
    """a_1 = 6 a_0 (def:a1b1)."""
    return 6 * a_0(k, solver)


def b_1(k: Constants, solver: STFBO) -> float:
    """b_1 = 4 a_0 log(C_gxy (a-bar + b-bar) + C_fx + alpha0) + 4 a_0 + 2 b_0 (def:a1b1).

    The printed two logarithms, joined: apart they divide by C_gxy, which may be zero, and the
    second is of a number that may be below 1.
    """
    a = a_0(k, solver)
    return 4 * a * math.log(_reach(k, solver, 1.0)) + 4 * a + 2 * b_0(k, solver)


def _reach(k: Constants, solver: STFBO, phi: float) -> float:
    """C_gxy a-bar phi + C_gxy b-bar + C_fx + alpha0, with a-bar, b-bar of def:barab_a0b0."""
    v = math.sqrt(2) / k.mu * (phi + k.C_fy)
    return k.C_gxy * v + k.C_fx + solver.alpha0


def c_2(k: Constants, solver: STFBO) -> float:
    """c_2 = 2 log(C_gxy a-bar (a_1 + b_1) + C_gxy b-bar + C_fx + alpha0) + 1.

    def:c1_a2b2_a3b3; sum of |h_k|^2 / alpha_{k+1}^2 <= 5 log(t + 1) + c_2 (lm:somebounds).
    """
    return 2 * math.log(_reach(k, solver, a_1(k, solver) + b_1(k, solver))) + 1


def a_2(k: Constants, solver: STFBO) -> float:
    """a_2 = 5 (mu + L_g1)^2 L_y^2 / (mu L_g1 C_beta) (def:c1_a2b2_a3b3)."""
    return 5 * _drift_y(k, solver) / thresholds(k, solver).beta


def b_2(k: Constants, solver: STFBO) -> float:
    """b_2 (def:c1_a2b2_a3b3), with `y_error` for C_beta^2 / mu^2, and no term for k_2 - 1."""
    c = thresholds(k, solver).beta
    first_stage = c**2 / solver.beta0 - solver.beta0
    start = (k.mu + k.L_g1) * y_error(k, solver) / solver.eta_y
    return _drift_y(k, solver) / c * c_2(k, solver) + first_stage + start


def _from_x(k: Constants, solver: STFBO) -> float:
    in_y = _start_v(k, solver) * sensitivity(k) ** 2 * _late_y(k, solver)
    return in_y + _drift_v(k, solver) / thresholds(k, solver).gamma


def a_3(k: Constants, solver: STFBO) -> float:
    """a_3 (def:c1_a2b2_a3b3), with the weight of `_start_v`."""
    return 5 * _from_x(k, solver) + _chain(k) * a_2(k, solver)


def b_3(k: Constants, solver: STFBO) -> float:
    """b_3 (def:c1_a2b2_a3b3), with the starts of y and v repaired as in b_0."""
    first_stage = thresholds(k, solver).gamma ** 2 / solver.gamma0 - solver.gamma0
    chained = _from_x(k, solver) * c_2(k, solver) + _chain(k) * b_2(k, solver)
    return first_stage + _v_error(k, solver) + chained


def error_weights(k: Constants) -> tuple[float, float]:
    """What |grad_y g|^2 and |grad_v R|^2 count for in |grad Phi - h_t|^2 (eq:gapconvert).

    (L-bar / mu)^2 [1 + 2 B^2 / mu^2] and 2 (L-bar / mu)^2.
    """
    scale = (l_bar(k) / k.mu) ** 2
    return scale * (1 + 2 * (sensitivity(k) / k.mu) ** 2), 2 * scale


def a_4(k: Constants, solver: STFBO) -> float:
    """a_4 (def:a4b4), over alpha0 where C_alpha is printed.

    In stage one alpha is below C_alpha and only known to be above alpha0; the proof of Theorem 2
    divides by alpha0 and then states equality with a_4 and b_4 (oddity 12).
    """
    in_y, in_v = error_weights(k)
    return 2 * (in_y * a_2(k, solver) + in_v * a_3(k, solver)) / solver.alpha0


def b_4(k: Constants, solver: STFBO) -> float:
    """b_4 (def:a4b4), over alpha0 where C_alpha is printed (see `a_4`)."""
    in_y, in_v = error_weights(k)
    errors = 2 * (in_y * b_2(k, solver) + in_v * b_3(k, solver)) / solver.alpha0
    grown = (thresholds(k, solver).alpha / (solver.alpha0 * phi_0(solver))) ** 2
    return errors + 2 * solver.eta_x * l_phi(k) * grown


def phi_bound(k: Constants, solver: STFBO, t: int) -> float:
    """phi_t <= a_1 log(t) + b_1 for t >= 1 (Prop. 5, lm:varphi); C_phi, which is less, at t = 0."""
    if t < 1:
        return thresholds(k, solver).phi
    return a_1(k, solver) * math.log(t) + b_1(k, solver)


def promise(k: Constants, solver: STFBO, t: int) -> float:
    """a_4 log(t) + b_4 + 4 (Phi(x0) - inf Phi) / eta_x, the bracket of Prop. 5 and Theorem 2."""
    gap = 4 * k.phi_gap / solver.eta_x
    return a_4(k, solver) * math.log(max(t, 1)) + b_4(k, solver) + gap


def theorem_2(k: Constants, solver: STFBO, T: int) -> float:
    """Theorem 2: the bound on (1/T) sum over t < T of |grad Phi(x_t)|^2, of order log^4(T) / T.

    The main text sums to t = T, the proof to T - 1, as here (oddity 13).
    """
    logarithm = _log_theorem_2(k, solver, require_steps(T))
    return math.exp(logarithm) if logarithm < math.log(sys.float_info.max) else math.inf


def _log_theorem_2(k: Constants, solver: STFBO, T: int) -> float:
    """Its logarithm: on an ill-conditioned problem the bound itself leaves the range of floats."""
    try:
        factors = promise(k, solver, T), phi_bound(k, solver, T)
    except OverflowError:
        return math.inf
    if not all(factors):
        return -math.inf
    product = math.log(factors[0]) + math.log(factors[1])
    # log(product + C_alpha), where the product may be too large to write down
    sum_of_both = product + math.log1p(thresholds(k, solver).alpha * math.exp(-product))
    return product + sum_of_both - math.log(2 * T)


def corollary_2(k: Constants, solver: STFBO, epsilon: float) -> Complexity:
    """Corollary 2: the least T from which on Theorem 2 promises epsilon.

    Found by bisection from e^4 up, beyond which the bound only falls; no large constant is lost.
    """
    goal = math.log(require_accuracy(epsilon))
    if not math.isfinite(_log_theorem_2(k, solver, 1)):
        raise ValueError(
            f"mu is {k.mu:.3g}, so small beside the other constants that the bound of Theorem 2 "
            "leaves the range of floats; there is no number of steps to give."
        )
    low = high = math.ceil(math.e**4)
    while _log_theorem_2(k, solver, high) > goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _log_theorem_2(k, solver, middle) > goal:
            low = middle
        else:
            high = middle
    return Complexity(high, 4 * high)
