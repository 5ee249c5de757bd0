"""BSA, in the benchmark's order: one x-step with a random Neumann term, then a loop of y-steps.

Written from the specification alone, as a judge of other implementations: clear first, never fast.
"""

import numpy as np

from reference.series import Tally, hia


def bsa(
    problem, x, y, T, *, step_size, outer_ratio, rows, uniform, inner_steps=10, linear_steps=10
) -> list[dict]:
    """Make T x-updates; return one record per update. The first x-step uses the given y.

    rows.inner() and rows.outer() give the next row indices of their streams, or None for all.
    uniform(t) in [0, 1) picks the Neumann term of step t.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    records = []
    for t in range(T):
        rho = step_size / (t + 1) ** (1 / 2)  # held through the whole loop of y-steps
        sigma = step_size
        gamma = (step_size / outer_ratio) / (t + 1) ** (1 / 2)
        tally = Tally(problem, rows)

        # Everything for x is taken at (x_t, y_t).
        C = tally.outer()
        outer = tally.f(x, y, C)
        f_x, f_y = tally.f_x_and_f_y(x, y, C)
        v = hia(tally, x, y, f_y, n=linear_steps, sigma=sigma, uniform=uniform(t))
        direction = f_x - tally.g_xy(x, y, v, tally.inner())
        x = x - gamma * direction

        for _ in range(inner_steps):  # at the new x
            y = y - rho * tally.g_y(x, y, tally.inner())

        records.append(
            {"x": x, "y": y, "v": v, "direction": direction, "outer": outer, **tally.counts}
        )
    return records
