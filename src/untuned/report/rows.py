"""Rows of the user's table, with what was found out about them in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from untuned.report import pictures
from untuned.report.grid import grid
from untuned.report.run_page import Run

if TYPE_CHECKING:
    import pandas

MOST_ROWS = 500  # more would slow down a phone; all of them are in the table beside the page
MOST_COLUMNS = 12  # of the user's columns; nobody would read more


def view(
    run: Run, table: pandas.DataFrame, ours: int, front: pandas.DataFrame, choices: tuple[str, ...]
) -> str:
    """A grid of `front` and the columns of `table` after its first `ours`, with images drawn."""
    label, images = run.found["input"]["label"], run.found["images"]
    front, table = front.iloc[:MOST_ROWS], table.iloc[:MOST_ROWS]
    theirs = table.iloc[:, ours:].drop(columns=label)
    uris = None
    if images:
        pixels = theirs[images["columns"]].to_numpy(float)
        uris = pictures.data_uris(pixels, images["side"], images["largest"])
        theirs = theirs.drop(columns=images["columns"])
    theirs = theirs.iloc[:, :MOST_COLUMNS]
    twice = {name: f"{name} (yours)" for name in theirs.columns if name in front.columns}
    return grid(front.join(theirs.rename(columns=twice)), "Rows", choices, uris)


def note(run: Run, name: str, count: int) -> str:
    """Where all rows are, and how many of them are shown."""
    shown = "" if count <= MOST_ROWS else f" Shown are the first {MOST_ROWS:,} of {count:,}."
    return (
        "Press a heading to sort. Rows are counted from 0; all of them, with all columns, are in "
        f"{run.found['files'][name]}.{shown}"
    )
