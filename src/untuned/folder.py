"""An output folder that is there whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a folder beside `out` to write into; it becomes `out` only if all went well."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; expected a folder, so give another name.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ValueError(
            f"--out {out} exists and is not empty; give another name, or --overwrite to replace it."
        )
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
