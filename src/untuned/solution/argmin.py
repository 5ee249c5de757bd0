"""The inner solution y*(x) as a differentiable function of x and data.

    F(x, y) = grad_y g(x, y) = 0   gives   dy*/dx = -(grad_yy g)^{-1} grad_yx g,

with F and its derivatives among the entries that no constraint holds (regions.py). Both libraries
differentiate F itself, so derivatives of any order come from the same line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from untuned.ops import Tree, numpy_roots
from untuned.solution import failures, large, newton, sparse, task
from untuned.solution.task import Task


def argmin(
    inner: Callable,
    x: Tree,
    y0: Tree,
    *,
    data: Tree = None,
    constraint: Any = None,
    l1: Tree = None,
    groups: Tree = None,
    tol: float | None = None,
    max_steps: int | None = None,
    on_failure: str = "raise",
) -> Tree:
    """The y that minimizes inner(x, y), differentiable in x and in data.

    y*(x) = argmin_y g(x, y), found by Newton's method from y0 to what the dtype allows, with
    derivatives by the implicit function theorem: memory does not grow with the steps taken. On JAX
    it works inside `jit`, `grad`, `jvp` and `vmap`, in any order and any number of times, and is
    differentiable in whatever `inner` reads; on torch it works with autograd, `torch.func.grad` and
    `torch.func.vmap`, and is differentiable in x and data.

    Parameters
    ----------
    inner : g(x, y), or g(x, y, data) where data are given; one number, twice differentiable in y.
    x : tree of arrays that the solution depends on.
    y0 : tree of arrays to start from; the solution does not depend on it where it is unique.
    data : tree of arrays, floats or whole numbers.
    constraint : on y: "simplex" (the entries of each leaf), "nonnegative", or (low, high) with
        numbers or None; for up to 256 variables. An entry that just touches its bound counts as
        held by it.
    l1 : strength of an absolute penalty that is added to inner, sum_i l1_i |y_i|: one number, or a
        tree like y0; differentiable as x is; for up to 256 variables.
    groups : tree like y0 of whole numbers from 0 up; entries with the same number are penalized
        together by the length of their vector, and l1 is one number or one for each group.
    tol : stop at this share of the first gradient's norm; None: as exact as the dtype allows.
    max_steps : Newton steps at most; None: 100, or 1,000 with groups.
    on_failure : where no minimum is found, or g is not strongly convex there, "raise" raises a
        RuntimeError (in a compiled or vectorized JAX function, where no value is at hand, it is
        "nan"); "nan" gives NaN for y and its derivatives; "warn" gives the last y with a warning,
        and NaN for derivatives that do not exist.

    Returns
    -------
    The solution, a tree like y0.

    Example
    -------
    >>> import jax, jax.numpy as jnp, untuned
    >>> g = lambda x, y: ((y - 1.0) ** 2).sum() + x * (y**2).sum()
    >>> y = lambda x: untuned.argmin(g, x, jnp.zeros(2))[0]        # 1 / (1 + x)
    >>> round(float(y(1.0)), 4), round(float(jax.grad(y)(1.0)), 4)
    (0.5, -0.25)
    """
    with task.precision(inner, x, y0):
        given = task.task(inner, x, y0, data, constraint, tol, max_steps, on_failure, l1, groups)
        solve = _on_torch if given.ops.name == "torch" else _on_jax
        return given.outward(solve(given))


def _find_on_host(given: Task, moving: tuple, y0: Any, keeps_root: bool) -> newton.Found:
    """`_found` with its small operations in NumPy, each of which JAX would compile."""
    function = lambda moving, y: given.value(moving[0], y, *moving[1])
    on_host = numpy_roots.Function(*given.lib.compiled(function, moving, y0))
    l1 = tuple(np.asarray(strength) for strength in moving[2])
    with np.errstate(all="ignore"):  # what is not finite is found out by the search itself
        found = _found(given, l1, on_host, np.asarray(y0), keeps_root, numpy_roots)
    return newton.Found(*(given.lib.take_in(part) for part in found))


def _found(
    given: Task, l1: tuple, function: Any, y0: Any, keeps_root: bool, lib: Any = None
) -> newton.Found:
    s, lib = given.settings, lib or given.lib
    if l1:
        return sparse.solve(lib, function, y0, s.groups, l1[0], s.epsilon, s.tol, s.most)
    return newton.solve(lib, function, y0, s.region, s.epsilon, s.tol, s.most, keeps_root)


def _optimality(given: Task, y: Any, grad: Callable, l1: tuple) -> Any:
    s = given.settings
    if l1:
        return s.groups.optimality(given.lib, y, grad, *l1)
    return s.region.optimality(given.lib, y, grad)


def _keeps_root(given: Task) -> bool:
    """Whether the last Hessian's factor serves the derivative: nothing is held, y is a solution."""
    s = given.settings
    return s.region.everywhere and not given.l1 and s.on_failure != "warn"


