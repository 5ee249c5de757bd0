"""Newton's method for the weights of a pool (pool.py): a dozen numbers, all derivatives at hand.

y is solved for by Newton's method, dy/dx by one linear system, and the Hessian of f(x, y*(x)) is

    D^T f'' D + sum over x of (slope of f along x) (second derivative of weights in x)

with D the change of all scores. The second derivative of y*(x) is left out. Negative eigenvalues
change their sign, and a step is shortened until f falls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from untuned.run.result import COLUMNS, History, Result, Status

if TYPE_CHECKING:
    from untuned.estimators.cleaning.pool import Inner, Outer

EXACT = 1e-9  # of g, which a step of y promises to gain: less is nothing
MOST_STEPS, MOST_INNER = 40, 30
MOST_TRIALS, SHORTER = 12, 0.3
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)
LONGEST = 1.0  # step of a root or an angle: beyond, second derivatives do not hold
FLATTEST = 1e-3  # of the largest eigenvalue


class InnerSolution(NamedTuple):
    """y*(x), g's derivatives there, and the steps taken."""

    y: np.ndarray
    grad: np.ndarray
    hessian: np.ndarray
    steps: int


class Evaluated(NamedTuple):
    """f at a point, and what the next step needs."""

    x: np.ndarray
    inner: InnerSolution
    v: np.ndarray
    value: float  # of f, at the solution y
    slopes: np.ndarray  # of f(x, y*(x)), in weights and the share of the angle
    hypergrad: np.ndarray
    dy: np.ndarray


def minimize(
    f: Outer, g: Inner, x: np.ndarray, y: np.ndarray, small: float, ends: float = np.inf
) -> Result:
    """The x whose hypergradient is at most `small`; `ends` is on the clock `time.monotonic`."""
    began, history = time.monotonic(), History()
    here, size, tries, systems = evaluated(f, g, x, y), 0.0, 1, 0
    first = float(np.linalg.norm(here.hypergrad))
    evaluations, status = 0, None
    while status is None:
        evaluations, systems = evaluations + tries, systems + here.inner.steps
        norm = float(np.linalg.norm(here.hypergrad))
        record = dict.fromkeys(COLUMNS, 0) | {
            "step": history.records + 1, "seconds": time.monotonic() - began, "outer": here.value,
            "inner_grad_norm": float(np.linalg.norm(here.inner.grad)), "hypergrad_norm": norm,
            "step_x": size, "step_y": 1.0, "step_v": 1.0, "inner_steps": here.inner.steps,
            "outer_grad": evaluations, "inner_grad": systems, "hvp": systems,
            "cross": history.records + 1,
        }  # fmt: skip
        history.append(record)
        status = _status(norm, small, history.records, time.monotonic() > ends)
        if status is None:
            there, size, tries = _step(f, g, here)
            if there is None:
                status = "stalled"
            else:
                here = there
    counts = {name: int(record[name]) for name in ("outer_grad", "inner_grad", "hvp", "cross")}
    message = (
        f"Newton's method for the weights of the pool ended after {history.records} steps "
        f"({status}): the hypergradient norm went from {first:.3g} to {norm:.3g}."
    )
    return Result(
        here.x, here.inner.y, here.v, status, message, history.records, time.monotonic() - began,
        0.0, counts, history, None,
    )  # fmt: skip


def _status(norm: float, small: float, steps: int, late: bool) -> Status | None:
    if not np.isfinite(norm):
        return "diverged"
    if norm <= small:
        return "converged"
    if late:
        return "max_seconds"
    return "max_steps" if steps == MOST_STEPS else None


def _step(f: Outer, g: Inner, here: Evaluated) -> tuple[Evaluated | None, float, int]:
    """A point where f is lower, or None; the size of the step, and the points tried."""
    first, second = f.bend(here.x)
    curvature = f.curvature(here.x, here.inner.y, here.dy)
    curvature = first[:, None] * curvature * first + np.diag(here.slopes * second)
    direction, size = _direction(here.hypergrad, curvature), 1.0
    slope = float(here.hypergrad @ direction)
    along = np.tensordot(first * direction, here.dy, 1)
    rounding = 4 * np.finfo(float).eps * abs(here.value)
    for tries in range(1, MOST_TRIALS + 1):
        there = evaluated(f, g, here.x + size * direction, here.inner.y + size * along)
        if there.value <= here.value + ENOUGH * size * slope + rounding:
            return there, size, tries
        size *= SHORTER
    return None, 0.0, MOST_TRIALS


def solved(g: Inner, x: np.ndarray, y: np.ndarray) -> InnerSolution:
    """y*(x), from a y nearby."""
    low, start, steps = np.inf, y, 0
    while steps < MOST_INNER:
        steps += 1
        value = g(x, y)
        if value > low + 4 * np.finfo(float).eps * abs(low):
            y = start + 0.5 * (y - start)
            continue
        grad, hessian = g.grad_y(x, y), g.hessian(x, y)
        try:
            np.linalg.cholesky(hessian)
        except np.linalg.LinAlgError:
            hessian = g.hessian(x, y, convex=True)
        change = -np.linalg.solve(hessian, grad[..., None])[..., 0]
        if not -np.vdot(grad, change) > EXACT:  # also where it is not a number
            break
        low, start, y = value, y, y + change
    else:
        y = start  # where gradient and Hessian are from
    return InnerSolution(y, grad, hessian, steps)


def evaluated(f: Outer, g: Inner, x: np.ndarray, y: np.ndarray) -> Evaluated:
    """f and its slopes at x, y being near the solution."""
    inner = solved(g, x, y)
    value, slopes, in_y = f.by_shares(x, inner.y)
    dy = -np.linalg.solve(inner.hessian, g.cross(x, inner.y)[..., None])[..., 0]
    v = np.linalg.solve(inner.hessian, in_y[..., None])[..., 0]
    # What is left of the error of y changes f by as much, to first order.
    value -= float(np.vdot(v, inner.grad))
    slopes = slopes + np.tensordot(dy, in_y, 2)
    return Evaluated(x, inner, v, value, slopes, f.bend(x)[0] * slopes, dy)


def _direction(slopes: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """The Newton step, with the absolute values of all eigenvalues."""
    if not np.isfinite(curvature).all():
        return np.full_like(slopes, np.nan)
    values, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    values = np.abs(values)
    values = np.maximum(values, max(FLATTEST * values.max(), np.finfo(float).tiny))
    found = -axes @ ((axes.T @ slopes) / values)
    return found * (LONGEST / max(np.abs(found).max(), LONGEST))
