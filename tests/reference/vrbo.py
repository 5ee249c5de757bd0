"""VRBO in plain NumPy: recursive differences along every move, of x as well as of y.

The form in which u and d always belong to the latest evaluated point. Written from the
specification alone, as a judge: clear first, never fast.
"""

import numpy as np

from .joint import Oracle, shia


def vrbo(
    problem, x, y, T, *, step_size, outer_ratio, rows, inner_steps=10, linear_steps=10, period
) -> list[dict]:
    """Make T x-updates, each with inner_steps y-moves and inner_steps + 1 evaluations.

    All steps are constant. At t mod period = 0, u and d are computed anew on all rows.
    Draws, per evaluation: inner (gradients and cross products), outer, then linear_steps inner
    ones for the series; both ends of a difference share them all. A refresh draws nothing.
    In a record direction is what x moved against; u, d and v belong to the (x, y) beside them.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    rho, gamma = step_size, step_size / outer_ratio
    oracle = Oracle(problem, rows)
    records = []
    for t in range(T):
        oracle.reset()
        if t % period == 0:
            f_x, f_y = oracle.outer_grad(x, y, None)
            (v,) = shia(oracle, [(x, y)], [f_y], [None] * linear_steps, step_size)
            u = oracle.inner_grad(x, y, None)
            d = f_x - oracle.cross(x, y, v, None)

        direction = d
        old_x, old_y = x, y  # where u and d belong now
        x = x - gamma * direction
        for j in range(inner_steps + 1):
            # The first difference (j = 0) is along the move of x, the others along moves of y.
            B = oracle.inner()
            C = oracle.outer()
            batches = [oracle.inner() for _ in range(linear_steps)]
            if j == 0:
                outer = problem.f(x, y, C)

            f_x, f_y = oracle.outer_grad(x, y, C)
            old_f_x, old_f_y = oracle.outer_grad(old_x, old_y, C)
            v, old_v = shia(oracle, [(x, y), (old_x, old_y)], [f_y, old_f_y], batches, step_size)
            D = f_x - oracle.cross(x, y, v, B)
            old_D = old_f_x - oracle.cross(old_x, old_y, old_v, B)
            u = u + oracle.inner_grad(x, y, B) - oracle.inner_grad(old_x, old_y, B)
            d = d + D - old_D

            old_x, old_y = x, y
            if j < inner_steps:  # the last evaluation moves nothing
                y = y - rho * u

        records.append(
            {
                "t": t,
                "x": x,
                "y": y,
                "v": v,
                "u": u,
                "d": d,
                "direction": direction,
                "outer": float(outer),
                **oracle.counts,
            }
        )
    return records
