"""The expert's lines: what someone who knows bilevel optimization writes in place of `untuned`.

One strength per feature, exp(x), is chosen on validation rows. Inside, Newton's method with the
dense Hessian and halved steps; outside, SciPy's L-BFGS-B on the implicit gradient; y goes on from
where it was. `benchmarks/clock.py` times it in a fresh process, and judges all sides by `phi`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize


def loss(kind: str, rows: tuple, y: np.ndarray) -> tuple:
    """The mean loss, its gradient, and a function that gives its Hessian."""
    X, t = rows
    n, z = len(X), X @ y
    if kind == "squares":
        return np.mean((z - t) ** 2) / 2, X.T @ (z - t) / n, lambda: X.T @ X / n
    if kind == "logistic":
        p = 1 / (1 + np.exp(np.clip(t * z, -700, 700)))
        value, w = np.mean(np.logaddexp(0, -t * z)), p * (1 - p)
        return value, X.T @ (-t * p) / n, lambda: (X.T * w) @ X / n
    z = z - z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    value = -np.mean(np.log(p[np.arange(n), t]))
    d, k = y.shape

    def hessian() -> np.ndarray:
        blocks = np.empty((d, k, d, k))
        for a in range(k):
            for b in range(k):
                blocks[:, a, :, b] = (X.T * (p[:, a] * ((a == b) - p[:, b]))) @ X / n
        return blocks.reshape(d * k, d * k)

    return value, X.T @ (p - np.eye(k)[t]) / n, hessian


def inner(kind: str, train: tuple, x: np.ndarray, y: np.ndarray, tol: float = 1e-8) -> tuple:
    """y*(x) and the Hessian of g there; Newton's method from y."""
    s = np.exp(x) if y.ndim == 1 else np.exp(x)[:, None] * np.ones_like(y)
    for _ in range(50):
        value, grad, hessian = loss(kind, train, y)
        value, grad = value + np.sum(s * y * y) / 2, grad + s * y
        H = hessian() + np.diag(s.ravel())
        if np.abs(grad).max() < tol:
            break
        step, t = np.linalg.solve(H, grad.ravel()).reshape(y.shape), 1.0
        slope = np.sum(grad * step)
        while t > 1e-10:
            new = loss(kind, train, y - t * step)[0] + np.sum(s * (y - t * step) ** 2) / 2
            if new <= value - 1e-4 * t * slope + 1e-15 * abs(value):
                break
            t /= 2
        y = y - t * step
    return y, H, s


def run(kind: str, train: tuple, validation: tuple, x0: np.ndarray, y0: np.ndarray,
        watch: Callable[[np.ndarray], None]) -> np.ndarray:  # fmt: skip
    """The x found; `watch` is given every x that is tried."""
    at = y0

    def value_and_gradient(x: np.ndarray) -> tuple:
        nonlocal at
        at, H, s = inner(kind, train, x, at)
        f, grad, _ = loss(kind, validation, at)
        v = np.linalg.solve(H, grad.ravel()).reshape(at.shape)
        cross = s * at * v
        watch(x)
        return f, -(cross if at.ndim == 1 else cross.sum(1))

    return minimize(value_and_gradient, x0, jac=True, method="L-BFGS-B").x


def phi(kind: str, train: tuple, validation: tuple, x: np.ndarray, y: np.ndarray) -> tuple:
    """f(x, y*(x)), and the largest entry of g's gradient at that y*, found from y."""
    y, _, s = inner(kind, train, x, y, 1e-9)
    left = np.abs(loss(kind, train, y)[1] + s * y).max()
    return float(loss(kind, validation, y)[0]), float(left)
