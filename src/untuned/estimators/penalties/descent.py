"""Penalties by the default method: L-BFGS on a function that knows its gradient.

`method="auto"` of `untuned.minimize` does the same where nothing is left of the inner problem, and
many other things that are not needed here. Other methods, and a live bar, go to `untuned.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from untuned.estimators.penalties.outcome import Limit
from untuned.run.result import COLUMNS, History, Result, Status
from untuned.util import watch
from untuned.util.progress import Bar

MOST_TRIES = 20  # values of f in one step
LONGEST = float(np.log(10.0))  # by which a step may change a logarithm

MESSAGES: dict[Status, str] = {
    "callback": "Rows that had no part in it gain no more",
    "converged": "The gradient is as good as zero",
    "max_seconds": "Time was up. Give more to go further",
    "max_steps": "max_steps was reached. Give more to go further",
    "stalled": "No step gains more than rounding",
}


class Step(NamedTuple):
    """What a callback sees."""

    x: np.ndarray
    step: int
    record: dict[str, float]


def minimize(
    f: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray, *, max_steps: int,
    limit: Limit, tol: float, callback: Callable[[Step], Any], progress: bool,
) -> Result:  # fmt: skip
    """From x to where the gradient's norm is `tol` of the first, or until something ends it."""
    began, dtype, shape = limit.taken(), x.dtype, x.shape
    history, norms = History(), [0.0]
    status: Status = "stalled"
    here = x

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = f(flat.reshape(shape).astype(dtype))
        return found, gradient.ravel().astype(np.float64)

    def note(step: int, outer: float, norm: float) -> dict[str, float]:
        record = dict.fromkeys(COLUMNS, 0) | {
            "step": step, "seconds": limit.taken() - began, "outer": outer, "hypergrad_norm": norm,
        }  # fmt: skip
        history.append(record)
        return record

    def after_step(intermediate_result: Any) -> None:
        nonlocal status, here
        here = intermediate_result.x.reshape(shape).astype(dtype)
        step = int(history["step"][-1]) + 1
        outer, gradient = known(intermediate_result.x)
        norms.append(float(np.linalg.norm(gradient)))
        record = note(step, outer, norms[-1])
        if bar is not None:
            bar.update(step, outer, norms[-1])
        late = limit.is_over()
        if callback(Step(here, step, record)) or late or norms[-1] <= tol * norms[0]:
            status = "max_seconds" if late else "callback"
            status = "converged" if norms[-1] <= tol * norms[0] else status
            raise StopIteration

    def within(flat: np.ndarray) -> tuple[float, np.ndarray]:
        # A line search turns back from a wall. From a pair of gradients alone L-BFGS may leap over
        # orders of magnitude, to where rows that had no part in it lose all that was gained.
        away = flat - here.ravel()
        far = float(np.abs(away).max()) / LONGEST
        if far <= 1 + 1e-9:
            return known(flat)
        outer, gradient = known(here.ravel() + away / far)
        wall = np.where(np.abs(away) >= far * LONGEST, np.sign(away), 0.0) / LONGEST
        height = abs(outer) + float(np.abs(gradient).sum())
        return outer + height * (far - 1), height * wall

    known = _last(value)
    shown: Any = Bar(max_steps, "penalties") if progress else nullcontext()
    with shown as bar, watch.over(limit.is_over):
        outer, gradient = known(x.ravel().astype(np.float64))
        norms[0] = float(np.linalg.norm(gradient))
        note(0, outer, norms[0])
        found = optimize.minimize(
            within, x.ravel(), jac=True, method="L-BFGS-B", callback=after_step,
            options={"maxiter": max_steps, "maxls": MOST_TRIES, "ftol": 0.0, "gtol": 0.0},
        )  # fmt: skip
    if status == "stalled" and limit.is_over():  # in the middle of a step
        status = "max_seconds"
    elif status == "stalled" and found.nit >= max_steps:
        status = "max_steps"
    outers = history["outer"]
    steps = int(history["step"][-1])
    message = (
        f"{MESSAGES[status]}, after {steps} steps: the loss of validation rows went from "
        f"{outers[0] / len(x):.6g} to {outers[-1] / len(x):.6g}, the gradient norm from "
        f"{norms[0]:.3g} to {norms[-1]:.3g}."
    )
    taken = limit.taken() - began
    nothing = np.zeros(1, dtype)
    return Result(here, nothing, None, status, message, steps, taken, 0.0, {}, history, None)


def _last(value: Callable) -> Callable:
    """A function that remembers its last point: a callback is told of it without its gradient."""
    last: list[Any] = [None, None]

    def known(x: np.ndarray) -> tuple[float, np.ndarray]:
        if last[0] is None or not np.array_equal(last[0], x):
            last[:] = [x.copy(), value(x)]
        found: tuple[float, np.ndarray] = last[1]
        return found

    return known
