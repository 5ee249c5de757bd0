"""The page of a run on a user's table, made from the files of the run's folder and nothing else."""

from __future__ import annotations

import html
import importlib
import json
import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from untuned.report import drawings, page
from untuned.report.grid import grid
from untuned.tables import files
from untuned.util.folder import RESULT, make, put
from untuned.util.wording import brief, reason

if TYPE_CHECKING:
    import pandas

# Commands with a page. The function `contents(run)` of the module `clean_page` gives the title, the
# lead and the first sections of the first one, and so on.
COMMANDS = ("clean", "coreset", "regularize")
FILE = "report.html"
EXPECTED_FOLDER = "expected a folder that untuned clean, regularize or coreset wrote."
# What making a page raises if somebody has changed its files by hand.
CHANGED_BY_HAND = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)
OFTEN_MANY = ("pixels", "mostly zero")  # kinds of columns of which neighbours share a line


class Run(NamedTuple):
    """What a folder says about its run."""

    folder: Path
    found: dict[str, Any]  # result.json

    def table(self, name: str, **how: Any) -> pandas.DataFrame:
        """One of the run's tables; see `files.read_own`."""
        return files.read_own(self.folder, str(self.found["files"][name]), **how)

    @property
    def source(self) -> str:
        """The file the run was made from, without its folders."""
        return Path(self.found["input"]["train"]).name


class Contents(NamedTuple):
    """What a command has to show of its own."""

    title: str
    lead: str
    sections: list[page.Section]
    deck: str = ""  # cards to decide on; the sections are then folded away above them


def read(folder: Path) -> Run:
    """The run in a folder; an error of one sentence where there is none."""
    path = folder / RESULT
    if not path.is_file():
        raise ValueError(f"There is no {path}; {EXPECTED_FOLDER}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        command = found["command"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not the result of a run on a table; {EXPECTED_FOLDER}"
        ) from error
    if not isinstance(command, str) or command not in COMMANDS:
        raise ValueError(f"{path} was written by the command {brief(command)}, which has no page.")
    return Run(folder, found)


def write(folder: Path, out: Path) -> Path:
    """Make the page of the run in `folder` and put it into `out`, whole or not at all."""
    run = read(folder)
    path = out / FILE
    if out.resolve() != folder.resolve():
        _check_ours(path)
    content = _html(run).encode()
    make(out)
    put(path, content)
    return path


def _check_ours(path: Path) -> None:
    """Refuse to replace a page that somebody else has made."""
    if not os.path.lexists(path):
        return
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            if file.read(len(page.OURS)) == page.OURS.encode():
                return
    raise ValueError(
        f"{path} was not made by untuned, so it is not replaced; move it elsewhere, or give "
        "another --out."
    )


def _html(run: Run) -> str:
    """The page; an error of one sentence where files contradict each other."""
    try:
        module = importlib.import_module(f"untuned.report.{run.found['command']}_page")
        made: Contents = module.contents(run)
        footer = (
            f"Made by untuned {run.found['versions']['untuned']} on {run.found['made']}. All "
            "numbers are in result.json and the tables next to this page."
        )
        sections = [*made.sections, *_about(run)]
        return page.whole(made.title, made.lead, sections, footer, made.deck)
    except CHANGED_BY_HAND as error:
        if isinstance(error, ValueError) and str(error).endswith(files.EXPECTED):
            raise
        raise ValueError(
            f"The files of {run.folder} contradict each other ({type(error).__name__}: "
            f"{reason(error, 80)}); {files.EXPECTED}"
        ) from error


def how_it_ended(status: str, message: str) -> list[str]:
    """A sentence where the end is unexpected: estimators stop most searches on purpose."""
    if status == "max_seconds":
        return ["The time limit ended the search early; a larger --max-seconds may find more."]
    return [message] if status in ("diverged", "cap_hit") else []


def first_of(most: int, there: int) -> str:
    """A sentence where a page shows only the first rows of a table."""
    return "" if there <= most else f" Shown are the first {most:,} of {there:,}."


def _about(run: Run) -> list[page.Section]:
    """What every page has: how the run went, what became of each column, settings, versions."""
    found = run.found
    settings = _pairs("setting", found["input"] | found["settings"])
    command = f"<pre><code>{html.escape(found['command_line'])}</code></pre>\n"
    tables = page.side_by_side(settings, _pairs("package", found["versions"]))
    columns = page.Section("Columns", "\n\n".join(found["notes"]), _columns(found["columns"]))
    last = page.Section("Settings and versions", body=command + tables)
    return [_search(run), columns, last] if found["run"] else [columns, last]


def _search(run: Run) -> page.Section:
    about, history = run.found["run"], run.table("history")
    if not history["hypergrad_norm"].any():  # no gradients were followed, so none can be shown
        return page.Section("The run", about["message"])
    took = (
        f"The last search took {about['steps']:,} steps in {about['seconds']:.1f} s, after "
        f"{about['compile_seconds']:.1f} s of compilation. It minimizes the outer loss, whose "
        "gradient, the hypergradient, should fall."
    )
    text = "\n\n".join([*how_it_ended(about["status"], about["message"]), took])
    return page.Section("The run", text, drawings.convergence(history))


def _columns(columns: list[dict[str, Any]]) -> str:
    """What was done with each column; many neighbours of one kind share a line."""
    import pandas

    if not columns:  # a matrix has none
        return ""

    def key(place: int) -> Any:
        kind, note = columns[place]["kind"], columns[place]["note"]
        return (kind, note) if kind in OFTEN_MANY else place

    lines = []
    for _, places in groupby(range(len(columns)), key):
        first, *others = (columns[place] for place in places)
        name = f"{first['name']} to {others[-1]['name']}" if others else first["name"]
        lines.append((name, first["kind"], first["note"], first["missing"]))
    frame = pandas.DataFrame(lines, columns=["column", "kind", "what was done", "missing"])
    return grid(frame, "Columns of the table", choices=("kind",))


def _pairs(what: str, values: dict[str, Any]) -> str:
    import pandas

    texts = ["not set" if value is None else str(value) for value in values.values()]
    names = [name.replace("_", " ") for name in values]
    return page.table(pandas.DataFrame({what: names, "value": texts}))
