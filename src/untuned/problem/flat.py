"""A problem as functions of flat NumPy vectors, for what SciPy does well: exact inner solutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.ops import Tree
from untuned.problem.build import Problem

DENSE_UP_TO = 200  # inner variables; above, curvature comes from Lanczos iterations
TRUST_REGION_STEPS, NEWTON_STEPS = 200, 10


class FlatProblem:
    """Values, gradients and products of f and g on all rows, over flat vectors of x and y."""

    def __init__(self, problem: Problem):
        ops, o, data = problem.ops, problem.oracles, problem.data
        self.problem = problem
        self.x0, self.y0 = self._ravel(problem.x0), self._ravel(problem.y0)
        self.dtype = np.dtype(problem.dtype)
        x, y = problem.x0, problem.y0

        def gradient(x: Tree, y: Tree, data: Any) -> tuple:
            return o.inner_value(x, y, data.inner), o.inner_grad(x, y, data.inner)

        def products(x: Tree, y: Tree, v: Tree, data: Any) -> tuple:
            return o.inner(x, y, v, data.inner)[1:]

        def outer(x: Tree, y: Tree, data: Any) -> tuple:
            return tuple(o.outer(x, y, data.outer))

        self._gradient = ops.compile(gradient, x, y, data)
        self._products = ops.compile(products, x, y, y, data)
        self._outer = ops.compile(outer, x, y, data)

    def _ravel(self, tree: Tree) -> np.ndarray:
        ops = self.problem.ops
        leaves = [ops.to_numpy(leaf) for leaf in ops.flatten(tree)[0]]
        return np.concatenate([leaf.ravel() for leaf in leaves]).astype(np.float64)

    def _tree(self, vector: np.ndarray, like: Tree) -> Tree:
        ops = self.problem.ops
        leaves, structure = ops.flatten(like)
        sizes = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])[:-1]
        parts = np.split(np.asarray(vector, self.dtype), sizes)
        arrays = [
            ops.asarray(part.reshape(tuple(leaf.shape)), leaf)
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        return ops.unflatten(structure, arrays)

    def tree_x(self, vector: np.ndarray) -> Tree:
        return self._tree(vector, self.problem.x0)

    def tree_y(self, vector: np.ndarray) -> Tree:
        return self._tree(vector, self.problem.y0)

    def outer(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, grad_x f and grad_y f."""
        f, f_x, f_y = self._outer(self.tree_x(x), self.tree_y(y), self.problem.data)
        return float(f), self._ravel(f_x), self._ravel(f_y)

    def inner(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
        """g and grad_y g."""
        g, g_y = self._gradient(self.tree_x(x), self.tree_y(y), self.problem.data)
        return float(g), self._ravel(g_y)

    def hvp(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(grad_yy g) v."""
        return self._ravel(self._both(x, y, v)[0])

    def hypergradient(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
        """grad_x f - (grad_xy g) v."""
        return self.outer(x, y)[1] - self._ravel(self._both(x, y, v)[1])

    def _both(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> tuple:
        return self._products(self.tree_x(x), self.tree_y(y), self.tree_y(v), self.problem.data)

    def solve_inner(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The inner solution at x: a trust-region method, then Newton steps while they help."""
        from scipy import optimize

        small = float(np.finfo(self.dtype).eps) ** 0.75
        small *= max(1.0, float(np.linalg.norm(self.inner(x, y)[1])))
        found = optimize.minimize(
            lambda y: self.inner(x, y),
            y,
            jac=True,
            hessp=lambda y, v: self.hvp(x, y, v),
            method="trust-ncg",
            options={"gtol": small, "maxiter": TRUST_REGION_STEPS},
        )
        y, norm = found.x, float(np.linalg.norm(found.jac))
        for _ in range(NEWTON_STEPS):
            step = self._solve(x, y, self.inner(x, y)[1])
            closer = float(np.linalg.norm(self.inner(x, y - step)[1]))
            if not closer < norm / 2:
                break
            y, norm = y - step, closer
        return y

    def solve_linear(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """v with (grad_yy g) v = grad_y f."""
        return self._solve(x, y, self.outer(x, y)[2])

    def _solve(self, x: np.ndarray, y: np.ndarray, right: np.ndarray) -> np.ndarray:
        from scipy.sparse import linalg

        # MINRES, not CG: it does not break down where the Hessian is indefinite.
        hessian = linalg.LinearOperator((y.size, y.size), matvec=lambda v: self.hvp(x, y, v))
        accuracy = float(np.finfo(self.dtype).eps) ** 0.75
        return linalg.minres(hessian, right, rtol=accuracy, maxiter=max(1000, 2 * y.size))[0]

    def curvature(self, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
        """Smallest and largest eigenvalue of grad_yy g."""
        from scipy.sparse import linalg

        if y.size <= DENSE_UP_TO:
            hessian = np.stack([self.hvp(x, y, unit) for unit in np.eye(y.size)])
            values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
            return float(values[0]), float(values[-1])
        operator = linalg.LinearOperator(
            (y.size, y.size), matvec=lambda v: self.hvp(x, y, v), dtype=np.float64
        )
        start = np.random.default_rng(0).standard_normal(y.size)
        ends = []
        for which in ("SA", "LA"):
            try:
                found = linalg.eigsh(
                    operator, 1, which=which, v0=start, tol=1e-3, ncv=min(y.size, 40),
                    return_eigenvectors=False,
                )  # fmt: skip
            except linalg.ArpackNoConvergence as error:
                found = error.eigenvalues if len(error.eigenvalues) else [np.nan]
            ends.append(float(found[0]))
        return ends[0], ends[1]
