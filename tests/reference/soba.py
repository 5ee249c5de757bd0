"""SOBA: x, y and v move at once, each along its plain direction, in plain NumPy.

Written from the specification alone, as a judge of other implementations: clear first, never fast.
"""

import numpy as np

from reference.series import Tally


def soba(problem, x, y, T, *, step_size, outer_ratio, rows) -> list[dict]:
    """Make T x-updates; return one record per update.

    rows.inner() and rows.outer() give the next row indices of their streams, or None for all.
    A record's v is v_{t+1}, like its x and y; its direction was taken with v_t.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    v = np.zeros_like(y)
    records = []
    for t in range(T):
        rho = step_size / (t + 1) ** (1 / 2)  # for y and for v
        gamma = (step_size / outer_ratio) / (t + 1) ** (1 / 2)
        tally = Tally(problem, rows)
        B, C = tally.inner(), tally.outer()

        # All three directions are taken at (x_t, y_t, v_t), before anything moves.
        outer = tally.f(x, y, C)
        f_x, f_y = tally.f_x_and_f_y(x, y, C)
        y_direction = tally.g_y(x, y, B)
        v_direction = tally.g_yy(x, y, v, B) - f_y
        x_direction = f_x - tally.g_xy(x, y, v, B)

        y = y - rho * y_direction
        v = v - rho * v_direction
        x = x - gamma * x_direction

        records.append(
            {"x": x, "y": y, "v": v, "direction": x_direction, "outer": outer, **tally.counts}
        )
    return records
