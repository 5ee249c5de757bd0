"""BiSPS in plain NumPy, from METHODS parts 2 and 7. As a judge: clear first, never fast."""

import numpy as np

from .aid import _conjugate_gradients
from .joint import Oracle


def bisps(
    problem, x, y, T, *, rows, longest_x, longest_y, c, outer_bound, inner_bound,
    inner_steps, linear_steps,
) -> list[dict]:  # fmt: skip
    """Make T x-updates. Draws: inner for every step on y, inner for h, outer."""
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    v = np.zeros_like(y)
    oracle = Oracle(problem, rows)
    records = []
    for k in range(T):
        oracle.reset()
        for _ in range(inner_steps):
            B = oracle.inner()
            q = oracle.inner_grad(x, y, B)
            polyak = (problem.g(x, y, B) - inner_bound) / (c * np.sum(q**2))
            y = y - min(polyak, longest_y / np.sqrt(k + 1)) * q
        B, C = oracle.inner(), oracle.outer()
        f_x, f_y = oracle.outer_grad(x, y, C)
        outer = problem.f(x, y, C)
        product = lambda w, x=x, y=y, B=B: oracle.hvp(x, y, w, B)
        v = _conjugate_gradients(product, f_y, v, linear_steps)
        h = f_x - oracle.cross(x, y, v, B)
        polyak = max((outer - outer_bound) / (c * np.sum(h**2)), 0.0)
        x = x - min(polyak, longest_x / np.sqrt(k + 1)) * h
        records.append(
            {"x": x, "y": y, "v": v, "direction": h, "outer": float(outer), **oracle.counts}
        )
    return records
