"""How values are shown in messages: on one line, and never at length."""

from __future__ import annotations

from typing import Any


def brief(value: Any, most: int = 80) -> str:
    """`repr(value)` on one line, cut where it is longer than `most` characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."
