"""Is the problem what the theory needs, and is its hypergradient right? Asked before a long run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from untuned.ops import Tree
from untuned.problem.build import Problem, build
from untuned.problem.derivatives import on_rows
from untuned.problem.flat import FlatProblem

TINY_CURVATURE = 1e-6  # smallest eigenvalue over the largest
FAR_APART = 1e4  # ratio of gradient norms worth a warning


@dataclass(frozen=True)
class HypergradientReport:
    """What `check_hypergradient` found; print it, or look at `ok`.

    `implicit` and `finite_difference` are the slopes of the value function along random
    directions, `relative_error` is their distance, `hypergradient` the whole implicit one at `y`.
    """

    hypergradient: Tree
    y: Tree
    v: Tree
    implicit: np.ndarray
    finite_difference: np.ndarray
    relative_error: float
    tolerance: float
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.relative_error <= self.tolerance and not self.warnings

    def __str__(self) -> str:
        agrees = self.relative_error <= self.tolerance  # a warning is another matter
        verdict = "agrees with" if agrees else "does NOT agree with"
        head = (
            f"The implicit hypergradient {verdict} finite differences: relative error "
            f"{self.relative_error:.1e} along {len(self.implicit)} directions "
            f"(at most {self.tolerance:.0e} expected)."
        )
        if not (self.implicit.any() or self.finite_difference.any()) and len(self.implicit):
            head += " Both are zero: x has no effect on f here, directly or by way of y."
        if math.isnan(self.relative_error):
            head += " Some slopes are not finite numbers; untuned.check_problem says where from."
        return "\n".join([head, *self.warnings])


@dataclass(frozen=True)
class ProblemReport:
    """What `check_problem` found; print it, or look at `ok` and `warnings`."""

    outer_value: float
    inner_value: float
    smallest_eigenvalue: float
    largest_eigenvalue: float
    gradient_norms: dict[str, float]
    warnings: tuple[str, ...]

    @property
    def condition(self) -> float:
        """Largest over smallest curvature of g in y; infinite where it is not convex."""
        small, large = self.smallest_eigenvalue, self.largest_eigenvalue
        return large / small if small > 0 else float("inf")

    @property
    def ok(self) -> bool:
        return not self.warnings

    def __str__(self) -> str:
        norms = ", ".join(f"{name} {norm:.2e}" for name, norm in self.gradient_norms.items())
        lines = [
            f"f = {self.outer_value:.6g}, g = {self.inner_value:.6g}",
            f"curvature of g in y: {self.smallest_eigenvalue:.3g} to "
            f"{self.largest_eigenvalue:.3g} (condition number {self.condition:.2g})",
            f"gradient norms: {norms}",
        ]
        return "\n".join([*lines, *(self.warnings or ("No problem found.",))])


def check_hypergradient(
    outer: Callable,
    inner: Callable,
    x: Tree,
    y0: Tree,
    *,
    outer_data: Tree = None,
    inner_data: Tree = None,
    directions: int = 5,
    seed: int = 0,
) -> HypergradientReport:
    """Compare the implicit hypergradient at x with finite differences of the value function.

    The inner problem is solved to high accuracy from y0: at x, and at one point on either side of
    it along each random direction. Use float64: in float32 only two digits can be compared.

    Parameters
    ----------
    outer, inner, outer_data, inner_data : the problem, as for `untuned.minimize`.
    x, y0 : where to compare, and where the search for y*(x) starts.
    directions, seed : how many random directions to compare along, and which.

    Returns
    -------
    A report: print it, or look at `ok`, `relative_error` and `warnings`.

    Example
    -------
    >>> import numpy as np, untuned
    >>> f = lambda x, y: ((y - 1.0) ** 2).sum()
    >>> g = lambda x, y: ((y - x) ** 2).sum()
    >>> untuned.check_hypergradient(f, g, np.ones(2) / 3, np.zeros(2)).ok
    True
    """
    problem = build(outer, inner, x, y0, outer_data, inner_data)
    with problem.precision():
        flat = FlatProblem(problem)
        at = flat.x0
        y = flat.solve_inner(at, flat.y0)
        v = flat.solve_linear(at, y)
        hypergradient = flat.hypergradient(at, y, v)

        unsolved = _stationarity_warnings(flat, at, y)
        warnings = unsolved + _curvature_warnings(*flat.curvature(at, y))
        implicit, finite, error = np.empty(0), np.empty(0), float("inf")
        if not unsolved:  # without an inner solution there is no value function to differentiate
            implicit, finite, error = _compare(flat, at, y, hypergradient, directions, seed)
        return HypergradientReport(
            hypergradient=problem.outward(flat.tree_x(hypergradient)),
            y=problem.outward(flat.tree_y(y)),
            v=problem.outward(flat.tree_y(v)),
            implicit=implicit,
            finite_difference=finite,
            relative_error=error,
            tolerance=1e-4 if problem.dtype == "float64" else 5e-2,
            warnings=tuple(warnings),
        )


def _compare(
    flat: FlatProblem, at: np.ndarray, y: np.ndarray, hypergradient: np.ndarray, directions: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, float]:  # fmt: skip
    """Slopes of the value function along random directions: implicit, by differences, distance."""
    epsilon = float(np.finfo(flat.dtype).eps)
    length = epsilon ** (1 / 3) * max(1.0, float(np.linalg.norm(at)))
    rng = np.random.default_rng(seed)
    units = rng.standard_normal((directions, at.size))
    units /= np.linalg.norm(units, axis=1, keepdims=True)

    def value(x: np.ndarray) -> float:
        return flat.outer(x, flat.solve_inner(x, y))[0]

    implicit = units @ hypergradient
    finite = np.array(
        [(value(at + length * unit) - value(at - length * unit)) / (2 * length) for unit in units]
    )
    # Slopes below what the rounding of f lets a difference resolve are equal for our purpose.
    floor = 10 * epsilon * abs(flat.outer(at, y)[0]) / length
    scale = max(float(np.linalg.norm(finite)), float(np.linalg.norm(implicit)), floor)
    distance = float(np.linalg.norm(implicit - finite))
    return implicit, finite, distance / scale if scale else 0.0


def check_problem(
    outer: Callable,
    inner: Callable,
    x: Tree,
    y: Tree,
    *,
    outer_data: Tree = None,
    inner_data: Tree = None,
) -> ProblemReport:
    """Report values, curvature and gradient scales at (x, y), and say in words what is wrong.

    Curvature is the smallest and the largest eigenvalue of grad_yy g: exact up to 200 inner
    variables, by Lanczos iterations above.

    Parameters
    ----------
    outer, inner, outer_data, inner_data : the problem, as for `untuned.minimize`.
    x, y : the point to look at; x0 and y0 will do.

    Returns
    -------
    A report: print it, or look at `ok`, `condition`, `gradient_norms` and `warnings`.

    Example
    -------
    >>> import numpy as np, untuned
    >>> f = lambda x, y: ((y - 1.0) ** 2).sum()
    >>> g = lambda x, y: ((y[:1] - x) ** 2).sum()     # says nothing about the second y
    >>> report = untuned.check_problem(f, g, np.zeros(1), np.zeros(2))
    >>> report.ok, report.smallest_eigenvalue
    (False, 0.0)
    """
    problem = build(outer, inner, x, y, outer_data, inner_data)
    with problem.precision():
        flat = FlatProblem(problem)
        f, f_x, f_y = flat.outer(flat.x0, flat.y0)
        g, g_y = flat.inner(flat.x0, flat.y0)
        norms = {
            name: float(np.linalg.norm(part))
            for name, part in (("grad_x f", f_x), ("grad_y f", f_y), ("grad_y g", g_y))
        }
        warnings = [
            f"The {name} function is {value} at the start; expected a finite number, so check "
            "its formula and the start point."
            for name, value in (("outer", f), ("inner", g))
            if not np.isfinite(value)
        ] + [
            f"{name} is not finite at the start; check the formula there (a root or logarithm "
            "at zero?)."
            for name, norm in norms.items()
            if not np.isfinite(norm)
        ]
        warnings = warnings or _impure(problem)
        smallest = largest = float("nan")
        if not warnings:
            smallest, largest = flat.curvature(flat.x0, flat.y0)
            v = flat.solve_linear(flat.x0, flat.y0)
            hypergradient = flat.hypergradient(flat.x0, flat.y0, v)
            norms["hypergradient"] = float(np.linalg.norm(hypergradient))
            warnings += _curvature_warnings(smallest, largest) + _scale_warnings(norms)
        return ProblemReport(f, g, smallest, largest, norms, tuple(warnings))


def _impure(problem: Problem) -> list[str]:
    """What functions do that makes them no functions of x and y alone, seen by calling them."""
    o, data, warnings = problem.oracles, problem.data, []
    point = (problem.x0, problem.y0)
    rounding = 100 * float(np.finfo(problem.dtype).eps)

    def flat(tree: Tree) -> np.ndarray:
        leaves = problem.ops.flatten(tree)[0]
        return np.concatenate([problem.ops.to_numpy(leaf).ravel() for leaf in leaves])

    for name, function, rows, gradients in (
        ("outer", o.outer_function, data.outer, lambda *at: o.outer(*at)[1:]),
        ("inner", o.inner_function, data.inner, o.inner_grad),
    ):
        before = [problem.ops.to_numpy(leaf).copy() for leaf in problem.ops.flatten(point)[0]]
        first, second = (float(on_rows(function, rows)(*point)) for _ in range(2))
        after = [problem.ops.to_numpy(leaf) for leaf in problem.ops.flatten(point)[0]]
        if not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)):
            warnings.append(
                f"The {name} function changes x or y in place; expected one that leaves its "
                "arguments as they are, so let it make new arrays."
            )
            continue
        apart, gave = abs(first - second), f"{first:.6g} and {second:.6g}; expected the same number"
        if apart <= rounding * abs(first):  # as some noise leaves it
            gave = "two gradients; expected the same one"
            again = [flat(gradients(*point, rows)) for _ in range(2)]
            first, apart = (
                float(np.abs(a).max(initial=0.0)) for a in (again[0], np.subtract(*again))
            )
        if apart > rounding * abs(first):
            warnings.append(
                f"The {name} function is random: called twice at one point it gave {gave}, so fix "
                "its seed, or switch dropout off by model.eval()."
            )
    return warnings


def _stationarity_warnings(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> list[str]:
    first = np.linalg.norm(flat.inner(x, flat.y0)[1])
    last = np.linalg.norm(flat.inner(x, y)[1])
    if last <= max(1e-3 * first, np.sqrt(np.finfo(flat.dtype).eps)):
        return []
    return [
        f"The inner problem could not be solved: the norm of grad_y g only went from {first:.2e} "
        f"to {last:.2e}, so g may have no minimum in y, or none that can be reached smoothly."
    ]


def _curvature_warnings(smallest: float, largest: float) -> list[str]:
    if smallest < -TINY_CURVATURE * abs(largest):
        return [
            f"The inner problem is not convex: the smallest curvature of g in y is {smallest:.3g} "
            "here, below zero; the methods assume a strongly convex g, so add a ridge term, for "
            "instance."
        ]
    if smallest <= TINY_CURVATURE * abs(largest):
        return [
            f"The inner problem is barely or not strongly convex: the smallest curvature of g in "
            f"y is {smallest:.3g} beside a largest of {largest:.3g}; add a ridge term to g, or "
            "expect slow and inexact solutions for v."
        ]
    return []


def _scale_warnings(norms: dict[str, float]) -> list[str]:
    # grad_y g may be small because y is solved for, so it says nothing about scale.
    known: list[Any] = [(n, k) for k, n in norms.items() if n > 0 and k != "grad_y g"]
    if len(known) < 2 or max(known)[0] <= FAR_APART * min(known)[0]:
        return []
    (low, low_name), (high, high_name) = min(known), max(known)
    return [
        f"Gradient scales differ by many orders: {low_name} has norm {low:.1e} and {high_name} "
        f"has {high:.1e}, while start values alpha0, beta0, gamma0 of 1 expect all near 1; scale "
        "f, g or x, or choose start values near the norms."
    ]
