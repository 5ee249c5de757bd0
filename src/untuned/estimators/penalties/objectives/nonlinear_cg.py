"""Models of classes with very many features, by nonlinear conjugate gradients.

Outputs are linear in coefficients: where a direction's outputs are known, so is the loss at every
step along it, and the best step takes no product with X. So an iteration costs two of them, as a
product with the Hessian does, and none is lost on a step of Newton's method that leads too far, as
it does where a model is nearly sure of its rows (docs/lab/penalties.md). Directions are those of
Polak and Ribiere, begun anew where they lead nowhere; each model has its own. With few features
products are cheaper than the row by row work along a direction, and Newton's method is quicker.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from untuned.closed_form import stacked
from untuned.estimators.penalties.objectives.objective import Inner, Models
from untuned.util import watch

MOST_STEPS, MOST_TRIES = 2000, 12
NEARLY = 0.1  # of the slope along a direction, that may be left at a step
FARTHER = 10.0  # times the last step that was tried, at most
IDLE = 3  # steps in a row that gain nothing beyond rounding


def solve(models: Models, x: np.ndarray, start: list[np.ndarray], share: float) -> np.ndarray:
    """y at x with at most this share left of the gradient at the start, which the list holds."""
    inner, y = Inner(models), start.pop()
    strengths, rounding = models.strengths(x), float(np.finfo(y.dtype).eps)
    gradient, z = inner.grad_y(x, y), models.at(x, y).z
    direction, size = -gradient, _dots(gradient, gradient)
    goal, idle, t = share**2 * size.sum(), 0, np.ones(len(y))
    value = _value(models, z)
    for _ in range(MOST_STEPS):
        if size.sum() <= goal or idle >= IDLE or watch.says_stop():
            break
        w = strengths.turn.forth(stacked.coefficients(direction))
        ahead = models.outputs(w, direction[:, -1])
        held = inner.held(strengths, w, direction[:, -1]).astype(np.float64)
        del w  # there may be very many
        slope = _dots(gradient, direction)
        t = _best(_along(models, z, ahead, slope, held), slope, np.where(t > 0, t, 1.0))
        if -(t @ slope) <= rounding * value:
            value = _value(models, z)
        idle = idle + 1 if -(t @ slope) <= rounding * value else 0
        y, z = _moved(y, t, direction), _moved(z, t, ahead)
        del ahead
        models.keep(x, y, strengths, z)
        new = inner.grad_y(x, y)
        new_size = _dots(new, new)
        turn = (new_size - _dots(new, gradient)) / np.where(size > 0, size, 1)
        gradient, size = new, new_size
        direction *= np.maximum(turn, 0).astype(y.dtype)[:, None, None]
        direction -= gradient
        lost = _dots(gradient, direction) >= 0
        direction[lost] = -gradient[lost]
    return y


def _dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of each model."""
    return np.array([np.vdot(one, other) for one, other in zip(a, b, strict=True)], np.float64)


def _moved(a: np.ndarray, t: np.ndarray, along: np.ndarray) -> np.ndarray:
    moved = along * t.astype(a.dtype)[:, None, None]
    moved += a
    return moved


def _value(models: Models, z: np.ndarray) -> float:
    """The mean loss, summed over models."""
    return float(np.vdot(models.train[:, 0], models.loss.value(z, models.target, 1)))


def _along(
    models: Models, z: np.ndarray, ahead: np.ndarray, slope: np.ndarray, held: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """g's slope of each model after steps t; the penalty's grows by `held` for each unit."""
    weighted = models.train * ahead

    def of_loss(z: np.ndarray) -> np.ndarray:
        return _dots(models.loss.slope(z, models.target, 1), weighted)

    of_penalty = slope - of_loss(z)
    return lambda t: of_loss(_moved(z, t, ahead)) + of_penalty + t * held


def _best(slope_at: Callable, slope: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """The steps where hardly any slope is left: by secants, from a guess, within what is known."""
    known, steep = np.zeros(len(slope)), slope
    low, high, t = known, np.full(len(slope), np.inf), guess
    for _ in range(MOST_TRIES):
        rest = slope_at(t)
        left = np.abs(rest) > NEARLY * np.abs(slope)
        if not left.any():
            break
        low, high = np.where(rest < 0, t, low), np.where(rest > 0, t, high)
        bend = (rest - steep) / np.where(t == known, 1, t - known)
        ahead = t - rest / np.where(bend > 0, bend, 1)
        known, steep = t, rest
        far = np.where(
            np.isfinite(high), 0.5 * (low + np.where(high < np.inf, high, 0)), FARTHER * t
        )
        fits = (bend > 0) & (ahead > low) & (ahead < np.minimum(high, FARTHER * t))
        t = np.where(left, np.where(fits, ahead, far), t)
    return t
