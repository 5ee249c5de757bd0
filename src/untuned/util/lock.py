"""One user of a path at a time. The kernel holds the lock, so it dies with its process."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HELD = (errno.EAGAIN, errno.EACCES)
SUFFIX = ".untuned-lock"
PRIVATE = re.compile(r"\.untuned-[0-9a-f]{16}")


@contextmanager
def held(path: Path, refusal: str | None = None) -> Iterator[Path]:
    """Hold `path` inside, and yield a temporary name beside it that only its holder uses.

    Where another process or run holds it, raise ValueError(refusal), or wait where there is none.
    The lock is on a file beside `path`, since `path` itself is replaced; it is removed at the end.
    A killed process leaves that file behind, not locked, with the temporary name in it: the next
    holder gets the same name, and so knows whose the half-written output is that it finds there.
    """
    private = f".untuned-{secrets.token_hex(8)}"
    try:
        import fcntl
    except ImportError:  # not Unix: better no lock than no run
        yield path.with_name(private)
        return
    beside = file_of(path)
    while True:
        descriptor = _opened(beside)
        is_alone = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except OSError as error:
            if error.errno in HELD:
                os.close(descriptor)
                raise ValueError(refusal) from None
            is_alone = False  # a file system without locks: again, better no lock than no run
        if _is_still_there(descriptor, beside):
            break
        os.close(descriptor)  # its last holder removed it after we had opened it
    left = os.pread(descriptor, 100, 0).decode(errors="replace")
    if left and is_alone:
        private = left
    else:
        with suppress(OSError):  # a full disk: what is left if we are killed will stay then
            os.pwrite(descriptor, private.encode(), 0)
    try:
        yield path.with_name(private)
    finally:
        beside.unlink(missing_ok=True)  # while it is held, so that it is nobody else's
        os.close(descriptor)


def file_of(path: Path) -> Path:
    """Where the lock of a path is."""
    return path.with_name(path.name + SUFFIX)


def _opened(path: Path) -> int:
    """The lock file, made where there is none; a file of that name which is not ours is refused."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR):
            raise
    else:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        content = os.pread(descriptor, 100, 0).decode(errors="replace") if is_file else "?"
        if not content or PRIVATE.fullmatch(content):
            return descriptor
        os.close(descriptor)
    raise ValueError(
        f"{path} is not a lock file of untuned; move it away, or give another name for the output."
    )


def _is_still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