def _on_jax(given: Task) -> Any:
    lib, ops, s = given.lib, given.ops, given.settings
    y0 = lib.fixed(ops.ravel(given.y0))
    moves = given.x, given.data, given.l1
    moving = lib.Function(lambda y: given.value(given.x, y, *given.data))
    x, data, l1 = fixed = lib.fixed(moves)
    still = lib.Function(lambda y: given.value(x, y, *data))
    is_large, keeps_root = large.is_large(y0), _keeps_root(given)
    is_tried = s.region.everywhere and not l1 and large.may_be_tried(lib, still.bare, y0)

    def by_matrix(function: Any, y0: Any) -> tuple[Any, Any]:
        return tuple(_found(given, l1, function, y0, False)[:2])

    def find(function: Any, y0: Any) -> newton.Found:
        if is_large:
            return newton.Found(*large.find(given, function, y0), y0[None, :0])
        if is_tried:
            return newton.Found(*large.find_or(by_matrix, given, function, y0), y0[None, :0])
        return _found(given, l1, function, y0, keeps_root)

    def linear(root: Any) -> Callable:
        if is_large:
            return partial(large.solve, ops, tol=s.tol)
        if root.size:
            return lib.solve_by_root(root)
        return partial(large.solve_or, lib, ops, s.tol) if is_tried else lib.solve_by_matrix

    def optimality(y: Any) -> Any:
        return _optimality(given, y, moving.grad, given.l1) + lib.nothing(moves)

    if lib.is_known(fixed, y0) and lib.reads_known(still.bare, y0):
        # Numbers are at hand, though perhaps under a derivative: errors can be raised.
        y, code, root = find(still, y0) if is_large else _find_on_host(given, fixed, y0, keeps_root)
        failures.tell(code, s.on_failure)
        if lib.is_known(moves):
            return failures.masked(lib, y, code, s.on_failure)
    else:
        y, code, root = lib.in_parts(partial(find, moving), y0)
        if s.on_failure == "warn":
            lib.tell_later(partial(failures.tell, on_failure="warn"), code)
    y = lib.root(optimality, y, lib.solve_symmetric(linear(root)))
    y = failures.masked(lib, y, code, s.on_failure)
    return lib.marked(y, failures.marks(lib, code, s.on_failure))


def _on_torch(given: Task) -> Any:
    lib, ops, s = given.lib, given.ops, given.settings
    if lib.is_forward_twice():
        raise ValueError(
            "argmin is inside of two forward derivatives (torch.func.jvp or jacfwd), of which "
            "torch would lose one; take one of them by torch.func.grad, vjp or jacrev, as "
            "torch.func.hessian does."
        )
    y0 = ops.ravel(given.y0)
    arrays, structure = ops.flatten((given.x, given.data, given.l1))

    def function(arrays: tuple, y: Any) -> Any:
        x, data, _ = ops.unflatten(structure, list(arrays))
        return given.value(x, y, *data)

    def penalties(arrays: tuple, _: Any = None) -> tuple:
        return tuple(ops.unflatten(structure, list(arrays))[2])

    def solve(function: Any, y0: Any) -> newton.Found:
        l1 = function.stack.over(penalties)(function.arrays, y0)
        return _found(given, l1, function, y0, _keeps_root(given))

    def find(function: Any, y0: Any) -> tuple[Any, Any, Any]:
        if large.is_large(y0):
            y, code = large.find_each(given, function, y0)
            matrix_root = y[..., None, :0]
        else:
            y, code, matrix_root = function.in_parts(solve, y0)
        failures.tell(code, s.on_failure)
        return failures.masked(lib, y, code, s.on_failure), code, matrix_root

    root = lib.Root(
        lib.Stack(function),
        lambda arrays, y, grad: _optimality(given, y, grad, penalties(arrays)),
        find,
        lambda code: failures.marks(lib, code, s.on_failure),
        partial(large.solve, ops, tol=s.tol) if large.is_large(y0) else None,
    )
    return lib.Argmin.apply(root, y0, *arrays)[0]
