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
TINY = 1e-300  # of no model, whose penalty does not pull
IDLE = 3  # steps in a row that gain nothing beyond rounding


def solve(models: Models, x: np.ndarray, start: list[np.ndarray], share: float) -> np.ndarray:
    """y at x, from a start that the list holds: with at most this share of the start's gradient
    left, and of the pull of the penalty.

    That pull is what the loss has to balance, and as the penalty curves everywhere, y is then off
    by no more than about this share of its length, whatever the data and the strength are. A share
    of the gradient of no model says nothing of the kind where strengths are weak.
    """
    inner, y = Inner(models), start.pop()
    strengths, rounding = models.strengths(x), float(np.finfo(y.dtype).eps)
    gradient, z = _gradient(inner, x, y), models.at(x, y).z
    direction, size = -gradient, _dots(gradient, gradient)
    first, idle, value = size, 0, _value(models, z)
    pulled = inner.held(strengths, models.at(x, y).w, y[:, -1]).astype(np.float64)
    for _ in range(MOST_STEPS):
        # The penalty's pull is at least <y, pull> / |y|.
        pull = pulled**2 / np.maximum(_dots(y, y), TINY)
        is_near = size <= share**2 * np.minimum(first, pull)
        if is_near.all() or idle >= IDLE or watch.says_stop():
            break
        w = strengths.turn.forth(stacked.coefficients(direction))
        ahead = models.outputs(w, direction[:, -1])
        held = inner.held(strengths, w, direction[:, -1]).astype(np.float64)
        del w  # there may be very many
        slope = _dots(gradient, direction)
        t, of_penalty = _step(models, z, ahead, slope, held)
        pulled += t * (2 * of_penalty + t * held)
        if -(t @ slope) <= rounding * value:
            value = _value(models, z)
        idle = idle + 1 if -(t @ slope) <= rounding * value else 0
        y, z = _moved(y, t, direction), _moved(z, t, ahead)
        del ahead
        models.keep(x, y, strengths, z)
        new = _gradient(inner, x, y)
        new_size = _dots(new, new)
        turn = (new_size - _dots(new, gradient)) / np.where(size > 0, size, 1)
        gradient, size = new, new_size
        direction *= np.maximum(turn, 0).astype(y.dtype)[:, None, None]
        direction -= gradient
        lost = _dots(gradient, direction) >= 0
        direction[lost] = -gradient[lost]
    return y


def _gradient(inner: Inner, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """grad_y g, along which intercepts keep their sum of zero.

    The term that asks for it curves as the loss does where nothing is known. Where a model is
    sure of its rows all else has come to curve thousands of times less, and steps would go back
    and forth along that one direction.
    """
    gradient, alike = inner.grad_y(x, y), inner.models.alike
    gradient[:, -1] -= np.outer(gradient[:, -1] @ alike, alike)
    return gradient


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


def _step(
    models: Models, z: np.ndarray, ahead: np.ndarray, slope: np.ndarray, held: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The best steps along outputs `ahead`, and the penalty's part of the slope where they begin.

    That part grows by `held` for each unit. Steps differ by orders of magnitude from one direction
    to the next, so the first that is tried is that of Newton's method.
    """
    weighted = models.train * ahead

    def of_loss(z: np.ndarray) -> np.ndarray:
        return _dots(models.loss.slope(z, models.target, 1), weighted)

    of_penalty = slope - of_loss(z)
    curve = _dots(models.loss.bend(z, 1, models.target)(ahead), weighted) + held

    def slope_at(t: np.ndarray) -> np.ndarray:
        return of_loss(_moved(z, t, ahead)) + of_penalty + t * held

    return _best(slope_at, slope, -slope / curve), of_penalty


def _best(slope_at: Callable, slope: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """The steps where hardly any slope is left: by secants, from a guess, within what is known.

    If none is found, the farthest that is known to lead down.
    """
    known, steep = np.zeros(len(slope)), slope
    low, high, t = known, np.full(len(slope), np.inf), guess
    for _ in range(MOST_TRIES):
        rest = slope_at(t)
        left = np.abs(rest) > NEARLY * np.abs(slope)
        low = np.where((rest < 0) | ~left, t, low)
        if not left.any():
            break
        high = np.where(rest > 0, t, high)
        bend = (rest - steep) / np.where(t == known, 1, t - known)
        ahead = t - rest / np.where(bend > 0, bend, 1)
        known, steep = t, rest
        # Between bounds that are orders of magnitude apart the middle is that of logarithms.
        least = np.maximum(low, high / FARTHER)
        far = np.where(np.isfinite(high), np.sqrt(least * high), FARTHER * t)
        fits = (bend > 0) & (ahead > low) & (ahead < np.minimum(high, FARTHER * t))
        t = np.where(left, np.where(fits, ahead, far), t)
    return low
