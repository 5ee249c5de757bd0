"""How long a search may take, and what it gives back where `minimize` had no part in it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from untuned.run.result import COLUMNS, History, Result, Status

LEAST_LEFT = 1e-3  # seconds: `minimize` asks for some


class Limit:
    """The user's `max_seconds`, for all of `fit`, which `began` then (time.perf_counter)."""

    def __init__(self, seconds: float | None, began: float | None = None):
        self.began = time.perf_counter() if began is None else began
        self.end = math.inf if seconds is None else self.began + seconds

    def taken(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self.began

    def left(self) -> float | None:
        """Seconds, as `minimize` wants them."""
        if math.isinf(self.end):
            return None
        return max(self.end - time.perf_counter(), LEAST_LEFT)

    def is_over(self) -> bool:
        """Whether it is time to end with what there is."""
        return time.perf_counter() > self.end


def result(
    x: np.ndarray, y: np.ndarray, losses: Sequence[float], seconds: float, message: str,
    status: Status = "converged",
) -> Result:  # fmt: skip
    """Of a search along strengths: a record for each of these losses, in the order of the search.

    y are the coefficients there.
    """
    steps = range(len(losses))
    columns = dict.fromkeys(COLUMNS, (0,) * len(losses)) | {"step": steps, "outer": losses}
    history = History(columns)
    return Result(x, y, None, status, message, len(losses) - 1, seconds, 0.0, {}, history, None)
