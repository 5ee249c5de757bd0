"""A function of x alone as the bilevel problem that `untuned.minimize` and its methods know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Outer(NamedTuple):
    """f, which does not depend on y."""

    function: Callable[[np.ndarray], tuple[float, np.ndarray]]

    def __call__(self, x: np.ndarray, _: np.ndarray) -> float:
        return self.function(x)[0]

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f, its gradient in x, and that in y."""
        value, in_x = self.function(x)
        return value, in_x, np.zeros_like(y)


class Nothing:
    """g of a problem without one: |y|^2 / 2, which y = 0 solves."""

    def __call__(self, _: np.ndarray, y: np.ndarray) -> float:
        return 0.5 * float(y @ y)

    def grad_y(self, _: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        return y

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g, grad_x g and grad_y g."""
        return self(x, y), np.zeros_like(x), y

    def products(self, x: np.ndarray, _: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""

        def pull(v: np.ndarray, wrt: str) -> Any:
            nothing = np.zeros_like(x)
            return v if wrt == "y" else nothing if wrt == "x" else (nothing, v)

        return pull
