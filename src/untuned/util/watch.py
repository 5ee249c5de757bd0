"""A limit that loops inside a step keep too: they ask, and end with what they have.

A step of a method that solves for y and v may take minutes. Where its loops run in Python they ask
the watch of the run before each turn; a run then leaves out the step that was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Watch:
    """Whether it is time to stop; once it has said so it stays with that."""

    def __init__(self, is_over: Callable[[], bool]):
        self._is_over = is_over
        self.has_stopped = False

    def says_stop(self) -> bool:
        """Asked before each turn of a loop."""
        self.has_stopped = self.has_stopped or self._is_over()
        return self.has_stopped


_present: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def over(is_over: Callable[[], bool]) -> Iterator[Watch]:
    """Inside, loops end once `is_over` says so."""
    watch = Watch(is_over)
    token = _present.set(watch)
    try:
        yield watch
    finally:
        _present.reset(token)


def present() -> Watch | None:
    """The watch of the innermost run, if it has one."""
    return _present.get()
