"""The settings of a run, checked: budgets, tolerance, seed, callback, checkpoint path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from untuned.solvers import Solver
from untuned.util.wording import brief


def check(
    solver: Any, max_steps: Any, max_seconds: Any, tol: Any, seed: Any, eval_every: Any,
    callback: Any,
) -> None:  # fmt: skip
    """Refuse settings that make no sense, each in one sentence."""
    if not isinstance(solver, Solver):
        raise ValueError(
            f"method={brief(solver)} is not a method; expected a name such as 'd-tfbo', or a "
            "solver such as untuned.solvers.DTFBO()."
        )
    _check_whole("max_steps", max_steps, 1)
    _check_whole("seed", seed, 0)
    if eval_every is not None:
        _check_whole("eval_every", eval_every, 1)
    for name, value, example in (("max_seconds", max_seconds, 60.0), ("tol", tol, 1e-3)):
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 < float(value) < float("inf")):
            raise ValueError(
                f"{name}={brief(value)} is not usable; expected a number above zero, for example "
                f"{name}={example}, or None."
            )
    if callback is not None and not callable(callback):
        raise ValueError(
            f"callback is a {type(callback).__name__}; expected a function of one snapshot."
        )


def check_on_disk(solver: Any, on_disk: tuple) -> None:
    """Refuse methods that need more than the rows of a batch where rows are on disk."""
    needs_more = solver.needs_blocks or solver.needs_all_rows
    if needs_more and any(side is not None for side in on_disk):
        why = "fixed blocks of rows" if solver.needs_blocks else "all rows from time to time"
        raise ValueError(
            f"{solver.name} needs {why}, and rows on disk are read batch by batch; use 'auto' or "
            "another method, or give arrays in memory."
        )


def _check_whole(name: str, value: Any, least: int) -> None:
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(
            f"{name}={brief(value)} is not usable; expected a whole number from {least} up, for "
            f"example {name}={max(least, 10)}."
        )


def checkpoint_path(checkpoint: Any) -> Path | None:
    """Where to save, or None; the folder must be there."""
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(
            f"checkpoint={brief(checkpoint)} is not a path; expected the path of a "
            "file in an existing folder."
        )
    path = Path(checkpoint)
    if path.is_dir():
        what = "is a folder"
    elif not path.parent.is_dir():
        what = f"lies in {path.parent}, which is not an existing folder"
    elif not os.access(path.parent, os.W_OK):
        what = f"lies in {path.parent}, where nothing can be written"
    else:
        return path
    raise ValueError(
        f"checkpoint={str(path)!r} {what}; expected the path of a file in an existing folder."
    )
