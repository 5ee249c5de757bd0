"""The page of `untuned clean`: suspect labels to decide on, then the labels of all rows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from untuned.report import cards, drawings, page
from untuned.report.grid import grid, natural
from untuned.report.run_page import Contents, Run

if TYPE_CHECKING:
    import pandas

MOST_CLASSES = 20  # with more, a list of the most frequent pairs replaces the square of counts
MOST_PAIRS = 100
QUALITY = (
    "Quality says how likely the given label is right: near 1 it is sound, near 0 it is suspect. "
    "Weight is how much the row counts in training."
)
FOUND = "{suspect_labels:,} of {rows:,} labels look wrong ({share_of_rows:.1%}), judged against"
EARLIER = (
    "Labels decided before: {confirmed_labels:,} confirmed, {corrected_labels:,} corrected, "
    "{unclear_labels:,} found unclear."
)
ON_PURPOSE = (
    "Of these labels {wrong_labels:,} were made wrong on purpose; "
    "{wrong_labels_among_suspects:,} of them are among the suspects."
)
DIFFER = (
    "Rows by the label they have and the label the model suggests. Off the diagonal the two differ."
)
LABELS = (2, 3)  # the columns with the labels given and suggested, in rows as in suspects


def contents(run: Run) -> Contents:
    """Suspects to decide on, labels given and suggested, and the quality of all labels."""
    is_numbers = run.found["input"]["task"] == "numbers"
    labels = () if is_numbers else LABELS
    verdicts, suspects = run.table("rows", names=labels), run.table("suspects", names=labels)
    if not is_numbers:
        verdicts = verdicts.astype({"given_label": str, "suggested_label": str})
    shown = page.side_by_side(
        drawings.histogram(verdicts["quality"], "Quality", "quality of the label", 0, 1),
        drawings.histogram(verdicts["weight"], "Weights", "weight in training", 0, 1),
    )
    shown += "" if is_numbers else _per_class(verdicts)
    sections = [page.Section("Quality of all labels", QUALITY, shown)]
    if not is_numbers:
        sections.insert(0, page.Section("Given and suggested", DIFFER, _confusion(verdicts)))
    deck = "" if suspects.empty else cards.deck(run, suspects)
    title = f"Suspect labels in {run.source}"
    return Contents(title, " ".join(lead(run.found["summary"])), sections, deck=deck)


def lead(summary: dict[str, Any]) -> list[str]:
    """What was found, in sentences, for the page and the terminal."""
    trusted = f"{summary['trusted_rows']:,} trusted rows"
    against = trusted if summary["trusted_rows"] else "the other rows, by cross-fitting"
    said = [f"{FOUND.format_map(summary)} {against}.", share_of_wrong(summary)]
    said += [EARLIER.format_map(summary)] if "corrected_labels" in summary else []
    return said + ([ON_PURPOSE.format_map(summary)] if "wrong_labels" in summary else [])


def share_of_wrong(summary: dict[str, Any]) -> str:
    """The estimated share of wrong labels, and its range; runs of older versions lack the range."""
    said = f"Estimated share of wrong labels: {summary['noise_rate_estimate']:.1%}"
    if summary.get("noise_range"):
        low, high = summary["noise_range"]
        said += f" ({low:.1%} to {high:.1%} are possible)"
    said += f". {summary.get('doubt', '')}".rstrip()
    if more := summary.get("more_disputed_labels", 0):
        said += (
            f" Beyond the suspects, the models take {more:,} rows for another class. Those classes "
            "overlap, or people mistook one for the other; untuned clean --disputed shows them."
        )
    return said


def _confusion(verdicts: pandas.DataFrame) -> str:
    import pandas

    given, suggested = verdicts["given_label"], verdicts["suggested_label"]
    classes = sorted({*given, *suggested}, key=natural)
    if len(classes) > MOST_CLASSES:
        pairs = verdicts[given != suggested][["given_label", "suggested_label"]]
        differ = pairs.value_counts().reset_index().head(MOST_PAIRS)
        shown = differ.set_axis(["given", "suggested", "rows"], axis=1)
        return grid(shown, "Most frequent pairs of given and suggested label", ("given",))
    table = pandas.crosstab(given, suggested).reindex(index=classes, columns=classes, fill_value=0)
    counts = table.to_numpy().tolist()
    largest = max([1, *(n for i, row in enumerate(counts) for j, n in enumerate(row) if i != j)])
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in classes)
    lines = ""
    for i, row in enumerate(counts):
        cells = "".join(_square(count, i == j, largest) for j, count in enumerate(row))
        lines += f'<tr><th scope="row">{escape(classes[i])}</th>{cells}</tr>'
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Given and suggested labels">'
        '<table class="confusion"><caption>Given label down, suggested label across.</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _square(count: int, agrees: bool, largest: int) -> str:
    if agrees:
        return f'<td style="color: var(--faint)">{count:,}</td>'
    shade = 0.75 * count / largest
    return f'<td style="background: rgba(213, 94, 0, {shade:.2f})">{count or ""}</td>'


def _per_class(verdicts: pandas.DataFrame) -> str:
    frame = verdicts.groupby("given_label").agg(
        rows=("row", "size"), suspects=("suspect", "sum"), quality=("quality", "mean")
    )
    frame = frame.reset_index().sort_values("given_label", key=lambda names: names.map(natural))
    frame["share"] = (frame["suspects"] / frame["rows"]).map("{:.1%}".format)
    frame["quality"] = frame["quality"].map("{:.3f}".format)
    frame.columns = ["given label", "rows", "suspects", "mean quality", "share suspect"]
    return page.table(frame)
