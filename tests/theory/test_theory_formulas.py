"""The paper's quantities against mpmath written from its source, hand arithmetic, and scaling."""

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import theorems
from untuned.solvers import DTFBO, STFBO
from untuned.theory import Constants, double_loop, single_loop
from untuned.theory import constants as basics
from untuned_paper.theory import paper_formulas

ROUND = Constants(1, 1, 2, 1, 1, 1, 1, 2, 1, 0)  # small whole numbers, for arithmetic by hand

sizes = st.floats(0.05, 20.0)
starts = st.floats(0.2, 5.0)


@st.composite
def constants(draw):
    mu = draw(sizes)
    names = ("L_f1", "L_g2", "C_fx", "C_fy", "C_gxy", "phi_gap", "y_gap")
    rest = {name: draw(sizes) for name in names}
    rest |= {name: mu * (1 + draw(sizes)) for name in ("L_g1", "C_gyy")}
    return Constants(mu=mu, **rest)


def close(ours, theirs):
    assert ours == pytest.approx(float(theirs), rel=1e-9), (ours, theirs)


@settings(max_examples=40, deadline=None)
@given(constants(), starts, starts, starts, st.integers(1, 10**6))
def test_double_loop_is_the_appendix(k, alpha0, beta0, gamma0, T):
    solver = DTFBO(alpha0=alpha0, beta0=beta0, gamma0=gamma0)
    for name, expected in theorems.basics(k).items():
        close(getattr(basics, name)(k), expected)
    judge = theorems.double(k, alpha0, beta0, gamma0, T, printed=False)
    for ours, theirs in zip(double_loop.thresholds(k, solver), judge["thresholds"], strict=True):
        close(ours, theirs)
    close(double_loop.l_bar(k), judge["l_bar"])
    close(double_loop.c_0(k, solver), judge["c_0"])
    for name in ("c_f", "epsilon_prime", "c_1", "beta_max", "gamma_max", "theorem_1"):
        close(getattr(double_loop, name)(k, solver, T), judge[name])
    for name in ("p_prime", "q_prime"):  # whole numbers, which rounding may move by one
        assert abs(getattr(double_loop, name)(k, solver, T) - judge[name]) <= 1 + 1e-9 * judge[name]


@settings(max_examples=20, deadline=None)
@given(constants(), starts, starts, st.integers(1, 10**6))
def test_printed_formulas_are_those_of_the_paper(k, alpha0, beta0, T):
    solver = DTFBO(alpha0=alpha0, beta0=beta0)
    judge = theorems.double(k, alpha0, beta0, 1.0, T, printed=True)
    close(paper_formulas.l_bar(k), judge["l_bar"])
    close(paper_formulas.c_0(k, solver), judge["c_0"])
    close(paper_formulas.c_1(k, solver), judge["c_1"])
    for name in ("c_f", "epsilon_prime", "theorem_1", "beta_max", "p_prime", "q_prime"):
        close(getattr(paper_formulas, name)(k, solver, T), judge[name])


COEFFICIENTS = ("a_0", "b_0", "a_1", "b_1", "c_2", "a_2", "b_2", "a_3", "b_3", "a_4", "b_4")


@settings(max_examples=40, deadline=None)
@given(constants(), st.floats(1.0, 5.0), starts, starts, st.integers(1, 10**9))
def test_single_loop_is_the_appendix(k, alpha0, beta0, gamma0, T):
    solver = STFBO(alpha0=alpha0, beta0=beta0, gamma0=gamma0)
    ours = single_loop.thresholds(k, solver)
    judge = theorems.single(k, alpha0, beta0, gamma0, T, ours.beta, printed=False)
    close(ours.beta, judge["least_beta"])  # C_beta equals its own maximum
    for mine, theirs in zip(ours, judge["thresholds"], strict=True):
        close(mine, theirs)
    close(single_loop.l_bar(k), judge["l_bar"])
    for name in COEFFICIENTS:
        close(getattr(single_loop, name)(k, solver), judge[name])
    if judge["theorem_2"] < 1e308:
        close(single_loop.theorem_2(k, solver, T), judge["theorem_2"])
    else:
        assert single_loop.theorem_2(k, solver, T) == math.inf


