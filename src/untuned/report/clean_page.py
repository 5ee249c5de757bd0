"""The page of `untuned clean`: the suspect rows first."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from untuned.report import cards, drawings, page
from untuned.report.grid import grid, natural
from untuned.report.run_page import Contents, Run

if TYPE_CHECKING:
    import pandas

MOST_CLASSES = 20  # with more, the most frequent pairs are shown in place of a square
MOST_PAIRS = 100
LABELS = (2, 3)  # where the labels given and suggested are, in rows as in suspects


def contents(run: Run) -> Contents:
    """Suspects to decide on; given against suggested, and the quality of all labels."""
    is_numbers = run.found["input"]["task"] == "numbers"
    labels = () if is_numbers else LABELS
    verdicts, suspects = run.table("rows", names=labels), run.table("suspects", names=labels)
    quality = page.Section(
        "Quality of all labels",
        "Quality says how likely the given label is right: near 1 it is sound, near 0 it is "
        "suspect. Weight is how much the row counts in training.",
        drawings.side_by_side(
            drawings.histogram(verdicts["quality"], "Quality", "quality of the label", 0, 1),
            drawings.histogram(verdicts["weight"], "Weights", "weight in training", 0, 1),
        )
        + ("" if is_numbers else _per_class(verdicts)),
    )
    differ = page.Section(
        "Given and suggested",
        "Rows by the label they have and the label the model suggests. Off the diagonal the two "
        "differ.",
        "" if is_numbers else _confusion(verdicts),
    )
    return Contents(
        f"Suspect labels in {run.source}",
        _lead(run),
        [quality] if is_numbers else [differ, quality],
        deck="" if suspects.empty else cards.deck(run, suspects),
    )


def _lead(run: Run) -> str:
    summary = run.found["summary"]
    against = (
        f"{summary['trusted_rows']:,} trusted rows"
        if summary["trusted_rows"]
        else "the other rows, by cross-fitting"
    )
    lead = (
        f"{summary['suspect_labels']:,} of {summary['rows']:,} labels look wrong "
        f"({summary['share_of_rows']:.1%}), judged against {against}. {share_of_wrong(summary)}"
    )
    if "corrected_labels" in summary:
        lead += (
            f" Before, {summary['confirmed_labels']:,} labels were confirmed, "
            f"{summary['corrected_labels']:,} corrected and {summary['unclear_labels']:,} found "
            "unclear."
        )
    if "wrong_labels" in summary:
        lead += (
            f" Of these labels {summary['wrong_labels']:,} were made wrong on purpose; "
            f"{summary['wrong_labels_among_suspects']:,} of them are among the suspects."
        )
    return lead


def share_of_wrong(summary: dict[str, Any]) -> str:
    """The estimated share of wrong labels, and how far it can be trusted; also of older runs."""
    said = f"Estimated share of wrong labels: {summary['noise_rate_estimate']:.1%}"
    if summary.get("noise_range"):
        low, high = summary["noise_range"]
        said += f" ({low:.1%} to {high:.1%} are possible)"
    sentences = [f"{said}.", summary.get("doubt", "")]
    more = summary.get("more_disputed_labels", 0)
    if more:
        sentences.append(
            f"Beyond the suspects, the judges take {more:,} rows for another class. Those classes "
            "overlap, or people mistook one for the other; untuned clean --disputed shows them."
        )
    return " ".join(filter(None, sentences))


def _confusion(verdicts: pandas.DataFrame) -> str:
    import pandas

    pairs = pandas.DataFrame(
        {
            "given": verdicts["given_label"].astype(str),
            "suggested": verdicts["suggested_label"].astype(str),
        }
    )
    classes = sorted({*pairs["given"], *pairs["suggested"]}, key=natural)
    if len(classes) > MOST_CLASSES:
        differ = pairs[pairs["given"] != pairs["suggested"]].value_counts().reset_index()
        shown = differ.rename(columns={"count": "rows"}).head(MOST_PAIRS)
        return grid(shown, "Most frequent pairs of given and suggested label", ("given",))
    counts = pandas.crosstab(pairs["given"], pairs["suggested"])
    counts = counts.reindex(index=classes, columns=classes, fill_value=0)
    largest = max(1, max(int(counts.loc[a, b]) for a in classes for b in classes if a != b))
    head = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in classes)
    lines = []
    for given in classes:
        cells = "".join(
            _square(int(counts.loc[given, each]), given == each, largest) for each in classes
        )
        lines.append(f'<tr><th scope="row">{html.escape(given)}</th>{cells}</tr>')
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Given and suggested labels">'
        '<table class="confusion"><caption>Given label down, suggested label across.</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _square(count: int, agrees: bool, largest: int) -> str:
    if agrees:
        return f'<td style="color: var(--faint)">{count:,}</td>'
    shade = 0.75 * count / largest
    return f'<td style="background: rgba(213, 94, 0, {shade:.2f})">{count or ""}</td>'


def _per_class(verdicts: pandas.DataFrame) -> str:
    groups = verdicts.groupby(verdicts["given_label"].astype(str))
    frame = groups.agg(
        rows=("row", "size"), suspects=("suspect", "sum"), quality=("quality", "mean")
    ).reset_index(names="class")
    frame = frame.sort_values("class", key=lambda values: values.map(natural))
    frame["share"] = (frame["suspects"] / frame["rows"]).map(lambda share: f"{share:.1%}")
    frame["quality"] = frame["quality"].map(lambda value: f"{value:.3f}")
    frame.columns = ["given label", "rows", "suspects", "mean quality", "share suspect"]
    return page.table(frame)
