"""An output folder that is there whole or not at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def written_whole(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a folder beside `out` to write into; it becomes `out` only if all went well."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; expected a folder, so give another name.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ValueError(
            f"--out {out} exists and is not empty; give another name, or --overwrite to replace it."
        )
    out = out.absolute()  # so that "." and "runs/.." have a name and a parent
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    made = [parent for parent in partial.parents if not parent.exists()]
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    except OSError as error:
        if error.errno in FULL:
            raise ValueError(
                f"The disk of --out {out} is full; nothing was written, so make room or give a "
                "folder on another disk."
            ) from error
        raise
    finally:
        if partial.exists():
            shutil.rmtree(partial, ignore_errors=True)
            for parent in made:  # innermost first; all empty, since only we wrote there
                parent.rmdir()
