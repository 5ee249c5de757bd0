"""The page of a run on a user's table, made from the files of the run's folder and nothing else."""

from __future__ import annotations

import html
import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from untuned.report import drawings, page
from untuned.report.grid import grid
from untuned.tables.files import EXPECTED
from untuned.util import lock
from untuned.util.folder import RESULT
from untuned.util.wording import brief, reason

if TYPE_CHECKING:
    import pandas

# command -> the module whose function `contents(run)` gives title, lead and first sections.
PAGES = {
    "clean": "untuned.report.clean_page",
    "coreset": "untuned.report.coreset_page",
    "regularize": "untuned.report.regularize_page",
}
FILE = "report.html"
# What making a page raises when its files were changed by hand.
CHANGED_BY_HAND = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)


class Run(NamedTuple):
    """What a folder says about its run."""

    folder: Path
    found: dict[str, Any]  # result.json

    def table(
        self, name: str, as_text: bool = False, names: Sequence[int] = ()
    ) -> pandas.DataFrame:
        """One of the run's tables; see `files.read_own`."""
        from untuned.tables import files

        return files.read_own(self.folder, str(self.found["files"][name]), as_text, names)

    @property
    def source(self) -> str:
        """The file the run was made from, without its folders."""
        return Path(self.found["input"]["train"]).name


class Contents(NamedTuple):
    """What a command has to show of its own."""

    title: str
    lead: str
    sections: list[page.Section]
    footer: str = ""
    deck: str = ""  # cards to decide on; the sections are then folded away above them


def read(folder: Path) -> Run:
    """The run in a folder; an error of one sentence where there is none."""
    path = folder / RESULT
    if not path.is_file():
        raise ValueError(
            f"There is no {path}; expected a folder that untuned clean, regularize or coreset "
            "wrote."
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        command = found["command"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not the result of a run on a table; expected a folder that untuned clean, "
            "regularize or coreset wrote."
        ) from error
    if not isinstance(command, str) or command not in PAGES:
        raise ValueError(f"{path} was written by the command {brief(command)}, which has no page.")
    return Run(folder, found)


def write(folder: Path, out: Path) -> Path:
    """Make the page of the run in `folder` and put it into `out`, whole or not at all."""
    run = read(folder)
    path = out / FILE
    if out.resolve() != folder.resolve():
        _check_ours(path)
    contents = _contents(run)
    out.mkdir(parents=True, exist_ok=True)
    with lock.held(path) as private:
        try:
            page.write(private, *contents)
            private.replace(path)
        finally:
            private.unlink(missing_ok=True)
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


def _contents(run: Run) -> Contents:
    """All that the page says; an error of one sentence where files contradict each other."""
    try:
        module = importlib.import_module(PAGES[run.found["command"]])
        made = module.contents(run)
        footer = (
            f"Made by untuned {run.found['versions']['untuned']} on {run.found['made']}. All "
            "numbers are in result.json and the tables beside this page."
        )
        return made._replace(sections=[*made.sections, *_about(run)], footer=footer)
    except CHANGED_BY_HAND as error:
        if isinstance(error, ValueError) and str(error).endswith(EXPECTED):
            raise
        raise ValueError(
            f"The files of {run.folder} contradict each other ({type(error).__name__}: "
            f"{reason(error, 80)}); {EXPECTED}"
        ) from error


def how_it_ended(status: str, message: str) -> list[str]:
    """A sentence where the end is unexpected: estimators stop most searches on purpose."""
    if status == "max_seconds":
        return ["The time limit ended the search early; a larger --max-seconds may find more."]
    return [message] if status in ("diverged", "cap_hit") else []


def _about(run: Run) -> list[page.Section]:
    """What every run has: how it went, what was done with the columns, settings, versions."""
    found = run.found
    return [
        *([_search(run)] if found["run"] else []),
        page.Section("Columns", "\n\n".join(found["notes"]), _columns(found["columns"])),
        page.Section(
            "Settings and versions",
            body=f"<pre><code>{html.escape(found['command_line'])}</code></pre>\n"
            + f'<div class="charts">{_pairs("setting", found["input"] | found["settings"])}'
            + f"{_pairs('package', found['versions'])}</div>",
        ),
    ]


def _search(run: Run) -> page.Section:
    about, history = run.found["run"], run.table("history")
    if not history["hypergrad_norm"].any():  # no gradients were followed, so none can be shown
        return page.Section("The run", about["message"])
    took = (
        f"The last search took {about['steps']:,} steps in {about['seconds']:.1f} s, after "
        f"{about['compile_seconds']:.1f} s of compilation. It minimizes the outer loss, whose "
        "gradient, the hypergradient, should fall."
    )
    return page.Section(
        "The run",
        "\n\n".join([*how_it_ended(about["status"], about["message"]), took]),
        drawings.convergence(history),
    )


def _columns(columns: list[dict[str, Any]]) -> str:
    """What was done with each column; neighbours treated alike share a line."""
    import pandas

    if not columns:  # a matrix has none
        return ""

    lines: list[dict[str, Any]] = []
    for column in columns:
        alike = lines and all(lines[-1][key] == column[key] for key in ("kind", "note"))
        if alike and column["kind"] in ("pixels", "mostly zero"):
            lines[-1] |= {"last": column["name"], "count": lines[-1]["count"] + 1}
        else:
            lines.append(column | {"last": column["name"], "count": 1})
    shown = [
        {
            "column": line["name"] if line["count"] == 1 else f"{line['name']} to {line['last']}",
            "kind": line["kind"],
            "what was done": line["note"],
            "missing": line["missing"],
        }
        for line in lines
    ]
    return grid(pandas.DataFrame(shown), "Columns of the table", choices=("kind",))


def _pairs(what: str, values: dict[str, Any]) -> str:
    import pandas

    rows = [
        (name.replace("_", " "), "not set" if value is None else str(value))
        for name, value in values.items()
    ]
    return page.table(pandas.DataFrame(rows, columns=[what, "value"]))
