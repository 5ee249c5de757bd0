"""MAID in plain NumPy, from METHODS parts 2 and 7. As a judge: clear first, never fast."""

import numpy as np

from .joint import Oracle


def _adagrad(gradient, y, wanted):
    """Norm-adaptive descent from the first gradient's own size until the gradient is small."""
    g, squares = gradient(y), 0.0
    while np.sum(g**2) > wanted**2:
        squares += np.sum(g**2)
        y = y - g / np.sqrt(squares)
        g = gradient(y)
    return y


def _conjugate(product, b, v, delta):
    r = b - product(v)
    p = r
    while np.sum(r**2) > delta**2:
        image = product(p)
        length = np.sum(r**2) / (p @ image)
        v, new = v + length * p, r - length * image
        p = new + np.sum(new**2) / np.sum(r**2) * p
        r = new
    return v


def maid(
    problem, x, y, T, *, rows, strong_convexity, outer_smoothness, cross_smoothness,
    inverse_smoothness, eps0, delta0, beta0, eta, shrink, most_tries, cap,
) -> list[dict]:  # fmt: skip
    """Make T attempts; the judge has no cap. Draws: inner, outer, once per attempt."""
    mu, L, L_J, L_i = strong_convexity, outer_smoothness, cross_smoothness, inverse_smoothness
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    v, eps, delta, beta = np.zeros_like(y), eps0, delta0, beta0
    norm = np.linalg.norm
    oracle = Oracle(problem, rows)
    records = []
    for _ in range(T):
        oracle.reset()
        B, C = oracle.inner(), oracle.outer()
        for attempt in range(most_tries):
            if attempt:
                eps, delta = eps / 2, delta / 2
            y = _adagrad(lambda z, x=x, B=B: oracle.inner_grad(x, z, B), y, mu * eps)
            f_x, f_y = oracle.outer_grad(x, y, C)
            v = _conjugate(lambda w, x=x, y=y, B=B: oracle.hvp(x, y, w, B), f_y, v, delta)
            cross = oracle.cross(x, y, v, B)
            h = f_x - cross
            J = norm(cross) / norm(v)
            c = L * J / mu + L_i * norm(f_y) * J + L_J * norm(f_y) / mu
            if c * eps + J / mu * delta + L_J * L / mu * eps**2 <= (1 - eta) * norm(h):
                break
        outer = problem.f(x, y, C)
        step, there = beta, y
        for trial in range(most_tries):
            if trial:
                step = shrink * step
            moved = x - step * h
            there = _adagrad(lambda z, m=moved, B=B: oracle.inner_grad(m, z, B), there, mu * eps)
            _, slope = oracle.outer_grad(moved, there, C)
            rise = problem.f(moved, there, C) + norm(slope) * eps + L * eps**2 / 2
            done = rise - outer + norm(f_y) * eps <= -(eta**2) * step * np.sum(h**2)
            if done:
                break
        if done:
            x, y, beta = moved, there, 10 / 9 * step
            eps, delta = 1.05 * eps, 1.05 * delta
        else:
            eps, delta = eps / 2, delta / 2
        records.append(
            {"x": x, "y": y, "v": v, "direction": h, "outer": float(outer), **oracle.counts}
        )
    return records
