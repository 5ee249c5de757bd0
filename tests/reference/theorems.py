"""The formulas of the paper's appendix in mpmath, written from its source line by line.

`printed=True` gives every formula as it stands in the paper. `printed=False` changes only what
docs/theory.md lists, each change marked by its number there. Coefficients are 1.
"""

from mpmath import ceil, floor, log, mp, mpf, sqrt

mp.dps = 50


def _numbers(k, *more):
    names = ("mu", "L_f1", "L_g1", "L_g2", "C_fx", "C_fy", "C_gxy", "C_gyy", "phi_gap", "y_gap")
    return [mpf(getattr(k, name)) for name in names] + [mpf(value) for value in more]


def basics(k):
    mu, Lf, _, L2, _, Cfy, Cxy, *_ = _numbers(k)
    L_y = Cxy / mu
    return {
        "l_phi": (Lf + L2 * Cfy / mu) * (1 + Cxy / mu) ** 2,
        "l_y": L_y,
        "l_v": (Lf / mu + Cfy * L2 / mu**2) * (1 + L_y),
        "l_v_bar": Lf / mu + Cfy * L2 / mu**2,
    }


def double(k, alpha0, beta0, gamma0, T, printed):
    mu, Lf, Lg, L2, Cfx, Cfy, Cxy, Cyy, gap, ygap, a0, b0, g0, T = _numbers(
        k, alpha0, beta0, gamma0, T
    )
    ey = ev = 1 / T
    L_phi, L_v_bar = basics(k)["l_phi"], basics(k)["l_v_bar"]
    C_a, C_b, C_g = max(2 * L_phi, a0), max(Lg, b0), max(Cyy, g0)
    x_bound = Cfy if printed else Cfx  # 1
    C_f = sqrt(2 * Cxy**2 * ev / mu**2 + 4 * Cxy**2 * Cfy**2 / mu**2 + 4 * x_bound**2)
    cross = Cyy if printed else Cxy  # 3
    root = sqrt(2) if printed else 2  # 4
    in_y = Cfy**2 * L2**2 / mu**2 + Lf**2 + cross**2 * L_v_bar**2
    L_bar = max(2 * sqrt(in_y), root * cross)
    eps = L_bar**2 / mu**2 * (ey + ev)
    half = 2 if printed else 1  # 2
    c_0 = 2 * gap + L_phi * C_a**2 / (half * a0**2)
    tail = 2 * L_bar**2 / mu**2
    if printed:  # 5
        tail += (2 / mu**2 * (L2 * Cfy / mu + Lf) + 1) * Lg**2 * L_bar**2
    c_1 = c_0 + tail / a0
    start_y = 2 * ey / mu**2 + 2 * Cxy**2 * C_f**2 / (mu**2 * a0**2)
    if not printed:
        start_y = max(start_y, ygap**2)  # 7
    start_v = 2 * (ey if printed else ev) / mu**2 + 8 * Cfy**2 / mu**2  # 8
    b_max = C_b + Lg * (start_y + 2 * log(C_b / b0) + 1)
    g_max = C_g + Cyy * (start_v + 2 * log(C_g / g0) + 1)
    P_1 = log(C_b**2 / b0**2) / log(1 + ey / C_b**2)
    Q_1 = log(C_g**2 / g0**2) / log(1 + ev / C_g**2)
    if printed:
        P = P_1 + b_max / mu * log(Lg**2 * (b_max - C_b) / ey)
        Q = Q_1 + g_max / mu * log(Cyy**2 * (g_max - C_g) / ev)
    else:  # 9, and whole steps
        P = floor(P_1) + ceil(b_max / mu * max(0, log(Lg * (b_max - C_b) / ey)))
        Q = floor(Q_1) + ceil(g_max / mu * max(0, log(Cyy * (g_max - C_g) / ev)))
    return {
        "thresholds": (C_a, C_b, C_g), "c_f": C_f, "l_bar": L_bar, "epsilon_prime": eps,
        "c_0": c_0, "c_1": c_1, "beta_max": b_max, "gamma_max": g_max, "p_prime": P,
        "q_prime": Q, "theorem_1": c_1 * (C_a + 2 * c_1) / T,
    }  # fmt: skip


