"""Checks of a method's hyperparameters; each error is one sentence."""

from __future__ import annotations

import sys
from typing import Any

from untuned.util.wording import brief


def require_positive(solver: Any, *fields: str) -> None:
    """Refuse hyperparameters that are not positive finite numbers, in one sentence."""
    for field in fields:
        value = getattr(solver, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 < value <= sys.float_info.max):
            raise ValueError(
                f"{type(solver).__name__} was given {field}={brief(value)}; "
                f"expected a finite number above zero, for example {field}=1.0."
            )


def require_start(solver: Any, *fields: str) -> None:
    """Refuse start values of accumulators that are neither positive numbers nor "auto"."""
    require_positive(solver, *(field for field in fields if getattr(solver, field) != "auto"))


def require_count(solver: Any, *fields: str) -> None:
    """Refuse loop counts that are not whole numbers from 1 up."""
    for field in fields:
        value = getattr(solver, field)
        if type(value) is not int or value < 1:
            raise ValueError(
                f"{type(solver).__name__} was given {field}={brief(value)}; "
                f"expected a whole number from 1 up, for example {field}=10."
            )
