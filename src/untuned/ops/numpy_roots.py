"""What `untuned.solution` needs of NumPy, where JAX would compile every small operation first.

One problem with its numbers at hand is solved here; g and its derivatives stay on JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from untuned.ops import Tree

where, isfinite, maximum, sort = np.where, np.isfinite, np.maximum, np.sort
zeros_like, join, stack = np.zeros_like, np.concatenate, np.stack


def eye(size: int, like: Any) -> Any:
    return np.eye(size, dtype=like.dtype)


def diagonal(matrix: Any) -> Any:
    return np.diagonal(matrix, axis1=-2, axis2=-1)


def largest(array: Any) -> Any:
    return np.max(array, axis=-1, keepdims=True)


def smallest(array: Any) -> Any:
    return np.min(array, axis=-1, keepdims=True)


def cholesky(matrix: Any) -> Any:
    """The lower factor; NaN where the matrix is not positive definite."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def cholesky_solve(lower: Any, b: Any) -> Any:
    from scipy.linalg import solve_triangular  # which `import untuned` is not to wait for

    half = solve_triangular(lower, b, lower=True, check_finite=False)
    return solve_triangular(lower, half, lower=True, trans="T", check_finite=False)


def solve(matrix: Any, b: Any) -> Any:
    """The solution of a system; NaN where the matrix is singular."""
    try:
        return np.linalg.solve(matrix, b)
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)


def while_loop(cond: Callable, body: Callable, carry: Tree) -> Tree:
    while bool(np.any(cond(carry))):
        carry = body(carry)
    return carry


class Function:
    """g of a NumPy vector, from compiled functions for its derivatives."""

    def __init__(self, value_and_grad: Callable, hessian: Callable):
        self._value_and_grad, self._hessian = value_and_grad, hessian

    def value_and_grad(self, y: Any) -> tuple[Any, Any]:
        value, grad = self._value_and_grad(y)
        return np.asarray(value), np.asarray(grad)

    def hessian(self, y: Any) -> Any:
        return np.asarray(self._hessian(y))

    def has_hessian(self, _: Any, __: Any, asked: Any) -> Any:
        """Not asked here: one more function to compile takes longer than a Hessian."""
        return asked & False
