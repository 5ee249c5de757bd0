"""The page of `untuned regularize`: penalty strengths, how they were found, and coefficients."""

from __future__ import annotations

from typing import Any

from untuned.report import charts, page
from untuned.report.grid import grid
from untuned.report.run_page import Contents, Run, first_of
from untuned.util import wording

MOST_BARS = 40
MOST_COEFFICIENTS = 500
MOST_ENTERED = 20
FIRST = (0,)  # the column with the names of features, groups or classes


def contents(run: Run) -> Contents:
    """Strengths as a chart and a table, their path, and the coefficients."""
    summary, found = run.found["summary"], run.found["input"]
    coefficients = run.table("coefficients", names=FIRST)
    title = f"Penalties for {found['label']} in {run.source}"
    lead = (
        f"A linear model of {found['task']} from {summary['rows']:,} rows and "
        f"{summary['features']:,} features. {strengths_in_words(summary)}"
    )
    about = "Of the standardised features, so that their sizes can be compared."
    about += first_of(MOST_COEFFICIENTS, len(coefficients))
    largest = coefficients.rename(columns={coefficients.columns[0]: "feature"})
    table = grid(largest.iloc[:MOST_COEFFICIENTS], "Coefficients")
    last = page.Section("Coefficients", about, table)
    return Contents(title, lead, [_strengths(run), _path(run), last])


def _strengths(run: Run) -> page.Section:
    """All strengths; where they differ, with a chart of the weakest."""
    strengths = run.table("strengths", names=FIRST)
    what = str(strengths.columns[0])
    text = "A weak penalty leaves a feature free, a strong one holds its coefficients near zero."
    chart = ""
    if strengths["strength"].nunique() > 1:
        shown = strengths.iloc[:MOST_BARS]
        if len(shown) < len(strengths):
            text += f" The chart shows the {len(shown)} weakest of {len(strengths):,}."
        chart = charts.side_by_side(_dots(shown, what, "penalty strength"))
    table = strengths.rename(columns={"largest_coefficient": "largest coefficient"})
    chart += grid(table, "Penalty strengths", sorted_by="strength")
    return page.Section("One strength" if what == "all" else f"Strength per {what}", text, chart)


def _path(run: Run) -> page.Section:
    """Coefficients and loss along one strength, the search, and features as they enter."""
    path, entered = run.table("path"), run.table("entered", names=FIRST)
    lines, search = run.table("lines", names=FIRST), run.table("search", names=FIRST)
    best = float(path["strength"].iloc[int(path["loss"].argmin())])
    return page.Section(
        "The path",
        "First, one strength for all features, strong penalties on the left: coefficients of "
        "standardised features, and the mean loss of the rows held back with its standard error. "
        "The dashed line marks the least loss. Then how the strengths were found, step by step, "
        "and the features in the order in which they enter the model. The first few have "
        "colours; the mouse shows the names of the others.",
        charts.side_by_side(
            charts.lines(lines, "strength", "coefficient", "Coefficients", best),
            charts.band(path, "Loss of rows held back", best),
            charts.lines(search, "step", "strength", "Strengths as they were found"),
            _dots(entered.iloc[:MOST_ENTERED], "feature", "strength at which a feature enters"),
        ),
    )


def strengths_in_words(summary: dict[str, Any]) -> str:
    """What was chosen, in one sentence."""
    count = summary["strengths"]
    low, high = (wording.number(summary[f"{end}_strength"], 2) for end in ("smallest", "largest"))
    where = "on rows held back from training"
    if count == 1:
        return f"The penalty strength {low} was chosen {where}."
    if summary["smallest_strength"] == summary["largest_strength"]:
        return (
            f"All {count:,} penalty strengths are {low}: {where}, different ones did no better "
            "than one for all."
        )
    return f"{count:,} penalty strengths from {low} to {high} were chosen {where}."


def _dots(frame: Any, names: str, axis: str) -> Any:
    return charts.dots(list(map(str, frame[names])), frame["strength"], axis)
