"""`FewNumbers`: Newton's method on the handful of numbers of a pool, as a method of `minimize`.

`auto` learns how f bends from one step to the next, which takes ten steps or more, each a thousand
calls that do little. A pool (pooling.py) has at most a dozen numbers outside and two offsets per
class inside, so there all second derivatives are at hand: y is solved for by Newton's method, dy/dx
by one system, and f bends by

    D^t f'' D + sum over x of (slope of f along x) (second derivative of weights in x)

with D the change of all scores. What is left out is how dy/dx bends. Bends that point downwards are
turned upwards, and a step is shortened until f falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from untuned.data.batches import Batch
from untuned.estimators.cleaning.pooling import bend
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import GO_ON, STALLED, Info, Solver

EXACT = 1e-9  # of g, which a step of y promises to gain: less is nothing
MOST_INNER = 30
MOST_TRIALS, SHORTER = 12, 0.3
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)
LONGEST = 1.0  # step of a root or an angle: beyond, second derivatives say nothing
FLATTEST = 1e-3  # of the strongest bend


class State(NamedTuple):
    """Where the last step ended, and what is known there."""

    x: np.ndarray
    y: np.ndarray
    v: np.ndarray
    value: float  # of f, at the solution y
    slopes: np.ndarray  # of f, and of y, in weights and the share of the angle
    dy: np.ndarray
    steps: int


class Solution(NamedTuple):
    """y*(x), g's derivatives there, and what it took."""

    y: np.ndarray
    grad: np.ndarray
    hessian: np.ndarray
    steps: int


@dataclass(frozen=True)
class FewNumbers(Solver):
    """Newton's method for the f and g of pooling.py."""

    name: ClassVar[str] = "few-numbers"
    loops: ClassVar[str] = "double"
    cost: ClassVar[Counts] = Counts(None, None, None, None)

    def init(self, o: Oracles, x: np.ndarray, y: np.ndarray) -> State:
        """Start at (x, y)."""
        return State(x, y, np.zeros_like(y), 0.0, np.zeros_like(x), np.zeros((len(x), *y.shape)), 0)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Move and look around there; the first step stays where it is."""
        f: Any = o.outer_function
        g: Any = o.inner_function
        direction, size, tries = np.zeros_like(state.x), 0.0, 0
        first, second = bend(state.x)
        if state.steps:
            bends = f.curvature(state.x, state.y, state.dy)
            bends = first[:, None] * bends * first + np.diag(state.slopes * second)
            direction, size = _direction(first * state.slopes, bends), 1.0
        slope = float(first * state.slopes @ direction)
        along = np.tensordot(first * direction, state.dy, 1)
        while True:
            x = state.x + size * direction
            here, inner = evaluated(f, g, x, state.y + size * along)
            tries += 1
            rounding = 4 * np.finfo(float).eps * abs(here.value)
            falls = size == 0 or here.value <= state.value + ENOUGH * size * slope + rounding
            if falls or tries == MOST_TRIALS:
                break
            size *= SHORTER
        info = Info(
            outer=here.value,
            inner_grad_norm=float(np.linalg.norm(inner.grad)),
            hypergrad_norm=float(np.linalg.norm(bend(x)[0] * here.slopes)),
            step_x=size,
            step_y=1.0,
            step_v=1.0,
            measure=here.value,
            inner_steps=inner.steps,
            verdict=GO_ON if falls else STALLED,
            counts=Counts(tries, inner.steps, inner.steps, 1),
        )
        return here._replace(steps=state.steps + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Any, Any, Any]:
        """Where a step ends."""
        return new.x, new.y, new.v


def solved(g: Any, x: np.ndarray, y: np.ndarray) -> Solution:
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
    return Solution(y, grad, hessian, steps)


def evaluated(f: Any, g: Any, x: np.ndarray, y: np.ndarray) -> tuple[State, Solution]:
    """f and its slopes at x, y being near the solution."""
    inner = solved(g, x, y)
    value, slopes, in_y = f.by_shares(x, inner.y)
    dy = -np.linalg.solve(inner.hessian, g.cross(x, inner.y)[..., None])[..., 0]
    v = np.linalg.solve(inner.hessian, in_y[..., None])[..., 0]
    # What is left of the error of y changes f by as much, to first order.
    value -= float(np.vdot(v, inner.grad))
    return State(x, inner.y, v, value, slopes + np.tensordot(dy, in_y, 2), dy, 0), inner


def _direction(slopes: np.ndarray, bends: np.ndarray) -> np.ndarray:
    """The step that is best by slopes and bends, if all bends pointed upwards."""
    if not np.isfinite(bends).all():
        return np.full_like(slopes, np.nan)
    bends, axes = np.linalg.eigh((bends + bends.T) / 2)
    bends = np.abs(bends)
    bends = np.maximum(bends, max(FLATTEST * bends.max(), np.finfo(float).tiny))
    found = -axes @ ((axes.T @ slopes) / bends)
    return found * (LONGEST / max(np.abs(found).max(), LONGEST))
