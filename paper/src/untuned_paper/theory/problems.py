"""Problems whose constants are known and whose assumptions hold on the whole space.

With u = y - M x, a symmetric A with eigenvalues from mu up, and soft(s) = (1 + s^2)^(1/2) - 1,

    g(x, y) = u'Au / 2 + rho sum soft(u_i)
    f(x, y) = w sum ((d^2 + (y_i - b_i)^2)^(1/2) - d) + c sum s_i^2 / (1 + s_i^2),   s = x - a

with b = M a. The inner solution is y*(x) = M x, so Phi(x) = f(x, M x), its gradient is
grad_x f + M' grad_y f, and its least value is 0, at x = a. Phi is not convex for c > 0. A
quadratic f would break Assumption 2, whose gradients are bounded; here |grad_y f| < w sqrt(dim y).
x must enter g linearly: with a curved M(x), grad_x g would not be Lipschitz, since grad_y g is
unbounded.

f and g use operators only, so they run on NumPy and JAX arrays alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from untuned.theory.constants import Constants
from untuned.util.wording import unknown

STEEPEST_BUMP = 3 * math.sqrt(3) / 8  # most of |d/ds s^2 / (1 + s^2)|, at s = 3^(-1/2)
SHARPEST_SOFT = 48 / (25 * math.sqrt(5))  # most of |soft'''|, at s = 1/2


@dataclass(frozen=True, eq=False)
class KnownProblem:
    """One problem of this file. Points are rows: every method takes one, or many at once."""

    A: np.ndarray
    M: np.ndarray
    a: np.ndarray
    x0: np.ndarray
    y0: np.ndarray
    rho: float = 0.5
    weight: float = 1.0  # w
    width: float = 1.0  # d
    bump: float = 0.3  # c

    def outer(self, x: Any, y: Any) -> Any:
        """f."""
        from_y = _rise(y - self.M @ self.a, self.width).sum()
        s = (x - self.a) ** 2
        return self.weight * from_y + self.bump * (s / (1 + s)).sum()

    def inner(self, x: Any, y: Any) -> Any:
        """g."""
        u = y - self.M @ x
        return 0.5 * (u @ (self.A @ u)) + self.rho * _rise(u, 1.0).sum()

    def outer_grad_x(self, x: np.ndarray) -> np.ndarray:
        """grad_x f, which does not depend on y."""
        s = x - self.a
        return self.bump * 2 * s / (1 + s**2) ** 2

    def outer_grad_y(self, y: np.ndarray) -> np.ndarray:
        """grad_y f, which does not depend on x."""
        s = y - self.M @ self.a
        return self.weight * s / np.sqrt(self.width**2 + s**2)

    def inner_grad(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        u = y - x @ self.M.T
        return u @ self.A + self.rho * u / np.sqrt(1 + u**2)

    def hvp(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(grad_yy g) v."""
        u = y - x @ self.M.T
        return v @ self.A + self.rho * v * (1 + u**2) ** -1.5

    def residual(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
        """grad_v R = (grad_yy g) v - grad_y f."""
        return self.hvp(x, y, v) - self.outer_grad_y(y)

    def hypergradient(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The estimate h = grad_x f - (grad_xy g) v, where grad_xy g = -M' grad_yy g."""
        return self.outer_grad_x(x) + self.hvp(x, y, v) @ self.M

    def y_star(self, x: np.ndarray) -> np.ndarray:
        """The inner solution M x."""
        return x @ self.M.T

    def v_star(self, x: np.ndarray) -> np.ndarray:
        """The solution of the linear system at y*(x)."""
        curvature = self.A + self.rho * np.eye(len(self.A))
        return np.linalg.solve(curvature, self.outer_grad_y(self.y_star(x)).T).T

    def phi(self, x: np.ndarray) -> np.ndarray:
        """Phi(x) = f(x, M x)."""
        s = x - self.a
        from_y, bumps = _rise(s @ self.M.T, self.width), s**2 / (1 + s**2)
        return self.weight * from_y.sum(-1) + self.bump * bumps.sum(-1)

    def grad_phi(self, x: np.ndarray) -> np.ndarray:
        """grad Phi(x) = grad_x f + M' grad_y f."""
        return self.outer_grad_x(x) + self.outer_grad_y(self.y_star(x)) @ self.M

    def constants(self) -> Constants:
        """All constants: mu, L_f1, C_gyy, the gaps are exact, the others are certified bounds.

        grad_yy g = A + rho diag(soft''(u)) with 0 < soft'' <= 1, and grad g = [-M, I]' G'(u), so
        L_g1 <= (1 + |M|^2) C_gyy, and L_g2 from |soft'''| and the Lipschitz constant of u.
        """
        eigenvalues = np.linalg.eigvalsh(self.A)
        size = float(np.linalg.norm(self.M, 2))
        reach = math.hypot(1.0, size)
        C_gyy = float(eigenvalues[-1]) + self.rho
        return Constants(
            mu=float(eigenvalues[0]),
            L_f1=max(self.weight / self.width, 2 * self.bump),
            L_g1=C_gyy * reach**2,
            L_g2=self.rho * SHARPEST_SOFT * reach * max(1.0, size),
            C_fx=self.bump * STEEPEST_BUMP * math.sqrt(len(self.a)),
            C_fy=self.weight * math.sqrt(len(self.A)),
            C_gxy=size * C_gyy,
            C_gyy=C_gyy,
            phi_gap=float(self.phi(self.x0)),
            y_gap=float(np.linalg.norm(self.y0 - self.y_star(self.x0))),
        )


def _rise(s: Any, width: float) -> Any:
    """(width^2 + s^2)^(1/2) - width, without the cancellation that a small s would bring."""
    return s**2 / ((width**2 + s**2) ** 0.5 + width)


def _make(
    seed: int, coupling: float, eigenvalues: list[float], start: float, y_start: float = 1.0,
    **rest: float,
) -> KnownProblem:  # fmt: skip
    """M of norm `coupling`, A of these eigenvalues, x0 `start` away from the solution."""
    rng = np.random.default_rng(seed)
    dim_y, dim_x = len(eigenvalues), len(eigenvalues) - 1
    basis = np.linalg.qr(rng.standard_normal((dim_y, dim_y)))[0]
    M = rng.standard_normal((dim_y, dim_x))
    M *= coupling / np.linalg.norm(M, 2)
    a = rng.standard_normal(dim_x)
    away = rng.standard_normal(dim_x)
    x0 = a + start * away / np.linalg.norm(away)
    off = rng.standard_normal(dim_y)
    return KnownProblem(
        A=(basis * eigenvalues) @ basis.T,
        M=M,
        a=a,
        x0=x0,
        y0=M @ x0 + y_start * off / np.linalg.norm(off),
        **rest,
    )


PROBLEMS: dict[str, dict[str, Any]] = {
    # f hardly curved, x hardly moving y: the bounds are as near to the truth as they get.
    "gentle": {
        "coupling": 0.2, "eigenvalues": [1.0, 1.1], "start": 2.0,
        "rho": 0.1, "weight": 0.1, "width": 2.0, "bump": 0.01,
    },
    # Long way, large gradients, little curvature: every accumulator crosses its threshold, those
    # of D-TFBO in the first and those of S-TFBO, which are higher, in the second.
    "double stages": {
        "coupling": 0.5, "eigenvalues": [1.0, 1.2, 1.5], "start": 30.0, "y_start": 5.0,
        "rho": 0.02, "weight": 4.0, "width": 8.0,
    },
    "single stages": {
        "coupling": 0.3, "eigenvalues": [1.0, 1.1, 1.2], "start": 300.0, "y_start": 10.0,
        "rho": 0.0, "weight": 20.0, "width": 400.0, "bump": 0.02,
    },
    # x hardly moves y, so L_Phi is nearly the curvature of Phi (oddity 2).
    "weak coupling": {
        "coupling": 0.01, "eigenvalues": [1.0, 1.5], "start": 0.1, "weight": 0.01, "bump": 2.0,
    },
    # |grad_xy g| beyond |grad_yy g| (oddity 3).
    "strong coupling": {
        "coupling": 8.0, "eigenvalues": [1.0, 1.0], "start": 1.0,
        "rho": 0.01, "weight": 0.2, "width": 20.0, "bump": 0.001,
    },
    # |grad_x f| beyond |grad_y f| (oddity 1).
    "steep in x": {
        "coupling": 0.1, "eigenvalues": [1.0, 1.2], "start": 0.7, "weight": 0.01, "bump": 1.0,
    },
    # y starts far from its solution (oddity 7).
    "far start": {
        "coupling": 0.2, "eigenvalues": [1.0, 1.1], "start": 2.0, "y_start": 60.0,
        "rho": 0.1, "weight": 0.1, "width": 2.0, "bump": 0.01,
    },
}  # fmt: skip


def known(name: str, seed: int = 0) -> KnownProblem:
    """A problem of `PROBLEMS` by name; the seed rotates its matrices and its start."""
    if name not in PROBLEMS:
        raise unknown("problem", name, PROBLEMS)
    return _make(seed, **PROBLEMS[name])
