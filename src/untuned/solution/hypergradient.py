"""Value and gradient of Phi(x) = f(x, y*(x)) at one x, with how exact both are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from untuned import ops as array_libraries
from untuned.ops import Scalar, Tree
from untuned.problem import data_checks
from untuned.problem.build import check_call
from untuned.problem.derivatives import Oracles
from untuned.solution import large, newton, task
from untuned.solution.argmin import argmin


class Hypergradient(NamedTuple):
    """Phi(x) and its gradient, and estimates of how far each is from the truth.

    `gradient_error` is a norm, as that of `gradient`; `y` is the inner solution, `v` solves the
    linear system (grad_yy g) v = grad_y f.
    """

    value: Scalar
    gradient: Tree
    value_error: Scalar
    gradient_error: Scalar
    y: Tree
    v: Tree


def hypergradient(
    outer: Callable,
    inner: Callable,
    x: Tree,
    y0: Tree,
    outer_data: Tree = None,
    inner_data: Tree = None,
) -> Hypergradient:
    """Value and gradient of outer(x, y*(x)), y* the minimum of inner, for an optimizer of your own.

    Phi(x) = f(x, y*(x)),   grad Phi = grad_x f - (grad_xy g) v,   (grad_yy g) v = grad_y f

    How exact both are is estimated, not bounded: with d the Newton step that is left at y and e
    the one that is left of v, by |<v, grad_y g>| for the value, and for the gradient by how much
    it changes from y to y - d, plus |(grad_xy g) e|.

    Parameters
    ----------
    outer, inner : f(x, y) and g(x, y), or of (x, y, data) where their data are given.
    x, y0 : trees of arrays; y0 is where the search for y*(x) starts.
    outer_data, inner_data : trees of arrays, or None.

    Returns
    -------
    `Hypergradient`: (value, gradient, value_error, gradient_error, y, v).

    Example
    -------
    >>> import numpy as np, untuned
    >>> f = lambda x, y: ((y - 1.0) ** 2).sum()
    >>> g = lambda x, y: ((y - x) ** 2).sum()
    >>> value, gradient = untuned.hypergradient(f, g, np.ones(2) / 2, np.zeros(2))[:2]
    >>> round(value, 9), gradient.round(9)
    (0.5, array([-1., -1.]))
    """
    if not callable(outer):
        raise ValueError(
            f"outer is a {type(outer).__name__}; expected a function of (x, y), or of "
            "(x, y, data) where outer_data are given."
        )
    with task.precision(inner, x, y0):
        given = task.task(inner, x, y0, inner_data, None, None, None, "raise")
        ops, rows = given.ops, given.data[0] if given.data else None
        fixed = lambda tree: ops.tree_map(ops.asarray, tree)
        at, like = fixed(given.x), ops.flatten(given.y0)[0][0]
        outer_rows = data_checks.arrays(ops, outer_data, "outer_data", like)
        reason = "no outer_data were given" if outer_data is None else "outer_data were given"
        arguments = (at, given.y0) if outer_data is None else (at, given.y0, outer_rows)
        check_call(ops, "outer", outer, arguments, reason)
        rows = None if rows is None else fixed(rows)
        y = fixed(argmin(inner, at, fixed(given.y0), data=rows))
        found = _evaluate(Oracles(ops, outer, inner), at, y, outer_rows, rows)
        return _outward(given, found)


def _evaluate(o: Oracles, x: Tree, y: Tree, outer_rows: Tree, rows: Tree) -> Hypergradient:
    ops = o.ops
    f, in_x, in_y = o.outer(x, y, outer_rows)
    linear, solve = o.linear(x, y, rows), _solver(o, x, y, rows)
    v, g_y = solve(in_y), o.inner_grad(x, y, rows)
    gradient = ops.sub(in_x, linear.cross(v))
    left = solve(ops.sub(in_y, linear.hvp(v)))
    nearer = ops.sub(y, solve(g_y))
    there = o.outer(x, nearer, outer_rows)
    again = _solver(o, x, nearer, rows)(there.grad_y)
    change = ops.sub(gradient, ops.sub(there.grad_x, o.linear(x, nearer, rows).cross(again)))
    off, rounding = ops.dot(v, g_y), ops.epsilon(y)
    return Hypergradient(
        value=f,
        gradient=gradient,
        value_error=ops.maximum(off, -off) + rounding * ops.maximum(f, -f),
        gradient_error=ops.norm(change)
        + ops.norm(linear.cross(left))
        + rounding * ops.norm(gradient),
        y=y,
        v=v,
    )


def _solver(o: Oracles, x: Tree, y: Tree, rows: Tree) -> Callable[[Tree], Tree]:
    """b -> (grad_yy g)^{-1} b."""
    ops = o.ops
    vector = ops.ravel(y)
    if large.is_large(vector):
        hvp = o.linear(x, y, rows).hvp
        flat = lambda v: ops.ravel(hvp(ops.unravel(v, y)))
        return lambda b: ops.unravel(large.solve(ops, flat, ops.ravel(b)), y)
    lib = array_libraries.roots(ops.name)
    factor = newton.factored(lib, o.hessian(x, y, rows), ops.epsilon(y))
    return lambda b: ops.unravel(factor.solve(lib, ops.ravel(b)), y)


def _outward(given: Any, found: Hypergradient) -> Hypergradient:
    """In the kind of array the user gave: NumPy in, NumPy out."""
    if not given.returns_numpy:
        return found
    numbers = (float(found[k]) for k in (0, 2, 3))
    gradient, y, v = (
        given.ops.tree_map(given.ops.to_numpy, tree) for tree in (found.gradient, found.y, found.v)
    )
    value, value_error, gradient_error = numbers
    return Hypergradient(value, gradient, value_error, gradient_error, y, v)
