"""Checks of a method's hyperparameters; each error is one sentence.

NumPy's numbers become Python's, which a checkpoint can hold and a compiled step is known by.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from untuned.util.wording import brief

POSITIVE = "a finite number above zero"


def require_positive(solver: Any, *fields: str) -> None:
    """Refuse hyperparameters that are not positive finite numbers, in one sentence."""
    _require(solver, fields, lambda value: value > 0, POSITIVE, 1.0)


def _plain(solver: Any, field: str) -> Any:
    """A hyperparameter, as a number of Python if it is one of NumPy."""
    value = getattr(solver, field)
    if isinstance(value, np.integer | np.floating):
        value = value.item()
        object.__setattr__(solver, field, value)  # methods are frozen once they are made
    return value


def _require(
    solver: Any, fields: tuple[str, ...], holds: Callable[[float], bool], what: str, example: float
) -> None:
    for field in fields:
        value = _plain(solver, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and abs(value) <= sys.float_info.max and holds(value)):
            raise ValueError(
                f"{type(solver).__name__} was given {field}={brief(value)}; "
                f"expected {what}, for example {field}={example}."
            )


def require_start(solver: Any, *fields: str) -> None:
    """Refuse start values of accumulators that are neither positive numbers nor "auto"."""
    numbers = tuple(field for field in fields if getattr(solver, field) != "auto")
    _require(solver, numbers, lambda value: value > 0, f"{POSITIVE} or 'auto'", 1.0)


def require_count(solver: Any, *fields: str, otherwise: str | None = None) -> None:
    """Refuse loop counts that are not whole numbers from 1 up, and not the word `otherwise`."""
    for field in fields:
        value = _plain(solver, field)
        if otherwise is not None and value == otherwise:
            continue
        if type(value) is not int or value < 1:
            word = "" if otherwise is None else f" or {otherwise!r}"
            raise ValueError(
                f"{type(solver).__name__} was given {field}={brief(value)}; "
                f"expected a whole number from 1 up{word}, for example {field}=10."
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