@settings(max_examples=40, deadline=None)
@given(constants(), st.floats(1.0, 5.0), starts, starts)
def test_repairs_only_ever_raise_the_bounds_of_the_single_loop(k, alpha0, beta0, gamma0):
    """At the C_beta of ours, what the proof supports is nowhere below what is printed.

    L-bar is set aside: C_gxy in place of C_gyy may be smaller.
    """
    k = dataclasses.replace(k, C_gxy=k.C_gyy)
    c_beta = single_loop.thresholds(k, STFBO(alpha0=alpha0, beta0=beta0, gamma0=gamma0)).beta
    ours, theirs = (
        theorems.single(k, alpha0, beta0, gamma0, 100, c_beta, printed=flag)
        for flag in (False, True)
    )
    for name in ("a_0", "a_3", "a_4", "b_3", "b_4", "theorem_2"):
        assert ours[name] >= theirs[name] * (1 - 1e-12), name


def test_double_loop_by_hand():
    """With whole numbers, as worked out on paper from the source."""
    solver = DTFBO()
    assert basics.l_phi(ROUND) == 8  # (1 + 1) (1 + 1)^2
    assert (basics.l_y(ROUND), basics.l_v_bar(ROUND), basics.l_v(ROUND)) == (1, 2, 4)
    assert double_loop.thresholds(ROUND, solver) == (16, 2, 2)
    assert double_loop.c_0(ROUND, solver) == 2 + 8 * 256
    close(double_loop.l_bar(ROUND) ** 2, 4 * (1 + 1 + 4))
    close(double_loop.epsilon_prime(ROUND, solver, 12), Fraction(24 * 2, 12))
    close(double_loop.c_1(ROUND, solver, 12), 2050 + 48)
    close(double_loop.theorem_1(ROUND, solver, 7), Fraction(2098 * (16 + 2 * 2098), 7))
    close(double_loop.c_f(ROUND, solver, 4) ** 2, Fraction(2, 4) + 4 + 4)
    close(double_loop.alpha_bound(ROUND, solver, 12, 3), 16 + 2 * 2050 + 2 * 3 * 4)
    # L_g1 (2/T + 2 C_f^2 + 2 log 2 + 1) beyond C_beta = 2, at T = 4 with C_f^2 = 8.5
    close(double_loop.beta_max(ROUND, solver, 4), 2 + 2 * (0.5 + 17 + 2 * math.log(2) + 1))
    close(double_loop.gamma_max(ROUND, solver, 4), 2 + 2 * (0.5 + 8 + 2 * math.log(2) + 1))


def test_single_loop_by_hand():
    """a_0 = p / C_beta + q with p = 105 * 9/2 and q = 144 + 288, and C_beta = 64 a_0^2."""
    solver = STFBO()
    c = single_loop.thresholds(ROUND, solver)
    p, q = Fraction(945, 2), 8 * 3 * Fraction(3, 2) * 4 + 4 * Fraction(9, 2) * 16
    a_0 = single_loop.a_0(ROUND, solver)
    close(a_0, p / Fraction(c.beta) + q)
    close(c.beta, 64 * a_0**2)
    assert (c.alpha, c.gamma, c.phi) == (16, c.beta, 2 * c.beta)
    close(single_loop.a_1(ROUND, solver), 6 * a_0)
    close(single_loop.a_2(ROUND, solver), 5 * 4.5 / c.beta)
    close(single_loop.l_bar(ROUND) ** 2, 8)
    assert single_loop.error_weights(ROUND) == pytest.approx((8 * (1 + 2 * 4), 2 * 8))


def test_stage_one_is_empty_where_the_start_is_beyond_the_threshold():
    solver = DTFBO(beta0=5.0, gamma0=7.0, alpha0=100.0)
    assert double_loop.thresholds(ROUND, solver) == (100, 5, 7)
    few, many = (double_loop.p_prime(ROUND, solver, T) for T in (10**3, 10**6))
    assert few < many < 3 * few  # only the logarithm of stage two is left
    slow = DTFBO()
    few, many = (double_loop.p_prime(ROUND, slow, T) for T in (10**5, 10**8))
    assert many > 500 * few  # stage one takes order T steps


