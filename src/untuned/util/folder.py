"""Output that is written whole or not at all: a folder, files added to one, a file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from untuned.util import lock
from untuned.util.wording import FULL

FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def written_whole(out: Path, overwrite: bool, inputs: Iterable[Path | None] = ()) -> Iterator[Path]:
    """Yield a folder beside `out` to write into; it becomes `out` only if all went well.

    `inputs` are what the command reads, which must not go with the old folder.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; expected a folder, so give another name.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ValueError(
            f"--out {out} exists and is not empty; give another name, or --overwrite to replace it."
        )
    _check_place(out, [each for each in inputs if each is not None])
    out = out.resolve()  # so that "." and "runs/.." have a name, and a link leads to its folder
    with _beside(out) as partial:
        yield partial
        # The old one goes only when the new one is in its place.
        old = partial.with_name(partial.name + ".old")
        if out.exists():
            shutil.rmtree(old, ignore_errors=True)
            out.rename(old)
        partial.rename(out)
        shutil.rmtree(old, ignore_errors=True)


def _check_place(out: Path, inputs: list[Path]) -> None:
    """Refuse a folder whose replacement would take away more than the output of another run."""
    place = out.resolve()
    if Path.cwd().is_relative_to(place):
        raise ValueError(
            f"--out {out} is the folder you are in, or one around it, and would be replaced as a "
            "whole; give the name of a new folder."
        )
    for each in inputs:
        if each.resolve().is_relative_to(place):
            raise ValueError(
                f"{each} is in --out {out}, which is replaced as a whole; give the name of another "
                "folder."
            )
        if each.is_dir() and place.is_relative_to(each.resolve()):
            raise ValueError(
                f"--out {out} is in {each}, which is read; give a folder outside of it."
            )


@contextmanager
def added_whole(out: Path) -> Iterator[Path]:
    """Yield a folder to write files into; they go to `out`, each in one step, if all went well."""
    with _beside(out.absolute()) as partial:
        yield partial
        out.mkdir(exist_ok=True)
        for file in sorted(partial.iterdir()):
            file.replace(out / file.name)


def put(path: Path, partial: Path, content: bytes) -> None:
    """Put a file in its place in one step, through `partial` beside it, and onto the disk."""
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # Renaming is atomic: a reader sees the old file or the new one, never a part.
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # where it failed, to make room again
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """An empty folder beside `out`, for one process at a time; removed at the end."""
    partial = out.with_name(out.name + ".partial")
    made = [parent for parent in partial.parents if not parent.exists()]
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with lock.held(
            partial,
            f"Another command is writing to --out {out}; wait until it ends, or give another name.",
        ):
            shutil.rmtree(partial, ignore_errors=True)  # of a command that was killed
            partial.mkdir()
            try:
                yield partial
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno in FULL:
            raise ValueError(
                f"The disk of --out {out} is full; nothing was written, so make room or give a "
                "folder on another disk."
            ) from error
        at = Path(str(error.filename))  # what is read may be forbidden, too
        if error.errno in FORBIDDEN and (at in (out, *made) or str(at).startswith(str(partial))):
            raise ValueError(
                f"--out {out} cannot be written ({error.strerror}); give a folder in a place of "
                "your own."
            ) from error
        raise
    finally:
        for parent in made:  # innermost first; empty unless all went well
            with suppress(OSError):
                parent.rmdir()
