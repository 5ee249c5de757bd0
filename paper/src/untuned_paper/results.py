"""What a run of everything says, as Markdown: the part of docs/results.md that nobody writes.

`reproduce all` writes it into its own folder, and `benchmarks/results_page.py` into the page.
"""

from __future__ import annotations

import os
from datetime import date
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from untuned_paper.continual import summary

if TYPE_CHECKING:
    import pandas


def markdown(quick: bool, verdicts: pandas.DataFrame, done: dict[str, Any]) -> str:
    """When and how it was run, and a table of the claims."""
    minutes = sum(part.get("seconds", 0) for part in done.values()) / 60
    command = f"untuned reproduce all{' --quick' * quick}"
    words = (
        f"`{command}`, {date.today():%Y-%m-%d}, untuned {version('untuned')}: {minutes:.1f} "
        f"minutes on {os.cpu_count()} cores."
    )
    return f"{words}\n\n{summary.markdown(_short(verdicts))}"


def _short(verdicts: pandas.DataFrame) -> pandas.DataFrame:
    """Without figures, with the names of recipes, and with no sign that ends a cell."""
    recipes = "`" + verdicts["by"].str.removeprefix("untuned reproduce ") + "`"
    short = verdicts.drop(columns="figures").assign(by=recipes)
    short["here"] = "**" + short["here"] + "**"
    return short.apply(lambda column: column.str.replace("|", "\\|"))
