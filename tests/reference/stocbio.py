"""StocBiO: a loop of y-steps, the whole Neumann series, one x-step, in plain NumPy.

Written from the specification alone, as a judge of other implementations: clear first, never fast.
"""

import numpy as np

from reference.series import Tally, shia


def stocbio(
    problem, x, y, T, *, step_size, outer_ratio, rows, inner_steps=10, linear_steps=10
) -> list[dict]:
    """Make T x-updates; return one record per update. All three steps are constant.

    rows.inner() and rows.outer() give the next row indices of their streams, or None for all.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    rho = sigma = step_size
    gamma = step_size / outer_ratio
    records = []
    for _ in range(T):
        tally = Tally(problem, rows)

        for _ in range(inner_steps):
            y = y - rho * tally.g_y(x, y, tally.inner())

        C = tally.outer()
        outer = tally.f(x, y, C)
        f_x, f_y = tally.f_x_and_f_y(x, y, C)

        v = shia(tally, x, y, f_y, n=linear_steps, sigma=sigma)  # no memory of the last v

        direction = f_x - tally.g_xy(x, y, v, tally.inner())
        x = x - gamma * direction

        records.append(
            {"x": x, "y": y, "v": v, "direction": direction, "outer": outer, **tally.counts}
        )
    return records
