"""A limit that loops inside a step keep too: they ask, and end with what they have.

A step of a method that solves for y and v may take minutes. Where its loops run in Python they ask
the watch of the run before each turn; a run then leaves out the step that was cut. A watch inside
another one stops with it, so whoever calls `minimize` can limit it by something else than seconds.

Several processes must end their loops at the same turn. Each of them says what it wants with the
messages that it sends anyway, and their watch is `shared`: it stops once one of them wants to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Watch:
    """Whether it is time to stop, or the watch around it says so; having said it, it stays so."""

    def __init__(self, is_over: Callable[[], bool], shared: bool, around: Watch | None):
        self._is_over = is_over
        self.has_stopped = False
        self._shared = shared
        self._around = around

    def wants_stop(self) -> bool:
        """Whether this process wants to stop."""
        return self._is_over() or (self._around is not None and self._around.says_stop())

    def says_stop(self) -> bool:
        """Asked before each turn of a loop."""
        if not self._shared:
            self.has_stopped = self.has_stopped or self.wants_stop()
        return self.has_stopped

    def agree(self, others: bool) -> None:
        """Stop if one of the processes wants to; all of them are told at the same moment."""
        self.has_stopped = self.has_stopped or others


_present: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def over(is_over: Callable[[], bool], shared: bool = False) -> Iterator[Watch]:
    """Inside, loops end once `is_over` says so, be it in another process where it is `shared`."""
    watch = Watch(is_over, shared, _present.get())
    token = _present.set(watch)
    try:
        yield watch
    finally:
        _present.reset(token)


def says_stop() -> bool:
    """Whether the innermost run has a watch that says so."""
    watch = _present.get()
    return watch is not None and watch.says_stop()


def present() -> Watch | None:
    """The watch of the innermost run, if it has one."""
    return _present.get()
