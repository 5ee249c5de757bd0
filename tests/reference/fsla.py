"""FSLA: one y-step, one v-step, one x-step along a corrected running direction, in plain NumPy.

Written from the specification alone, as a judge of other implementations: clear first, never fast.
"""

from math import sqrt

import numpy as np

from reference.series import Tally


def fsla(problem, x, y, T, *, step_size, outer_ratio, rows) -> list[dict]:
    """Make T x-updates; return one record per update. The first direction is the plain one.

    rows.inner() and rows.outer() give the next row indices of their streams, or None for all.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    v = np.zeros_like(y)
    x_previous = x
    d = np.zeros_like(x)  # eta = 1 in the first step, so this value is never felt
    records = []
    for t in range(T):
        rho = step_size / (t + 1) ** (1 / 2)  # for y and for v
        gamma = (step_size / outer_ratio) / (t + 1) ** (1 / 2)
        eta = 1.0 if t == 0 else min(1.0, step_size / sqrt(t + 1))
        tally = Tally(problem, rows)

        B1 = tally.inner()
        y_new = y - rho * tally.g_y(x, y, B1)

        B2, C1 = tally.inner(), tally.outer()
        outer = tally.f(x, y_new, C1)
        f_y = tally.f_y(x, y_new, C1)
        v_new = v - rho * (tally.g_yy(x, y_new, v, B2) - f_y)

        # The same rows at both points; the old one pairs x_{t-1} with y_t and v_t.
        C2, B3 = tally.outer(), tally.inner()
        D = tally.f_x(x, y_new, C2) - tally.g_xy(x, y_new, v_new, B3)
        D_old = tally.f_x(x_previous, y, C2) - tally.g_xy(x_previous, y, v, B3)
        d = D + (1.0 - eta) * (d - D_old)

        x_previous, x, y, v = x, x - gamma * d, y_new, v_new

        records.append({"x": x, "y": y, "v": v, "direction": d, "outer": outer, **tally.counts})
    return records
