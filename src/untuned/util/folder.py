"""Output that is written whole or not at all, and never in place of what is not ours.

What is not finished has a temporary name (`lock.held`). A folder, or a file in one, is replaced
only where a record in that folder lists it as written by untuned.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from untuned.util import lock
from untuned.util.wording import FULL

FORBIDDEN = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG,
    errno.ELOOP,
)  # fmt: skip
RESULT = "result.json"  # in a folder of one run: it lists, as "written", all files of the run
ADDED = "written.json"  # in a folder that several commands write to: the same list
OLD, NEW = "old", "new"  # folders in the temporary one


@contextmanager
def written_whole(out: Path, overwrite: bool, inputs: Iterable[Path | None] = ()) -> Iterator[Path]:
    """Yield a folder beside `out` to write into; it becomes `out` only if all went well.

    `inputs` are what the command reads, which must not go with the old folder.
    """
    # `os.path` says no where `Path` raises, as for names that are too long.
    if os.path.exists(out) and not os.path.isdir(out):
        raise ValueError(f"--out {out} is a file; expected a folder, so give another name.")
    if os.path.isdir(out) and any(out.iterdir()) and not overwrite:
        raise ValueError(
            f"--out {out} exists and is not empty; give another name, or --overwrite to replace it."
        )
    _check_place(out, [each for each in inputs if each is not None])
    _check_ours(out, out)
    place = _place(out)  # so that "." and "runs/.." have a name, and a link leads to its folder
    with _beside(place) as private:
        yield private / NEW
        # The old one goes only when the new one is in its place.
        if place.exists():
            place.rename(private / OLD)
            _check_ours(private / OLD, out)  # again: hours may have passed
        (private / NEW).rename(place)


def _place(out: Path) -> Path:
    return Path(os.path.realpath(out))  # as `resolve`, which raises for links that lead in a circle


def _check_place(out: Path, inputs: list[Path]) -> None:
    """Refuse a folder whose replacement would take away more than the output of another run."""
    place = _place(out)
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


def _check_ours(folder: Path, out: Path) -> None:
    """Refuse to replace `out`, now in `folder`, if it holds anything that we did not write."""
    ours = _written(folder / RESULT)
    strange = sorted(
        each.name
        for each in (folder.iterdir() if os.path.isdir(folder) else ())
        if each.name not in ours or each.is_symlink() or each.is_dir()
    )
    if strange:
        raise ValueError(
            f"--out {out} holds {strange[0]}, which untuned did not write, so the folder is not "
            "replaced; move that elsewhere, or give another name."
        )


def _written(record: Path) -> set[str]:
    """The names of files that a record lists as written by untuned; none without a record."""
    if os.path.islink(record) or not os.path.isfile(record):
        return set()
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        return {str(name) for name in found["written"]} if "untuned" in found["versions"] else set()
    except (ValueError, LookupError, TypeError, RecursionError):
        return set()


@contextmanager
def added_whole(out: Path) -> Iterator[Path]:
    """Yield a folder to write files into; they go to `out`, each in one step, if all went well."""
    from importlib.metadata import version

    with _beside(out.absolute()) as private:
        yield private / NEW
        ours, made = _written(out / ADDED), sorted(each.name for each in (private / NEW).iterdir())
        for name in [ADDED, *made]:
            if os.path.lexists(out / name) and name not in ours:
                raise ValueError(
                    f"{out / name} was not written by untuned, so it is not replaced; move it "
                    "elsewhere, or give another --out."
                )
        out.mkdir(exist_ok=True)
        record = {
            "versions": {"untuned": version("untuned")},
            "written": sorted({ADDED, *ours, *made}),
        }
        (private / NEW / ADDED).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for name in [ADDED, *made]:  # the record first, so that no file of ours is without one
            (private / NEW / name).replace(out / name)


def put(path: Path, content: bytes, private: Path | None = None) -> None:
    """Put a file in its place in one step, and onto the disk; only a plain file is replaced.

    `private` is the temporary name of whoever holds `path` already.
    """
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise ValueError(
            f"{path} is no plain file, so it is not replaced; move it elsewhere, or give another "
            "name."
        )
    if private is None:
        with lock.held(path) as private:
            put(path, content, private)
        return
    private.unlink(missing_ok=True)  # of a holder that was killed
    try:
        with private.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # Renaming is atomic: a reader sees the old file or the new one, never a part.
        os.replace(private, path)
    finally:
        private.unlink(missing_ok=True)  # where it failed, to make room again
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out` with an empty one in it, for one process at a time."""
    made = [parent for parent in out.parents if not parent.exists()]
    private = out
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with lock.held(
            out,
            f"Another command is writing to --out {out}; wait until it ends, or give another name.",
        ) as private:
            if os.path.lexists(private) and not _is_real(private):
                raise ValueError(
                    f"{private} is no folder of untuned; move it away, or give another --out."
                )
            _tidy(private, out)  # after a command that was killed
            (private / NEW).mkdir(parents=True)
            try:
                yield private
            finally:
                _tidy(private, out)
    except OSError as error:
        if error.errno in FULL:
            raise ValueError(
                f"The disk of --out {out} is full; nothing was written, so make room or give a "
                "folder on another disk."
            ) from error
        at = Path(str(error.filename))  # what is read may be forbidden, too
        if at in (out, lock.file_of(out), *out.parents) or at.is_relative_to(private):
            _say_forbidden(out, error)
        raise
    finally:
        for parent in made:  # innermost first; empty unless all went well
            with suppress(OSError):
                parent.rmdir()


def make(out: Path) -> None:
    """Make a folder, and those around it, where they are missing."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _say_forbidden(out, error)
        raise


def _say_forbidden(out: Path, error: OSError) -> None:
    if error.errno in FORBIDDEN:
        file = [each for each in (out, *out.parents) if os.path.isfile(each)]
        why = f"{file[0]} is a file" if file else error.strerror
        raise ValueError(
            f"--out {out} cannot be written ({why}); give a folder in a place of your own."
        ) from error


def _is_real(folder: Path) -> bool:
    """Whether it is a folder, and not a link to one."""
    return os.path.isdir(folder) and not os.path.islink(folder)


def _tidy(private: Path, out: Path) -> None:
    """Remove the temporary folder; the folder that was to be replaced goes back if nothing did."""
    old = private / OLD
    if old.exists() and not out.exists():
        old.rename(out)
    if _is_real(old):
        ours = _written(old / RESULT)
        for each in old.iterdir():
            if each.name in ours:
                each.unlink()
        with suppress(OSError):
            old.rmdir()
    shutil.rmtree(private / NEW, ignore_errors=True)
    with suppress(OSError):
        private.rmdir()
