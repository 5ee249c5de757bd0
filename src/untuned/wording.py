"""How values are shown in messages: on one line, and never at length."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def brief(value: Any, most: int = 80) -> str:
    """`repr(value)` on one line, cut where it is longer than `most` characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def unknown(kind: str, name: Any, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among those known, with the nearest one."""
    names = sorted(known)
    nearest = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.0)[0]
    return ValueError(
        f"There is no {kind} {brief(name)}; the nearest name is {nearest!r}, and all names are "
        f"{', '.join(names)}."
    )


def sentence(error: BaseException) -> str:
    """What an error says, for a person who has not seen the code."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return "There is not enough memory; give fewer rows or columns, or a larger machine."
    return str(error)
