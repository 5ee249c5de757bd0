"""S-TFBO: Algorithm 2 of the paper, with the coefficients of Remark 2, in plain NumPy.

Written from the paper alone, as a judge of other implementations: clear first, never fast.
"""

from math import sqrt

import numpy as np


def stfbo(
    problem,
    x,
    y,
    v,
    T,
    *,
    alpha0=1.0,
    beta0=1.0,
    gamma0=1.0,
    eta_x=1.0,
    eta_y=1.0,
    eta_v=1.0,
    batches=None,
) -> list[dict]:
    """Run T iterations; return one record per iteration.

    batches(t) gives (inner, outer) row indices: inner of shape (1, batch_size), used by all
    three derivatives of g; outer one index array, used by f and its derivatives.
    """
    x, y, v = (np.array(z, dtype=np.float64) for z in (x, y, v))
    squared_alpha, squared_beta, squared_gamma = alpha0**2, beta0**2, gamma0**2
    records = []
    for t in range(T):
        inner, outer_rows = (None, None) if batches is None else batches(t)
        if inner is not None and len(inner) != 1:
            raise ValueError("stfbo takes one inner batch per iteration")
        rows = None if inner is None else inner[0]

        # All three directions are taken at (x_t, y_t, v_t), before anything moves.
        y_direction = problem.g_y(x, y, rows)
        v_direction = problem.g_yy(x, y, v, rows) - problem.f_y(x, y, outer_rows)
        x_direction = problem.f_x(x, y, outer_rows) - problem.g_xy(x, y, v, rows)
        outer = problem.f(x, y, outer_rows)

        squared_y, squared_v, squared_x = (
            float(np.sum(d**2)) for d in (y_direction, v_direction, x_direction)
        )
        squared_beta = squared_beta + squared_y
        squared_gamma = squared_gamma + squared_v
        squared_alpha = squared_alpha + squared_x
        alpha, beta, gamma = sqrt(squared_alpha), sqrt(squared_beta), sqrt(squared_gamma)
        phi = max(beta, gamma)

        step_y = eta_y / beta
        step_v = eta_v / phi
        step_x = eta_x / (alpha * phi)
        y = y - step_y * y_direction
        v = v - step_v * v_direction
        x = x - step_x * x_direction

        records.append(
            {
                "t": t,
                "x": x,
                "y": y,
                "v": v,
                "alpha": alpha,
                "beta": beta,
                "gamma": gamma,
                "hypergrad_norm": sqrt(squared_x),
                "inner_grad_norm": sqrt(squared_y),
                "residual_norm": sqrt(squared_v),
                "outer": float(outer),
                "step_x": step_x,
                "step_y": step_y,
                "step_v": step_v,
            }
        )
    return records
