"""F2SA in plain NumPy: first derivatives only, with a growing penalty lambda.

The benchmark's parametrisation. Written from the specification alone, as a judge: clear first,
never fast.
"""

import numpy as np

from .joint import Oracle
from .problems import HyperCleaning, Quadratic, RegularizationSelection, _sigmoid


def g_x(problem, x, y, rows=None):
    """grad_x g, by problem; rows pick inner data as they do in g."""
    if isinstance(problem, Quadratic):
        return problem.B.T @ y
    if isinstance(problem, RegularizationSelection):
        return 0.5 * np.exp(x) * y**2  # the data term of g does not hold x
    if isinstance(problem, HyperCleaning):
        rows = np.arange(problem.n_inner) if rows is None else rows
        losses = problem._losses(problem.inner_features[rows], problem.inner_labels[rows], y)
        weights = _sigmoid(x[rows])
        out = np.zeros_like(x)
        np.add.at(out, rows, weights * (1 - weights) * losses / len(rows))  # repeated rows add
        return out
    raise TypeError(f"no grad_x g for {type(problem).__name__}")


def f2sa(
    problem,
    x,
    y,
    T,
    *,
    step_size,
    outer_ratio,
    rows,
    inner_steps=10,
    delta=0.01,
    lambda0=1.0,
) -> list[dict]:
    """Make T x-updates; return one record per update. z starts at y.

    Steps, held over the inner loop: y step_size/(t+1)^(5/7), z step_size/(t+1)^(4/7),
    x (step_size/outer_ratio)/(t+1)^(4/7). After each update lambda += delta/(t+1)^(1/7).
    Draws: per inner step inner (for y), inner (for z), outer; then for x outer, inner (at y),
    inner (at z). In a record lam is lambda after its growth; the update used the one before.
    """
    x, y = (np.array(s, dtype=np.float64) for s in (x, y))
    z = y
    lam = lambda0
    oracle = Oracle(problem, rows)
    records = []
    for t in range(T):
        oracle.reset()
        rho_y = step_size / (t + 1) ** (5 / 7)
        rho_z = step_size / (t + 1) ** (4 / 7)
        gamma = step_size / outer_ratio / (t + 1) ** (4 / 7)
        outer = None

        for _ in range(inner_steps):
            B1 = oracle.inner()
            B2 = oracle.inner()
            C = oracle.outer()
            if outer is None:
                outer = problem.f(x, y, C)
            _, f_y = oracle.outer_grad(x, y, C)
            y = y - rho_y * (f_y + lam * oracle.inner_grad(x, y, B1))
            z = z - rho_z * oracle.inner_grad(x, z, B2)

        C = oracle.outer()
        B1 = oracle.inner()
        B2 = oracle.inner()
        if outer is None:  # only without inner steps
            outer = problem.f(x, y, C)
        f_x, _ = oracle.outer_grad(x, y, C)
        direction = f_x + lam * (g_x(problem, x, y, B1) - g_x(problem, x, z, B2))
        x = x - gamma * direction
        lam = lam + delta / (t + 1) ** (1 / 7)

        records.append(
            {
                "t": t,
                "x": x,
                "y": y,
                "z": z,
                "lam": lam,
                "direction": direction,
                "outer": float(outer),
                "inner_grad_x": 2,
                **oracle.counts,
            }
        )
    return records
