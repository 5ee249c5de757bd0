"""result.json and the tables of a run's folder, from which its report page is made."""

from __future__ import annotations

import json
import math
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from untuned.commands.job import Job, Ready, command_line
from untuned.report import run_page
from untuned.run.result import Result
from untuned.tables import files
from untuned.util.folder import RESULT

PACKAGES = ("untuned", "jax", "numpy", "pandas", "scikit-learn", "skops")


def write(
    folder: Path,
    job: Job,
    ready: Ready,
    result: Result | None,
    *,
    summary: dict[str, Any],
    tables: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Write the tables, result.json and the page; the model is already there.

    `result` is None where nothing was searched for.
    """
    if result is not None:
        tables = tables | {"history": result.history.to_frame()}
    names = {
        name: files.write(table, folder, name, ready.table.format) for name, table in tables.items()
    }
    found = {
        "command": job.command,
        "command_line": command_line(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "summary": summary,
        "notes": ready.notes,
        "input": {
            "train": str(job.train),
            "bytes": ready.table.path.stat().st_size,
            "rows": len(ready.table.frame),
            "rows_used": len(ready.y),
            "label": job.label,
            "task": ready.labels.task,
        },
        "columns": [column._asdict() for column in ready.columns],
        "images": ready.images._asdict() if ready.images else None,
        "settings": {"method": job.method, "seed": job.seed, "max_seconds": job.max_seconds}
        | settings,
        "run": _run(result) if result else None,
        "files": names,
        "written": sorted({*(each.name for each in folder.iterdir()), RESULT, run_page.FILE}),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in PACKAGES},
    }
    text = json.dumps(_plain(found), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / RESULT).write_text(text + "\n", encoding="utf-8")
    run_page.write(folder, folder)


def words(
    job: Job, ready: Ready, result: Result | None, said: list[str], written: dict[str, str]
) -> str:
    """The summary that is printed; `written` says what is in the files it names."""
    # Where all rows of a coreset are kept there was nothing to choose, and so no run.
    ended = [] if result is None else run_page.how_it_ended(result.status, result.message)
    files = [f"{what}: {job.out / file}" for what, file in written.items()]
    return "\n".join([*said, *ready.notes, *ended, *files, f"Report: {job.out / run_page.FILE}"])


def _run(result: Result) -> dict[str, Any]:
    return {
        "status": result.status,
        "message": result.message,
        "steps": result.steps,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "counts": result.counts,
    }


def _plain(value: Any) -> Any:
    """The value with JSON's own types only; what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
