"""The records of finished runs: one Parquet file each, written whole or not at all.

A file says which run it belongs to: problem, method, setting, seed, budget, and the versions of
what computed it. What a run consists of is up to its planner: a NamedTuple that has a
problem, a method, a setting and a seed, and says what it is `computed_by`. A record of anything
else is not read, so records of other settings or versions lie beside each other and never mix.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from untuned.util.folder import put

if TYPE_CHECKING:
    import pandas
    import pyarrow

FORMAT = 1
KEY, DIGEST = b"untuned run", b"untuned digest"


class ComparedRun(NamedTuple):
    """What is to be run. `curve`: whether Phi is evaluated along the way or at both ends only."""

    problem: str
    method: str
    setting: str
    seed: int
    rows: int | None
    batch_size: int
    max_seconds: float
    curve: bool

    @property
    def computed_by(self) -> tuple[str, ...]:
        """The packages whose versions a record depends on."""
        return ("untuned", "jax", "numpy")


def identity(run: Any) -> dict[str, Any]:
    """All that a record depends on."""
    return run._asdict() | {"format": FORMAT} | {name: version(name) for name in run.computed_by}


def path(folder: Path, run: Any) -> Path:
    """Where the record of a run lies: a readable name, and a digest that makes it unique."""
    digest = hashlib.blake2b(_text(run).encode(), digest_size=6).hexdigest()
    words = f"{run.problem} {run.method} {run.setting} seed {run.seed}"
    return folder / f"{re.sub(r'[^a-z0-9.=-]+', '_', words)}.{digest}.parquet"


def write(folder: Path, run: Any, frame: pandas.DataFrame) -> None:
    """Put the record of a finished run into the folder, atomically and durably."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    about = {KEY: _text(run), DIGEST: _digest(table)}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **about})
    content = io.BytesIO()
    parquet.write_table(table, content)
    put(path(folder, run), content.getvalue())


def read(folder: Path, run: Any) -> pandas.DataFrame | None:
    """The record of a run with the run's own columns before it, or None where there is none."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path(folder, run))
        about = table.schema.metadata or {}
        # A record of an earlier untuned has no digest.
        whole = about.get(DIGEST, b"") in (b"", _digest(table).encode())
        # Without pandas' own metadata, which in a damaged file may be anything.
        frame = table.to_pandas(ignore_metadata=True)
    except (OSError, ValueError, pyarrow.ArrowException):  # a damaged file is no record
        return None
    if not whole or about.get(KEY) != _text(run).encode():
        return None
    for position, (name, value) in enumerate(run._asdict().items()):
        frame.insert(position, name, value)
    return frame


def groups(frame: pandas.DataFrame, *columns: str) -> Iterator[tuple[Any, pandas.DataFrame]]:
    """Groups of rows that agree in some columns, and what they agree in: always a tuple."""
    yield from frame.groupby(list(columns))


def _digest(table: pyarrow.Table) -> str:
    """A digest of names and values; Parquet itself would not notice a changed letter in a name."""
    return hashlib.blake2b(repr(table.to_pydict()).encode(), digest_size=16).hexdigest()


def _text(run: Any) -> str:
    return json.dumps(identity(run), sort_keys=True)
