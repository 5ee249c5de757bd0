"""The page of `untuned coreset`: what was kept, per class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from untuned.report import charts, drawings, page, rows
from untuned.report.grid import grid
from untuned.report.run_page import Contents, Run

if TYPE_CHECKING:
    import pandas


def contents(run: Run) -> Contents:
    """Kept rows per class, their weights, and the rows themselves."""
    summary, kept = run.found["summary"], run.table("kept")
    lead = f"Kept {summary['kept']:,} of {summary['rows']:,} rows."
    if summary["accuracy_on_other_rows"] is not None:
        lead += (
            f" A model trained on them is right on {summary['accuracy_on_other_rows']:.1%} of the "
            f"other rows; trained on as many rows picked at random it is right on "
            f"{summary['accuracy_of_random_rows']:.1%}. The other rows took part in the choice, so "
            "this is not a test on fresh data."
        )
    weights = kept.iloc[:, 1]
    return Contents(
        f"Rows to keep of {run.source}",
        lead,
        [
            page.Section("Kept per class", body=_per_class(summary)),
            page.Section(
                "Weights of the kept rows",
                "How much each kept row counts in training.",
                drawings.side_by_side(
                    drawings.histogram(weights, "Weights", "weight", 0, float(weights.max()))
                ),
            ),
            _rows(run, kept),
        ],
    )


def _per_class(summary: dict[str, Any]) -> str:
    import pandas

    classes, chosen = summary["classes"], summary["kept_per_class"]
    frame = pandas.DataFrame(
        {
            "class": list(classes),
            "rows": list(classes.values()),
            "kept": [chosen[name] for name in classes],
        }
    )
    shares = {
        "share of all rows": frame["rows"] / frame["rows"].sum(),
        "share of the kept": frame["kept"] / frame["kept"].sum(),
    }
    chart = charts.side_by_side(charts.groups(list(classes), shares, "Classes before and after"))
    for name, values in shares.items():
        frame[name] = values.map(lambda share: f"{share:.1%}")
    return chart + grid(frame, "Classes", sorted_by="class")


def _rows(run: Run, kept: pandas.DataFrame) -> page.Section:
    front = kept.iloc[:, :2].set_axis(["row", "weight"], axis=1)
    front = front.assign(label=kept[run.found["input"]["label"]].astype(str))
    text = "The heaviest first. " + rows.note(run, "kept", len(kept))
    return page.Section("Kept rows", text, rows.view(run, kept, 2, front, ("label",)))
