"""TTSA: one y-step and one x-step on two time scales, in plain NumPy.

Written from the specification alone, as a judge of other implementations: clear first, never fast.
"""

import numpy as np

from reference.series import Tally, hia


def ttsa(problem, x, y, T, *, step_size, outer_ratio, rows, uniform, linear_steps=10) -> list[dict]:
    """Make T x-updates; return one record per update.

    rows.inner() and rows.outer() give the next row indices of their streams, or None for all.
    uniform(t) in [0, 1) picks the Neumann term of step t.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    records = []
    for t in range(T):
        rho = step_size / (t + 1) ** (2 / 5)
        sigma = step_size
        gamma = (step_size / outer_ratio) / (t + 1) ** (3 / 5)
        tally = Tally(problem, rows)

        B = tally.inner()
        y = y - rho * tally.g_y(x, y, B)

        # From here on everything is taken at (x_t, y_{t+1}).
        C = tally.outer()
        outer = tally.f(x, y, C)
        f_x, f_y = tally.f_x_and_f_y(x, y, C)
        v = hia(tally, x, y, f_y, n=linear_steps, sigma=sigma, uniform=uniform(t))
        direction = f_x - tally.g_xy(x, y, v, B)  # the rows of the y-step again
        x = x - gamma * direction

        records.append(
            {"x": x, "y": y, "v": v, "direction": direction, "outer": outer, **tally.counts}
        )
    return records
