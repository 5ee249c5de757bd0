"""Problems of many variables: no matrix is made, Newton's steps and derivatives come from
conjugate gradients (`untuned.solvers.numerics`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from untuned.ops import Ops
from untuned.problem.derivatives import Oracles
from untuned.solution import newton
from untuned.solution.task import DENSE_UP_TO, Task
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.newton_cg import solve_inner

MOST_LINEAR_STEPS = 1000
FAINT = 1e-3  # of what one direction has of a random right side: chance of not seeing a flat one
EXACT = 0.75  # power of the spacing of numbers: what is left of a residual


def is_large(y: Any) -> bool:
    return y.shape[-1] > DENSE_UP_TO


def most_steps(y: Any) -> int:
    return min(MOST_LINEAR_STEPS, 2 * y.shape[-1] + 10)


def solve(ops: Ops, product: Callable, b: Any) -> Any:
    """H^{-1} b; NaN where conjugate gradients do not get there."""
    norm = ops.norm(b)
    goal = ops.epsilon(b) ** EXACT * norm
    found = conjugate_gradient.solve(
        ops, product, b, ops.zeros_like(b), tolerance=goal**2, most=most_steps(b)
    )
    reached = (found.residual_norm <= 2 * goal) & (found.indefinite == 0)
    return ops.where(reached, found.z, b * float("nan"))


def is_flat(ops: Ops, lib: Any, product: Callable, y: Any) -> Any:
    """Whether there is a direction without curvature, or with a negative one.

    Conjugate gradients for a right side that has a part in every direction: what lies along a flat
    one they can only follow ever further, so their answer is beyond all that a regular matrix of
    this size and rounding would give. They may end before, as slow as they are, and then nothing
    is said.
    """
    count = y.shape[-1]
    b = lib.take_in(np.random.default_rng(0).standard_normal(count), y)
    goal = FAINT / count**0.5 * ops.norm(b)
    probe = conjugate_gradient.solve(
        ops, product, b, ops.zeros_like(b), tolerance=goal**2, most=most_steps(b)
    )
    once = product(b)
    tiny = ops.scalar(float(np.finfo(np.float32).tiny), y)
    most_curved = ops.norm(product(once)) / ops.maximum(ops.norm(once), tiny)
    rounding = ops.epsilon(y) ** EXACT
    return (probe.indefinite == 1) | (ops.norm(probe.z) * most_curved * rounding >= ops.norm(b))


def find(given: Task, function: Any, y0: Any) -> tuple[Any, Any]:
    """The solution of one problem from y0, and a code of `newton`."""
    ops, lib, s = given.ops, given.lib, given.settings
    o = Oracles(ops, function.function, function.function)
    share = s.epsilon if s.tol is None else s.tol
    identity = lambda r: r
    most = most_steps(y0)
    found = solve_inner(o, None, y0, None, share, most, identity, s.most)
    left = conjugate_gradient.solve(
        ops, o.linear(None, found.y, None).hvp, found.grad, ops.zeros_like(y0),
        tolerance=0.01 * found.energy, most=most,
    )  # fmt: skip
    value = o.inner_value(None, found.y, None)
    near = s.epsilon**newton.CLOSE
    size = ops.maximum(ops.norm(found.y), ops.norm(ops.sub(found.y, y0)))
    gain = ops.dot(left.z, found.grad)
    close = (ops.norm(left.z) <= near * size) | (gain <= near**2 * ops.maximum(value, -value))
    norm, first = ops.norm(found.grad), o.inner_grad(None, y0, None)
    flat = is_flat(ops, lib, o.linear(None, found.y, None).hvp, found.y)
    convex = (left.indefinite == 0) & ops.logical_not(flat)
    # Where there is no Newton step to look at, the gradient must tell.
    enough = ops.where(convex, ops.scalar(s.tol or 0.0, y0), ops.scalar(near, y0))
    close = ((left.indefinite == 0) & close) | (norm <= enough * ops.norm(first))
    finite = ops.isfinite(value + ops.norm(found.grad) + ops.norm(found.y))
    code = newton.verdict(ops.where, finite, close, convex, ops.scalar(0.0, y0))
    return found.y, lib.zeros_like(y0[:1]) + code


def find_each(given: Task, function: Any, y0: Any) -> tuple[Any, Any]:
    """The solutions of a stack of problems on torch, one after the other."""
    solutions = [find(given, one, y) for one, y in function.each(y0)]
    ys, codes = (given.lib.stack(parts) for parts in zip(*solutions, strict=True))
    shape = y0.shape[:-1]
    return ys.reshape(*shape, -1), codes.reshape(*shape, 1)
