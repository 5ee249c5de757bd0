"""D-TFBO: Algorithm 1 of the paper, with the coefficients of Remark 1, in plain NumPy.

Written from the paper alone, as a judge of other implementations: clear first, never fast.
"""

from math import nan, sqrt

import numpy as np


def _subloop(gradient, z, scale0, eta, eps, cap, count):
    """One sub-loop, from z with a fresh scale. gradient(z, k) is the gradient for step k.

    With count None it runs while norm^2 > eps, for at most `cap` steps; otherwise it makes
    exactly `count` steps. Returns z, the steps made, the last norm evaluated and the last scale.
    """
    squared_scale = scale0**2
    squared_norm = nan  # stays so only in a fixed loop of zero steps
    k = 0
    while count is None or k < count:
        direction = gradient(z, k)
        squared_norm = np.sum(direction**2)
        # "not >" instead of "<=": a NaN norm ends the loop, as it would in the paper's test
        if count is None and (not squared_norm > eps or k >= cap):
            break
        squared_scale = squared_scale + squared_norm
        z = z - eta / sqrt(squared_scale) * direction
        k += 1
    return z, k, sqrt(squared_norm), sqrt(squared_scale)


def _draws(inner, inner_steps, linear_steps):
    """Rows for y-step p, for v-step q and for the cross product, as three callables."""
    if inner is None or len(inner) == 1:
        # One batch (or all rows) serves the whole iteration.
        rows = None if inner is None else inner[0]
        return (lambda p: rows), (lambda q: rows), rows
    if inner_steps is None or linear_steps is None:
        raise ValueError("fresh draws need integer inner_steps and linear_steps")
    if len(inner) != inner_steps + linear_steps + 1:
        raise ValueError("fresh draws must number inner_steps + linear_steps + 1")
    return (lambda p: inner[p]), (lambda q: inner[inner_steps + q]), inner[-1]


def dtfbo(
    problem,
    x,
    y,
    v,
    T,
    *,
    steps=None,
    alpha0=1.0,
    beta0=1.0,
    gamma0=1.0,
    eta_x=1.0,
    eta_y=1.0,
    eta_v=1.0,
    c_y=1.0,
    c_v=1.0,
    inner_steps=None,
    linear_steps=None,
    cap=10_000,
    anytime=False,
    batches=None,
) -> list[dict]:
    """Run `steps` (default T) outer iterations; return one record per iteration.

    The loops stop at norm^2 <= c/T, or c/(t+1) with anytime; an integer inner_steps or
    linear_steps makes that loop a fixed one. batches(t) gives (inner, outer) row indices:
    inner of shape (draws, batch_size), one draw for all or one per use; outer one index array.
    Outer values (f, grad_x f, grad_y f) come from the iteration's one outer batch.
    """
    x, y, v = (np.array(z, dtype=np.float64) for z in (x, y, v))
    squared_alpha = alpha0**2
    records = []
    for t in range(T if steps is None else steps):
        inner, outer_rows = (None, None) if batches is None else batches(t)
        y_rows, v_rows, cross_rows = _draws(inner, inner_steps, linear_steps)
        horizon = t + 1 if anytime else T

        # y and v carry over from the last iteration; beta and gamma start anew in _subloop.
        # (x=x and the like pin this iteration's values in the lambda.)
        y, P, inner_grad_norm, beta = _subloop(
            lambda z, p, x=x, rows=y_rows: problem.g_y(x, z, rows(p)),
            y, beta0, eta_y, c_y / horizon, cap, inner_steps,
        )  # fmt: skip

        f_y = problem.f_y(x, y, outer_rows)  # fixed while v moves
        v, Q, residual_norm, gamma = _subloop(
            lambda z, q, x=x, y=y, rows=v_rows, f_y=f_y: problem.g_yy(x, y, z, rows(q)) - f_y,
            v, gamma0, eta_v, c_v / horizon, cap, linear_steps,
        )  # fmt: skip

        hypergrad = problem.f_x(x, y, outer_rows) - problem.g_xy(x, y, v, cross_rows)
        squared_norm = np.sum(hypergrad**2)
        outer = problem.f(x, y, outer_rows)
        squared_alpha = squared_alpha + squared_norm
        alpha = sqrt(squared_alpha)
        x = x - eta_x / alpha * hypergrad

        records.append(
            {
                "t": t,
                "x": x,
                "y": y,
                "v": v,
                "alpha": alpha,
                "P": P,
                "Q": Q,
                "hypergrad_norm": sqrt(squared_norm),
                "outer": float(outer),
                "inner_grad_norm": inner_grad_norm,
                "residual_norm": residual_norm,
                "step_x": eta_x / alpha,
                "step_y": eta_y / beta,
                "step_v": eta_v / gamma,
            }
        )
    return records
