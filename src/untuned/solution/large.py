"""Problems of many variables: no matrix is made, Newton's steps and derivatives come from
conjugate gradients (`untuned.solvers.numerics`).

From some tens of variables on that is tried first where a matrix could be made as well, if a
product with the Hessian takes fewer operations by g's formula than by the matrix, as in a network
that sees a few points. A system that takes more products than an eighth of the variables' number
ends the try.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from untuned.ops import Ops
from untuned.problem.derivatives import Oracles
from untuned.solution import newton
from untuned.solution.task import DENSE_UP_TO, Task
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.newton_cg import solve_inner

TRIED_FROM = 64  # variables; the matrix of fewer takes no longer than a handful of products
SYSTEM, DERIVATIVE = 8, 4  # share of the variables' number that a system of a try may take
TRIES = 30  # Newton steps of a try: about twice what it takes for a network near its start
MOST_LINEAR_STEPS = 1000
FAINT = 1e-3  # of what one direction has of a random right side: chance of not seeing a flat one
TENTH = 0.1
BENT = 0.25  # share of curvature that is lost or won along the step that is left
EXACT = 0.75  # power of the spacing of numbers: what is left of a residual


def is_large(y: Any) -> bool:
    return y.shape[-1] > DENSE_UP_TO


def may_be_tried(lib: Any, function: Callable, y: Any) -> bool:
    """Whether to try without a matrix where one could be made."""
    size = y.shape[-1]
    return TRIED_FROM < size <= DENSE_UP_TO and lib.operations(function, y) < 2 * size**2


def most_steps(y: Any) -> int:
    return min(MOST_LINEAR_STEPS, 2 * y.shape[-1] + 10)


def solve(
    ops: Ops, product: Callable, b: Any, tol: float | None = None, most: int | None = None
) -> Any:
    """H^{-1} b; NaN where conjugate gradients do not get there. Where y is only as exact as `tol`
    says, its derivative is not to be more so by far."""
    goal = max(ops.epsilon(b) ** EXACT, TENTH * (tol or 0.0)) * ops.norm(b)
    most = most or most_steps(b)
    found = conjugate_gradient.solve(
        ops, product, b, ops.zeros_like(b), tolerance=goal**2, most=most
    )
    reached = (found.residual_norm <= 2 * goal) & (found.indefinite == 0)
    return ops.where(reached, found.z, b * float("nan"))


def solve_or(lib: Any, ops: Ops, tol: float | None, product: Callable, b: Any) -> Any:
    """H^{-1} b in a few products, or else with a matrix."""
    tried = solve(ops, product, b, tol, b.shape[-1] // DERIVATIVE)
    missed = ~lib.isfinite(tried).all()[None]
    return newton.only_where(lib, missed, partial(lib.solve_by_matrix, product), b, tried)


def curvature(ops: Ops, lib: Any, product: Callable, y: Any, most: Any) -> tuple[Any, Any]:
    """Whether there is a direction without curvature, or with a negative one; and whether there
    is certain to be none.

    Conjugate gradients for a right side that has a part in every direction: what lies along a flat
    one they can only follow ever further, so their answer is beyond all that a regular matrix of
    this size and rounding would give. They may end before, as slow as they are, and then nothing
    is said.
    """
    count = y.shape[-1]
    b = lib.take_in(np.random.default_rng(0).standard_normal(count), y)
    goal = FAINT / count**0.5 * ops.norm(b)
    probe = conjugate_gradient.solve(
        ops, product, b, ops.zeros_like(b), tolerance=goal**2, most=most
    )
    once = product(b)
    tiny = ops.scalar(float(np.finfo(np.float32).tiny), y)
    most_curved = ops.norm(product(once)) / ops.maximum(ops.norm(once), tiny)
    rounding = ops.epsilon(y) ** EXACT
    flat = (probe.indefinite == 1) | (ops.norm(probe.z) * most_curved * rounding >= ops.norm(b))
    return flat, ops.logical_not(flat) & (probe.residual_norm <= goal)


def find(given: Task, function: Any, y0: Any) -> tuple[Any, Any]:
    """The solution of one problem from y0, and a code of `newton`."""
    return _find(given, function, y0, most_steps(y0), False)[:2]


def find_or(otherwise: Callable, given: Task, function: Any, y0: Any) -> tuple[Any, Any]:
    """The same in a few products for each system, or else as `otherwise(function, y0)` finds it."""
    y, code, sure = _find(given, function, y0, y0.shape[-1] // SYSTEM, True)
    missed = ~(sure & (code == newton.FINE))
    return newton.only_where(given.lib, missed, partial(otherwise, function), y0, (y, code))


def _find(given: Task, function: Any, y0: Any, most: int, is_try: bool) -> tuple[Any, Any, Any]:
    """The solution, a code, and whether it is certain that there is curvature everywhere; each
    system takes `most` products, and a try ends with the first that would take more."""
    ops, lib, s = given.ops, given.lib, given.settings
    o = Oracles(ops, function.function, function.function)
    share = s.epsilon if s.tol is None else s.tol
    identity = lambda r: r
    steps = min(s.most, TRIES) if is_try else s.most
    found = solve_inner(o, None, y0, None, share, most, identity, steps, gives_up=is_try)
    if is_try:  # nothing more is to be known of one that gave up
        most = ops.where(found.stuck == 2, 0, most)
    hvp = o.linear(None, found.y, None).hvp
    left = conjugate_gradient.solve(
        ops, hvp, found.grad, ops.zeros_like(y0), tolerance=0.01 * found.energy, most=most
    )
    value = o.inner_value(None, found.y, None)
    near = s.epsilon**newton.CLOSE
    size = ops.maximum(ops.norm(found.y), ops.norm(ops.sub(found.y, y0)))
    gain = ops.dot(left.z, found.grad)
    close = (ops.norm(left.z) <= near * size) | (gain <= near**2 * ops.maximum(value, -value))
    norm, first = ops.norm(found.grad), o.inner_grad(None, y0, None)
    flat, sure = curvature(ops, lib, hvp, found.y, most)
    # Where curvature is another one a step away, as of y^3 near 0, y is near a point without any.
    along, ahead = (
        ops.dot(left.z, product(left.z))
        for product in (hvp, o.linear(None, ops.sub(found.y, left.z), None).hvp)
    )
    bent = ops.maximum(along - ahead, ahead - along) > BENT * along
    convex = (left.indefinite == 0) & ops.logical_not(flat | (bent & (s.tol is None)))
    # Where there is no Newton step to look at, the gradient must tell.
    enough = ops.where(convex, ops.scalar(s.tol or 0.0, y0), ops.scalar(near, y0))
    close = ((left.indefinite == 0) & close) | (norm <= enough * ops.norm(first))
    finite = ops.isfinite(value + ops.norm(found.grad) + ops.norm(found.y))
    code = newton.code_of(ops.where, finite, close, convex, ops.scalar(0.0, y0))
    return found.y, lib.zeros_like(y0[:1]) + code, sure


def find_each(given: Task, function: Any, y0: Any) -> tuple[Any, Any]:
    """The solutions of a stack of problems on torch, one after the other."""
    solutions = [find(given, one, y) for one, y in function.each(y0)]
    ys, codes = (given.lib.stack(parts) for parts in zip(*solutions, strict=True))
    shape = y0.shape[:-1]
    return ys.reshape(*shape, -1), codes.reshape(*shape, 1)