def single(k, alpha0, beta0, gamma0, T, C_b, printed):
    """C_beta is taken as given, since the paper defines it through itself; the caller checks it."""
    mu, Lf, Lg, L2, Cfx, Cfy, Cxy, Cyy, gap, ygap, a0_, b0_, g0_, C_b = _numbers(
        k, alpha0, beta0, gamma0, C_b
    )
    p0 = max(b0_, g0_)
    L_phi, L_y, L_v = (basics(k)[name] for name in ("l_phi", "l_y", "l_v"))
    B = L2 * Cfy / mu + Lf
    cross = Cyy if printed else Cxy  # 3
    L_bar = max(2 * sqrt(Cfy**2 * L2**2 / mu**2 + Lf**2), sqrt(2) * cross)
    G = (4 * (mu + Cyy) ** 2 / (mu * Cyy) + 8) * B**2 / mu**2
    D = (mu + Lg) ** 2 * L_y**2 / (mu * Lg)
    four = 4 if printed else 8  # 11
    late = four * (mu + Cyy) * (mu + Lg) * L_y**2 / (mu**3 * Lg * p0) * B**2
    drift = 4 * (mu + Cyy) ** 2 * L_v**2 / (mu * Cyy)
    a_0 = (G + 1) * D / C_b + late + drift / g0_
    C_g = max(2 * (mu + Cyy), mu * Cyy / (mu + Cyy), g0_, 64 * a_0**2, 1, Cyy)
    C_a = max(2 * L_phi / p0, a0_)
    least = max(mu + Lg, 2 * mu * Lg / (mu + Lg), b0_, 64 * a_0**2, 1)
    if printed:
        E_y, extra, step = C_b**2 / mu**2, D / p0, 0
    else:  # 11
        E_y = max(ygap, sqrt(C_b**2 / mu**2 + 1) + L_y / p0) ** 2
        extra, step = 0, 2 * (mu + Cyy) * max(2 * (1 + L_v / p0) ** 2, Cfy**2 / mu**2)
    start = four * (mu + Cyy) / mu**2 * (B**2 * E_y + C_g**2) + step
    y_start = (mu + Lg) * E_y + extra
    b_0 = C_b + C_g + start + G * (C_b**2 / b0_ - b0_) + (G + 1) * y_start
    a_bar, b_bar = sqrt(2) / mu, sqrt(2) * Cfy / mu
    a_1 = 6 * a_0
    b_1 = 4 * a_0 * log(1 + (Cxy * b_bar + Cfx + a0_) / (Cxy * a_bar))
    b_1 += 4 * a_0 * log(Cxy * a_bar) + 4 * a_0 + 2 * b_0
    c_2 = 2 * log(Cxy * a_bar * a_1 + Cxy * a_bar * b_1 + Cxy * b_bar + Cfx + a0_) + 1
    a_2 = 5 * D / C_b
    b_2 = D / C_b * c_2 + C_b**2 / b0_ - b0_ + y_start
    a_3 = 5 * late + 5 * drift / C_g + G * a_2
    b_3 = C_g**2 / g0_ - g0_ + start + (late + drift / C_g) * c_2 + G * b_2
    under = C_a if printed else a0_  # 12
    bracket = 1 + 2 / mu**2 * B**2
    a_4 = 2 * L_bar**2 * a_2 / (mu**2 * under) * bracket + 4 * L_bar**2 * a_3 / (mu**2 * under)
    b_4 = 2 * L_bar**2 * b_2 / (mu**2 * under) * bracket + 4 * L_bar**2 * b_3 / (mu**2 * under)
    b_4 += 2 * L_phi / p0**2 * C_a**2 / a0_**2
    A, F = a_4 * log(T) + b_4 + 4 * gap, a_1 * log(T) + b_1
    return {
        "thresholds": (C_a, C_b, C_g, C_b + C_g), "least_beta": least, "l_bar": L_bar,
        "a_0": a_0, "b_0": b_0, "a_1": a_1, "b_1": b_1, "c_2": c_2, "a_2": a_2, "b_2": b_2,
        "a_3": a_3, "b_3": b_3, "a_4": a_4, "b_4": b_4,
        "theorem_2": (A**2 * F**2 + C_a * A * F) / (2 * T),
    }  # fmt: skip