def test_a_loose_tolerance_leaves_no_second_stage():
    """The logarithm is of a number below 1, and does not make the bound negative."""
    solver = DTFBO(beta0=5.0, gamma0=7.0, c_y=1e6, c_v=1e6)
    k = dataclasses.replace(ROUND, L_g1=1.0, C_gyy=1.0)
    assert 2 * 1e6 / 1 > 1  # epsilon_y itself is in the error
    assert double_loop.p_prime(k, solver, 1) >= 0
    # The printed bound is below zero for constants that are perfectly possible.
    flat = dataclasses.replace(ROUND, mu=1e-3, L_g1=1e-3, C_gyy=1e-3, C_gxy=0.0, C_fy=0.0)
    assert (
        paper_formulas.p_prime(flat, DTFBO(), 1000)
        < 0
        < double_loop.p_prime(flat, DTFBO(), 1000) + 1
    )


def test_a_problem_without_coupling_has_bounds_too():
    """C_gxy = 0, where the printed b_1 divides by zero."""
    k = dataclasses.replace(ROUND, C_gxy=0.0)
    assert basics.l_y(k) == 0 == single_loop.a_2(k, STFBO())
    assert math.isfinite(single_loop.theorem_2(k, STFBO(), 100))
    tiny = dataclasses.replace(ROUND, C_gxy=1e-12)
    close(single_loop.b_1(tiny, STFBO()), single_loop.b_1(k, STFBO()))


@pytest.mark.long
def test_an_ill_conditioned_problem_does_not_overflow():
    k = Constants(1e-5, 1, 100, 1, 1, 1, 1, 100, 1, 1)
    assert single_loop.theorem_2(k, STFBO(), 10) == math.inf
    assert single_loop.corollary_2(k, STFBO(), 0.5).steps > 10**300
    worse = dataclasses.replace(k, mu=1e-30)
    assert single_loop.theorem_2(worse, STFBO(), 10) == math.inf
    with pytest.raises(ValueError, match="mu is 1e-30, so small"):
        single_loop.corollary_2(worse, STFBO(), 0.5)


GROWING = ("L_f1", "L_g2", "C_fx", "C_fy", "C_gxy", "phi_gap", "y_gap")


@settings(max_examples=60, deadline=None)
@given(constants(), st.sampled_from(GROWING), st.floats(1.01, 3.0))
@pytest.mark.long
def test_a_worse_problem_has_no_better_bound(k, name, factor):
    worse = dataclasses.replace(k, **{name: getattr(k, name) * factor})
    for bound in (double_loop.theorem_1, double_loop.p_prime, double_loop.q_prime):
        assert bound(worse, DTFBO(), 100) >= bound(k, DTFBO(), 100)
    assert single_loop.corollary_2(worse, STFBO(), 0.1) >= single_loop.corollary_2(k, STFBO(), 0.1)


def test_bounds_fall_like_one_over_the_steps():
    close(
        double_loop.theorem_1(ROUND, DTFBO(), 10**6), double_loop.theorem_1(ROUND, DTFBO(), 1) / 1e6
    )
    first, last = (single_loop.theorem_2(ROUND, STFBO(), 10**n) for n in (3, 9))
    assert 1e6 / 3**4 < first / last <= 1e6  # log^4(T) / T


@pytest.mark.parametrize("epsilon", [0.5, 1e-3, 1e-6])
def test_corollaries_give_the_first_step_that_the_theorem_reaches(epsilon):
    found = double_loop.corollary_1(ROUND, DTFBO(), epsilon)
    T = found.steps
    at, before = (double_loop.theorem_1(ROUND, DTFBO(), n) for n in (T, T - 1))
    assert at <= epsilon * (1 + 1e-9) < before * (1 + 2e-9)
    P, Q = double_loop.p_prime(ROUND, DTFBO(), T), double_loop.q_prime(ROUND, DTFBO(), T)
    assert found == (T, P, Q, T * (P + Q + 4))
    found = single_loop.corollary_2(ROUND, STFBO(), epsilon)
    at, before = (single_loop.theorem_2(ROUND, STFBO(), found.steps - n) for n in (0, 1))
    assert at <= epsilon * (1 + 1e-9) < before * (1 + 2e-9)
    assert found.evaluations == 4 * found.steps
    paper = paper_formulas.closed_form_steps(ROUND, STFBO(), epsilon)
    assert paper >= found.steps
    assert single_loop.theorem_2(ROUND, STFBO(), math.ceil(paper)) <= epsilon


