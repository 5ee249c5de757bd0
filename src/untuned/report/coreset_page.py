"""The page of `untuned coreset`: the rows that were kept, and how many of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from untuned.report import drawings, page, pictures
from untuned.report.grid import grid
from untuned.report.run_page import Contents, Run, first_of

if TYPE_CHECKING:
    import pandas

MOST_ROWS = 500  # more would slow down a phone; the table in the folder has all of them
ACCURACY = (
    "A model trained on them is right on {accuracy_on_other_rows:.1%} of the other rows; trained "
    "on as many rows picked at random it is right on {accuracy_of_random_rows:.1%}. The other rows "
    "took part in the choice, so this is not a test on fresh data."
)
MOST_COLUMNS = 12  # of the user's columns; nobody would read more


def contents(run: Run) -> Contents:
    """Kept rows per class, their weights, and the rows themselves."""
    summary, kept = run.found["summary"], run.table("kept")
    weights = kept.iloc[:, 1]
    chart = drawings.histogram(weights, "Weights", "weight", 0, float(weights.max()))
    counts = "How much each kept row counts in training."
    about = (
        "The heaviest first. Press a heading to sort. Rows are counted from 0; all of them, with "
        f"all columns, are in {run.found['files']['kept']}.{first_of(MOST_ROWS, len(kept))}"
    )
    sections = [
        page.Section("Kept per class", body=_per_class(summary)),
        page.Section("Weights of the kept rows", counts, page.side_by_side(chart)),
        page.Section("Kept rows", about, _rows(run, kept.iloc[:MOST_ROWS])),
    ]
    return Contents(f"Rows to keep of {run.source}", " ".join(lead(summary)), sections)


def lead(summary: dict[str, Any]) -> list[str]:
    """What was chosen, in sentences, for the page and the terminal."""
    per_class = ", ".join(f"{name}: {count}" for name, count in summary["kept_per_class"].items())
    said = [f"Kept {summary['kept']:,} of {summary['rows']:,} rows ({per_class})."]
    there_are_others = summary["accuracy_on_other_rows"] is not None
    return said + ([ACCURACY.format_map(summary)] if there_are_others else [])


def _per_class(summary: dict[str, Any]) -> str:
    import pandas

    classes, chosen = summary["classes"], summary["kept_per_class"]
    frame = pandas.DataFrame({"class": list(classes), "rows": list(classes.values())})
    frame["kept"] = [chosen[name] for name in classes]
    for name, column in (("share of all rows", "rows"), ("share of the kept", "kept")):
        frame[name] = (frame[column] / frame[column].sum()).map("{:.1%}".format)
    return grid(frame, "Classes", sorted_by="class")


def _rows(run: Run, kept: pandas.DataFrame) -> str:
    """Row, weight and label, then the user's columns; images are drawn."""
    label = run.found["input"]["label"]
    front = kept.iloc[:, :2].set_axis(["row", "weight"], axis=1)
    front = front.assign(label=kept[label].astype(str))
    uris, theirs = pictures.split(kept.iloc[:, 2:].drop(columns=label), run.found["images"])
    theirs = theirs.iloc[:, :MOST_COLUMNS]
    twice = {name: f"{name} (yours)" for name in theirs.columns if name in front.columns}
    return grid(front.join(theirs.rename(columns=twice)), "Rows", ("label",), uris)
