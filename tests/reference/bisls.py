"""BiSLS in plain NumPy, from METHODS parts 2 and 7. As a judge: clear first, never fast."""

import numpy as np

from .aid import _conjugate_gradients
from .joint import Oracle

EPSILON = np.finfo(np.float64).eps  # below it a decrease tells nothing


def bisls(
    problem, x, y, T, *, rows, first_x, first_y, rho, delta, eta, shrink, most_trials,
    inner_steps, linear_steps,
) -> list[dict]:  # fmt: skip
    """Make T x-updates. Draws: inner for every step on y, inner for h and x, outer."""
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    v, a, b = np.zeros_like(y), first_x, first_y
    oracle = Oracle(problem, rows)
    records = []
    for _ in range(T):
        oracle.reset()
        values = 0
        for _ in range(inner_steps):
            B = oracle.inner()
            q = oracle.inner_grad(x, y, B)
            value = problem.g(x, y, B)
            telling = rho * b * np.sum(q**2) > EPSILON * abs(value)
            b = eta * b if telling else b
            for trial in range(1, most_trials + 1):
                values += 1
                fits = problem.g(x, y - b * q, B) <= value - rho * b * np.sum(q**2)
                if fits or not telling or trial == most_trials:
                    break
                b = shrink * b
            y = y - b * q
        B, C = oracle.inner(), oracle.outer()
        f_x, f_y = oracle.outer_grad(x, y, C)
        outer = problem.f(x, y, C)
        product = lambda w, x=x, y=y, B=B: oracle.hvp(x, y, w, B)
        v = _conjugate_gradients(product, f_y, v, linear_steps)
        h = f_x - oracle.cross(x, y, v, B)
        level, outer_values = outer + delta, 0
        telling = rho * a * np.sum(h**2) > EPSILON * abs(level)
        a = eta * a if telling else a
        for trial in range(1, most_trials + 1):
            outer_values += 1
            there = x - a * h
            follower = y - b * oracle.inner_grad(there, y, B)
            fits = problem.f(there, follower, C) <= level - rho * a * np.sum(h**2)
            if fits or not telling or trial == most_trials:
                break
            a = shrink * a
        x = x - a * h
        counts = dict(oracle.counts)
        counts["inner_grad"] += values  # a value counts like a gradient
        counts["outer_grad"] += outer_values
        records.append({"x": x, "y": y, "v": v, "direction": h, "outer": float(outer), **counts})
    return records