def test_complexity_orders_are_those_of_the_corollaries():
    """Evaluations: 1 / epsilon^2 for D-TFBO, 1 / epsilon up to logarithms for S-TFBO."""
    small, tiny = (double_loop.corollary_1(ROUND, DTFBO(), e).evaluations for e in (1e-6, 1e-8))
    assert math.log10(tiny / small) / 2 == pytest.approx(2.0, abs=0.01)
    small, tiny = (single_loop.corollary_2(ROUND, STFBO(), e).evaluations for e in (1e-6, 1e-8))
    assert 1.0 <= math.log10(tiny / small) / 2 < 1.1


def in_other_units(k, unit, scale):
    """The constants after x = unit x', y = unit y', f' = scale f, g' = scale g.

    x and y change alike, since L_f1, L_g1 and L_g2 are joint in both.
    """
    powers = {"L_g2": 3, "C_fx": 1, "C_fy": 1, "phi_gap": 0}  # of the unit; others are second
    changed = {
        name: scale * unit ** powers.get(name, 2) * value
        for name, value in dataclasses.asdict(k).items()
    }
    return Constants(**changed | {"y_gap": k.y_gap / unit})


@settings(max_examples=40, deadline=None)
@given(constants(), st.floats(0.3, 3.0), st.integers(1, 10**4))
def test_coefficients_are_a_change_of_units_in_the_double_loop(k, eta, T):
    """Remark 1 out of the plain theorem: coefficients eta are the plain method in units of eta."""
    tuned = DTFBO(
        alpha0=2.0, beta0=0.7, gamma0=0.4, eta_x=eta, eta_y=eta, eta_v=eta, c_y=0.3, c_v=0.2
    )
    same = DTFBO(
        alpha0=eta * 2.0, beta0=eta * 0.7, gamma0=eta * 0.4, c_y=eta**2 * 0.3, c_v=eta**2 * 0.2
    )
    plain = in_other_units(k, eta, 1.0)
    for name in ("p_prime", "q_prime"):
        bound = getattr(double_loop, name)
        ours, theirs = bound(k, tuned, T), bound(plain, same, T)
        assert abs(ours - theirs) <= 1 + 1e-9 * theirs
    # Gradients and accumulators are eta times as large in the new units.
    close(eta**2 * double_loop.theorem_1(k, tuned, T), double_loop.theorem_1(plain, same, T))
    for name in ("beta_max", "gamma_max", "c_f"):
        bound = getattr(double_loop, name)
        close(eta * bound(k, tuned, T), bound(plain, same, T))


@settings(max_examples=40, deadline=None)
@given(constants(), st.floats(0.5, 2.0), st.floats(0.5, 2.0))
def test_coefficients_are_a_change_of_units_in_the_single_loop(k, eta, scale):
    """Remark 2 likewise, f and g times `scale`; phi then enters the step of x once more.

    C_beta and C_gamma hold the 1 and 64 a_0^2 against beta, which have no unit, so only what
    comes before them can agree.
    """
    grown = scale * eta
    tuned = STFBO(
        alpha0=2 / min(grown, 1), beta0=0.7, gamma0=0.4, eta_x=1 / scale, eta_y=eta, eta_v=eta
    )
    same = STFBO(alpha0=grown * tuned.alpha0, beta0=grown * 0.7, gamma0=grown * 0.4)
    plain = in_other_units(k, eta, scale)
    ours, theirs = single_loop._a_0(k, tuned, 5.0), single_loop._a_0(plain, same, grown * 5.0)
    close(grown * ours, theirs)
    alphas = (single_loop.thresholds(*pair).alpha for pair in ((k, tuned), (plain, same)))
    close(grown * next(alphas), next(alphas))
    close(scale * eta**2 * single_loop.l_bar(k), single_loop.l_bar(plain))


def test_coefficients_of_one_and_a_given_horizon_change_nothing():
    for T in (1, 50):
        a = double_loop.theorem_1(ROUND, DTFBO(), T)
        assert a == double_loop.theorem_1(ROUND, DTFBO(horizon=T, eta_x=1.0, c_y=1.0), T)
