"""The settings of a run, checked: budgets, tolerance, seed, callback, checkpoint path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from untuned import solvers


def check(
    solver: Any, max_steps: Any, max_seconds: Any, tol: Any, seed: Any, eval_every: Any,
    callback: Any,
) -> None:  # fmt: skip
    """Refuse settings that cannot be meant, each with one sentence."""
    if not all(hasattr(solver, name) for name in ("init", "step", "loops")):
        raise ValueError(
            f"method={solver!r} is not a method; expected a name such as "
            f"{solvers.names()[0]!r}, or a solver such as untuned.solvers.DTFBO()."
        )
    _check_whole("max_steps", max_steps, 1)
    _check_whole("seed", seed, 0)
    if eval_every is not None:
        _check_whole("eval_every", eval_every, 1)
    for name, value in (("max_seconds", max_seconds), ("tol", tol)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and value > 0):
            raise ValueError(f"{name}={value!r} is not usable; expected a number above zero.")
    if callback is not None and not callable(callback):
        raise ValueError(
            f"callback is a {type(callback).__name__}; expected a function of one snapshot."
        )


def _check_whole(name: str, value: Any, least: int) -> None:
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(
            f"{name}={value!r} is not usable; expected a whole number from {least} up."
        )


def checkpoint_path(checkpoint: Any) -> Path | None:
    """Where to save, or None; the folder must be there."""
    if checkpoint is None:
        return None
    path = Path(checkpoint)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"lies in {path.parent}, which does not exist"
        raise ValueError(
            f"checkpoint={str(path)!r} {what}; expected the path of a file in an existing folder."
        )
    return path
