"""Derivatives that are zero and cost nothing, for what is left of a step that was cut.

Where a limit of time ends the loops of a step, the lines after them still ask for a gradient or
two. The run leaves such a step out (run/steps.py), so nobody uses what they get; to evaluate it
would only make the run later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from untuned.ops import Ops, Scalar, Tree


class Zeros:
    """The part of `Ops` that evaluates functions, without evaluating them."""

    def __init__(self, ops: Ops):
        self._ops = ops

    def value(self, fn: Any, x: Tree, y: Tree, /) -> Scalar:
        return 0.0

    def value_and_grads(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
        return 0.0, self._ops.zeros_like(x), self._ops.zeros_like(y)

    def grad_y(self, fn: Any, x: Tree, y: Tree, /) -> Tree:
        return self._ops.zeros_like(y)

    def value_and_grad_y(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
        return 0.0, self._ops.zeros_like(y)

    def products(self, fn: Any, x: Tree, y: Tree, /) -> Callable:
        zeros = self._ops.zeros_like
        return lambda v, wrt: (zeros(x), zeros(y)) if wrt == "xy" else zeros(x if wrt == "x" else y)

    def linearize(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
        return self._ops.zeros_like(y), self.products(fn, x, y)

    def hessian(self, fn: Any, x: Tree, y: Tree, /) -> Any:
        return self._ops.matrix(lambda unit: 0 * unit, self._ops.size(y), y)
