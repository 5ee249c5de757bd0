"""One user of a path at a time. The kernel holds the lock, so it dies with its process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HELD = (errno.EAGAIN, errno.EACCES)


@contextmanager
def held(path: Path, refusal: str) -> Iterator[None]:
    """Hold `path` inside; raise ValueError(refusal) where another process or run holds it.

    The lock is on a file beside `path`, since `path` itself is replaced; it is removed at the end.
    A file that a killed process left behind is not locked, and so blocks nobody.
    """
    try:
        import fcntl
    except ImportError:  # not Unix: better no lock than no run
        yield
        return
    beside = path.with_name(path.name + ".lock")
    while True:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                os.close(descriptor)
                raise ValueError(refusal) from None
            # A file system without locks: again, better no lock than no run.
        if _is_still_there(descriptor, beside):
            break
        os.close(descriptor)  # its last holder removed it after we had opened it
    try:
        yield
    finally:
        beside.unlink(missing_ok=True)  # while it is held, so that it is nobody else's
        os.close(descriptor)


def _is_still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
