"""What is said, and what becomes of y and its derivative, where there is no solution."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from untuned.solution import newton

NONE_FOUND = (
    "no minimum of inner was found from y0; it may have none, or not be smooth, or need more "
    "than max_steps steps"
)
REASONS = {
    newton.NOT_FINITE: (
        "inner or its gradient is not finite on the way from y0; check its formula there (a root "
        "or logarithm at zero?), or give another y0"
    ),
    newton.NOT_FOUND: NONE_FOUND,
    newton.LOST: NONE_FOUND,
    newton.NOT_CONVEX: (
        "inner is not strongly convex where its gradient vanishes (its Hessian is singular there, "
        "or has a negative eigenvalue), so the solution has no derivative; add a ridge term to "
        "it, or give another y0"
    ),
}


NO_PROGRAM = (
    "no y was found at which y' Q y / 2 + c' y is least; A y = b and G y <= h may contradict each "
    "other, rows of A may repeat each other, or it may fall without end within them"
)
OF_PROGRAMS = {  # the same for quadratic programs, which have no y0 and no steps to give
    newton.NOT_FINITE: "an array holds a value that is not finite; remove or replace it",
    newton.NOT_FOUND: NO_PROGRAM,
    newton.LOST: NO_PROGRAM,
    newton.NOT_CONVEX: (
        "Q has a negative eigenvalue, or none above zero along what A, b, G and h leave free, or "
        "they hold y twice over, so the solution has no derivative; add a ridge to Q, or leave out "
        "rows of A and G that others imply"
    ),
}


def sentence(codes: Any, reasons: Mapping[int, str] = REASONS) -> str | None:
    """What went wrong, for one problem or many; None if nothing did."""
    codes = np.asarray(codes).reshape(-1).astype(int)
    failed = codes[codes != newton.FINE]
    if not len(failed):
        return None
    reason = reasons[int(np.bincount(failed).argmax())]
    if len(codes) == 1:
        return f"The inner problem has no solution to give: {reason}."
    return (
        f"{len(failed)} of {len(codes)} inner problems have no solution to give, most of them "
        f"because {reason}."
    )


def tell(codes: Any, on_failure: str, reasons: Mapping[int, str] = REASONS) -> None:
    """Raise or warn where a problem failed and that was asked for."""
    if on_failure == "nan":
        return
    text = sentence(codes, reasons)
    if text is not None and on_failure == "raise":
        raise RuntimeError(text)
    if text is not None:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def marks(lib: Any, code: Any, on_failure: str) -> Any:
    """By what to multiply the derivative: one, or NaN where there is none.

    Where the user wants y in any case, a derivative is given at a point that is no solution as
    well, but not where g's Hessian does not allow one.
    """
    fine = code == newton.FINE
    if on_failure == "warn":
        fine = fine | (code == newton.NOT_FOUND)
    return lib.where(fine, 0 * code + 1, math.nan)


def masked(lib: Any, y: Any, code: Any, on_failure: str) -> Any:
    """y, or NaN where there is none to give."""
    return y if on_failure == "warn" else y * marks(lib, code, on_failure)
