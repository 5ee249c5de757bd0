"""F2SA-2 in plain NumPy, from METHODS part 7. As a judge: clear first, never fast."""

import numpy as np

from .f2sa import g_x
from .joint import Oracle


def f2sa2(problem, x, y, T, *, step_size, outer_ratio, rows, inner_steps=10, nu=0.1) -> list[dict]:
    """Make T x-updates with constant steps. Draws: inner, outer, per step on y and for x."""
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    plus = minus = y
    oracle = Oracle(problem, rows)
    records = []
    for _ in range(T):
        oracle.reset()
        for _ in range(inner_steps):
            B, C = oracle.inner(), oracle.outer()
            up = oracle.inner_grad(x, plus, B) + nu * oracle.outer_grad(x, plus, C)[1]
            down = oracle.inner_grad(x, minus, B) - nu * oracle.outer_grad(x, minus, C)[1]
            plus, minus = plus - step_size * up, minus - step_size * down
        B, C = oracle.inner(), oracle.outer()
        above = g_x(problem, x, plus, B) + nu * oracle.outer_grad(x, plus, C)[0]
        below = g_x(problem, x, minus, B) - nu * oracle.outer_grad(x, minus, C)[0]
        direction = (above - below) / (2 * nu)
        outer = (problem.f(x, plus, C) + problem.f(x, minus, C)) / 2
        x = x - step_size / outer_ratio * direction
        records.append(
            {
                "x": x,
                "y": (plus + minus) / 2,
                "v": (minus - plus) / (2 * nu),
                "direction": direction,
                "outer": float(outer),
                "inner_grad_x": 2,
                **oracle.counts,
            }
        )
    return records
