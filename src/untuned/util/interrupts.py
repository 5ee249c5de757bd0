"""Ctrl-C: once ends a run with the result so far, twice stops everything at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NEWS = b"\nuntuned: ending the run with the result so far; press Ctrl-C again to stop at once.\n"


@contextmanager
def counted() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C only makes the yielded function return True; the second raises.

    A handler that somebody else has set stays, and so does Python's own outside the main thread.
    """
    if not _is_ours_to_set():
        yield lambda: False
        return
    pressed = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        os.write(2, NEWS)  # not print: the signal may have come in the middle of one

    with _handled_by(handle):
        yield lambda: pressed


@contextmanager
def passed_on() -> Iterator[None]:
    """Inside, runs leave Ctrl-C alone: for work that makes many runs, all of which must end."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if not _is_ours_to_set():
        yield
        return
    with _handled_by(handle):
        yield


def _is_ours_to_set() -> bool:
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextmanager
def _handled_by(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
