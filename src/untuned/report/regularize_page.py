"""The page of `untuned regularize`: the strengths first."""

from __future__ import annotations

from typing import Any

from untuned.report import charts, page
from untuned.report.grid import grid
from untuned.report.run_page import Contents, Run

MOST_BARS = 40
MOST_COEFFICIENTS = 500
MOST_ENTERED = 20


def contents(run: Run) -> Contents:
    """Strengths per feature, as a chart and a table, and the coefficients."""
    summary, found = run.found["summary"], run.found["input"]
    strengths, coefficients = run.table("strengths"), run.table("coefficients")
    what = strengths.columns[0]
    names = [str(name) for name in strengths[what]]
    shown = min(len(names), MOST_BARS)
    text = "A weak penalty leaves a feature free, a strong one holds its coefficients near zero."
    if shown < len(names):
        text += f" The chart shows the {shown} weakest of {len(names):,}."
    largest = coefficients.iloc[:MOST_COEFFICIENTS]
    return Contents(
        f"Penalties for {found['label']} in {run.source}",
        f"A linear model of {found['task']} from {summary['rows']:,} rows and "
        f"{summary['features']:,} features. {strengths_in_words(summary)}",
        [
            page.Section(
                f"Strength per {what}" if what != "all" else "One strength",
                text,
                charts.side_by_side(
                    charts.dots(names[:shown], strengths["strength"][:shown], "penalty strength")
                )
                + grid(
                    strengths.rename(columns={"largest_coefficient": "largest coefficient"}),
                    "Penalty strengths",
                    sorted_by="strength",
                ),
            ),
            _path(run),
            page.Section(
                "Coefficients",
                "Of the standardised features, so that their sizes can be compared."
                + _cut(len(coefficients), len(largest)),
                grid(largest.rename(columns={largest.columns[0]: "feature"}), "Coefficients"),
            ),
        ],
    )


def _path(run: Run) -> page.Section:
    """The way there: coefficients, loss, strengths, and features as they enter."""
    path, entered = run.table("path"), run.table("entered")
    best = float(path["strength"].iloc[int(path["loss"].argmin())])
    first = entered.iloc[:MOST_ENTERED]
    names = [str(name) for name in first["feature"]]
    return page.Section(
        "The path",
        "What was seen while one strength served for all, strong penalties on the left: "
        "coefficients of standardised features, and the mean loss of the rows held back with its "
        "standard error. The dashed line is where it is least. Then how the strengths were found, "
        "step by step, and the features in the order in which they enter the model. Coloured "
        "are the first few; the mouse names the others.",
        charts.side_by_side(
            charts.lines(run.table("lines"), "strength", "coefficient", "Coefficients", best),
            charts.band(path, "Loss of rows held back", best),
            charts.lines(run.table("search"), "step", "strength", "Strengths as they were found"),
            charts.dots(names, first["strength"], "strength at which a feature enters"),
        ),
    )


def strengths_in_words(summary: dict[str, Any]) -> str:
    """What was chosen, in one sentence."""
    low, high, count = (
        summary[name] for name in ("smallest_strength", "largest_strength", "strengths")
    )
    if count == 1:
        return f"The penalty strength {low:.2g} was chosen on rows held back from training."
    if low == high:
        return (
            f"All {count:,} penalty strengths are {low:.2g}: on rows held back from training, "
            "different ones did no better than one for all."
        )
    return (
        f"{count:,} penalty strengths from {low:.2g} to {high:.2g} were chosen on rows held back "
        "from training."
    )


def _cut(there: int, shown: int) -> str:
    return "" if shown == there else f" Shown are the first {shown:,} of {there:,}."
