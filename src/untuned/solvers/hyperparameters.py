"""Checks of a method's hyperparameters; each error is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from untuned.util.wording import brief


def require_positive(solver: Any, *fields: str) -> None:
    """Refuse hyperparameters that are not positive finite numbers, in one sentence."""
    _require(solver, fields, lambda value: value > 0, "a finite number above zero", 1.0)


def _require(
    solver: Any, fields: tuple[str, ...], holds: Callable[[float], bool], what: str, example: float
) -> None:
    for field in fields:
        value = getattr(solver, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and abs(value) <= sys.float_info.max and holds(value)):
            raise ValueError(
                f"{type(solver).__name__} was given {field}={brief(value)}; "
                f"expected {what}, for example {field}={example}."
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


def require_finite(solver: Any, *fields: str) -> None:
    """Refuse hyperparameters that are not finite numbers."""
    _require(solver, fields, lambda value: True, "a finite number", 0.0)


def require_not_negative(solver: Any, *fields: str) -> None:
    """Refuse hyperparameters that are not finite numbers from zero up."""
    _require(solver, fields, lambda value: value >= 0, "a finite number from zero up", 0.0)


def require_share(solver: Any, *fields: str) -> None:
    """Refuse hyperparameters that are not between zero and one."""
    _require(solver, fields, lambda value: 0 < value < 1, "a number between zero and one", 0.5)


def require_choice(solver: Any, field: str, *choices: str) -> None:
    """Refuse a hyperparameter that is none of the words it may be."""
    value = getattr(solver, field)
    if value not in choices:
        raise ValueError(
            f"{type(solver).__name__} was given {field}={brief(value)}; "
            f"expected {' or '.join(map(repr, choices))}."
        )
