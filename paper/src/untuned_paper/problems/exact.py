"""The value function Phi(x) = f(x, y*(x)) and its gradient, to high accuracy in float64.

This is the judge of every comparison, and never runs on a method's clock. Inner problems are
solved by L-BFGS from the nearest point known; where y is small, a Hessian of g takes the
ill-conditioning away first, and is computed again when it has become too old to help.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from untuned.problem.build import Problem, build
from untuned.problem.flat import DENSE_UP_TO, FlatProblem

# Of the gradient of g, in the norm the Hessian gives where there is one. The error of Phi is at
# most this times the length of v in the dual norm, which is of order one in the problems here.
ACCURACY = 1e-6
# Of a value that goes with a gradient: a search for the least Phi must see small differences.
FINE_ACCURACY = 1e-8
LINEAR_ACCURACY = 1e-6  # relative, of v
ROUNDS, EVALUATIONS = 20, 40  # with one Hessian, before it is computed again
MOST_EVALUATIONS = 2000
MEMORY = 20
# Penalties exp(x) and weights sigmoid(x) beyond these are in effect zero, one or infinite.
LARGEST_X = 30.0


def _hessian(problem: Problem, x: Any, y: Any, data: Any) -> Any:
    """grad_yy g as a matrix, all columns in one pass."""
    product = problem.oracles.linear(x, y, data.inner).hvp
    units = jnp.eye(y.size, dtype=y.dtype).reshape(y.size, *y.shape)
    return jax.vmap(product)(units).reshape(y.size, y.size)


class ExactValue:
    """Phi of one problem; keeps what makes the next evaluation cheap: last y*, v and Hessian."""

    def __init__(
        self,
        outer: Callable,
        inner: Callable,
        x0: Any,
        y0: Any,
        outer_data: Any,
        inner_data: Any,
    ):
        x0, y0 = (np.asarray(z, np.float64) for z in (x0, y0))
        problem = build(outer, inner, x0, y0, outer_data, inner_data)
        self._problem = problem
        with problem.precision():
            self._flat = FlatProblem(problem)
        self._hessian = jax.jit(partial(_hessian, problem))
        self._is_small = y0.size <= DENSE_UP_TO
        self._y: np.ndarray = self._flat.y0
        self._v: np.ndarray = np.zeros_like(self._flat.y0)
        self._factor: np.ndarray | None = None  # Cholesky's, of a Hessian of g

    def value(self, x: Any, y: Any) -> float:
        """Phi(x), the inner problem solved from y or from the last solution; NaN if that fails."""
        with self._problem.precision():
            x = np.asarray(x, np.float64).ravel()
            solution = self._solve_inner(x, np.asarray(y, np.float64).ravel(), ACCURACY)
            return np.nan if solution is None else self._flat.outer(x, solution)[0]

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Phi(x) and its gradient by the implicit function theorem."""
        with self._problem.precision():
            flat = self._flat
            y = self._solve_inner(x, self._y, FINE_ACCURACY)
            if y is None:
                return np.inf, np.zeros_like(x)
            f, _, f_y = flat.outer(x, y)
            self._v = self._solve_linear(x, y, f_y)
            return f, flat.hypergradient(x, y, self._v)

    def least(self, x0: Any, iterations: int) -> tuple[float, np.ndarray]:
        """The least Phi that L-BFGS with exact gradients finds in so many iterations, and where."""
        from scipy import optimize

        x = np.asarray(x0, np.float64).ravel()
        found = optimize.minimize(
            self.value_and_gradient,
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-LARGEST_X, LARGEST_X)] * x.size,
            options={"maxiter": iterations, "maxcor": MEMORY, "gtol": 1e-12, "ftol": 1e-12},
        )
        return float(found.fun), found.x

    def _solve_inner(self, x: np.ndarray, y: np.ndarray, accuracy: float) -> np.ndarray | None:
        """y*(x), or None where g cannot be minimized."""
        y = self._nearest(x, y)
        for _ in range(ROUNDS if self._is_small else 1):
            try:
                if self._is_small and self._factor is None:
                    self._factor = self._cholesky(x, y)
                y, norm = self._descend(x, y, accuracy)
            except np.linalg.LinAlgError:
                self._factor = None
                return None
            if norm <= 2 * accuracy:  # SciPy's test is on the largest entry, this on the length
                self._y = y
                return y
            self._factor = None
        return None

    def _descend(self, x: np.ndarray, y: np.ndarray, accuracy: float) -> tuple[np.ndarray, float]:
        """L-BFGS from y on the well-conditioned problem, and the gradient's length at the end."""
        from scipy import optimize

        def scaled(z: np.ndarray) -> tuple[float, np.ndarray]:
            g, gradient = self._flat.inner(x, y + self._from_scaled(z))
            return g, self._to_scaled(gradient)

        most = EVALUATIONS if self._is_small else MOST_EVALUATIONS
        found = optimize.minimize(
            scaled,
            np.zeros_like(y),
            jac=True,
            method="L-BFGS-B",
            options={
                "gtol": accuracy / np.sqrt(y.size),
                "ftol": 0.0,
                "maxcor": MEMORY,
                "maxfun": most,
                "maxiter": most,
            },
        )
        return y + self._from_scaled(found.x), float(np.linalg.norm(found.jac))

    def _nearest(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of y and the last solution, the one at which g is smaller."""
        values = [self._flat.inner(x, z)[0] for z in (y, self._y)]
        return y if values[0] < values[1] else self._y

    def _solve_linear(self, x: np.ndarray, y: np.ndarray, right: np.ndarray) -> np.ndarray:
        from scipy.sparse import linalg

        size = (y.size, y.size)
        hessian = linalg.LinearOperator(size, matvec=lambda v: self._flat.hvp(x, y, v))
        inverse = linalg.LinearOperator(
            size, matvec=lambda r: self._from_scaled(self._to_scaled(r.ravel()))
        )
        v, _ = linalg.cg(
            hessian, right, x0=self._v, rtol=LINEAR_ACCURACY, M=inverse, maxiter=MOST_EVALUATIONS
        )
        return v

    # With H = L L' at some earlier point, z = L'(y - start) makes the problem nearly round.

    def _from_scaled(self, z: np.ndarray) -> np.ndarray:
        return z if self._factor is None else _triangular(self._factor, z, transposed=True)

    def _to_scaled(self, gradient: np.ndarray) -> np.ndarray:
        return gradient if self._factor is None else _triangular(self._factor, gradient)

    def _cholesky(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        flat, data = self._flat, self._problem.data
        hessian = np.asarray(self._hessian(flat.tree_x(x), flat.tree_y(y), data))
        return np.linalg.cholesky((hessian + hessian.T) / 2)


def _triangular(factor: np.ndarray, right: np.ndarray, transposed: bool = False) -> np.ndarray:
    from scipy.linalg import solve_triangular

    return solve_triangular(factor, right, trans=int(transposed), lower=True, check_finite=False)
