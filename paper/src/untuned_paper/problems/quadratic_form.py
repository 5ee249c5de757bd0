"""A pair of quadratics f and g as matrices, and all that follows from them in closed form.

y*(x) is affine in x, so Phi(x) = f(x, y*(x)) is quadratic. Float64 NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Quadratic:
    """1/2 y'Ay + 1/2 x'Bx + x'Cy + a'y + b'x + constant."""

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    a: np.ndarray
    b: np.ndarray
    constant: float = 0.0

    def value(self, x: np.ndarray, y: np.ndarray) -> float:
        """The value at a point."""
        curved = 0.5 * (y @ self.A @ y) + 0.5 * (x @ self.B @ x) + x @ self.C @ y
        return float(curved + self.a @ y + self.b @ x + self.constant)

    def gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """In x and in y."""
        return self.B @ x + self.C @ y + self.b, self.A @ y + x @ self.C + self.a


@dataclass(frozen=True, eq=False)
class QuadraticPair:
    """The bilevel problem of two quadratics; `inner.A` must be positive definite."""

    outer: Quadratic
    inner: Quadratic

    @cached_property
    def curvature(self) -> tuple[float, float]:
        """mu and L: the smallest and largest eigenvalue of grad_yy g."""
        values = np.linalg.eigvalsh(self.inner.A)
        return float(values[0]), float(values[-1])

    @cached_property
    def slope(self) -> np.ndarray:
        """The Jacobian of y*(x), by the implicit function theorem."""
        return -np.linalg.solve(self.inner.A, self.inner.C.T)

    @cached_property
    def hessian(self) -> np.ndarray:
        """Of Phi, the same everywhere."""
        f, slope = self.outer, self.slope
        mixed = f.C @ slope
        return f.B + mixed + mixed.T + slope.T @ f.A @ slope

    def y_star(self, x: np.ndarray) -> np.ndarray:
        """The inner solution."""
        return self.slope @ x - np.linalg.solve(self.inner.A, self.inner.a)

    def value(self, x: np.ndarray) -> float:
        """Phi(x)."""
        return self.outer.value(x, self.y_star(x))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient of Phi at x."""
        in_x, in_y = self.outer.gradients(x, self.y_star(x))
        return in_x + self.slope.T @ in_y

    @cached_property
    def x_star(self) -> np.ndarray:
        """Where Phi is least; its Hessian must be positive definite."""
        return -np.linalg.solve(self.hessian, self.gradient(np.zeros(len(self.hessian))))

    @cached_property
    def least(self) -> float:
        """The least value of Phi."""
        return self.value(self.x_star)
