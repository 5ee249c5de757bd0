"""How values are shown in messages: on one line, and never at length."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

MOST_NAMES = 300  # characters of a list of names
NO_TORCH = "needs PyTorch, which is not installed; install it with pip install torch."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def brief(value: Any, most: int = 80) -> str:
    """`repr(value)` on one line, cut where it is longer than `most` characters."""
    if isinstance(value, np.generic):
        value = value.item()  # 3, not np.int64(3)
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def is_unicode(name: str) -> bool:
    """Whether tables and pages can hold a name; a file system may have others."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def number(value: float, digits: int = 6) -> str:
    """A number as people write it: so many digits, and no exponent below a thousand billions."""
    short = f"{value:.{digits}g}"
    return f"{float(short):.0f}" if "e+" in short and abs(value) < 1e15 else short


def reason(error: BaseException, most: int = 200, after: str = "") -> str:
    """The first sentence of another package's error, `after` an opening, to be quoted in ours."""
    text = _on_one_line(str(error)).removeprefix(after)
    first = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
    return (first or type(error).__name__)[:most].rstrip(".!? ")


def _on_one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def unknown(kind: str, name: Any, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among those known, with the nearest one."""
    names = sorted(known)
    # Neither letters' case nor blanks around a name are what makes two names different to people.
    plain = [each.strip().casefold() for each in names]
    close = difflib.get_close_matches(str(name).strip().casefold(), plain, n=1, cutoff=0.0)[0]
    nearest = names[plain.index(close)]
    shown = _on_one_line(", ".join(names))
    shown = shown if len(shown) <= MOST_NAMES else shown[: MOST_NAMES - 3] + "..."
    return ValueError(
        f"There is no {kind} {brief(name)}; the nearest name is {brief(nearest)}, and all names "
        f"are {shown}."
    )


def sentence(error: BaseException) -> str:
    """What an error says, for a person who has not seen the code."""
    if isinstance(error, OSError) and error.errno in FULL:
        return "The disk is full; make room, or write to another disk."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return f"This {NO_TORCH}"
    if isinstance(error, MemoryError):
        return "There is not enough memory; give fewer rows or columns, or a larger machine."
    return str(error)
