"""How a table is written: Parquet, Markdown, and a page with a chart."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untuned.report import page
from untuned.report.charts import side_by_side
from untuned.run.plotting import BLUE, ORANGE

if TYPE_CHECKING:
    import pandas


def spread(values: pandas.Series, digits: int) -> str:
    """Mean and standard deviation, as the paper prints them."""
    if len(values) == 1:
        return f"{values.iloc[0]:.{digits}f}"
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"


def markdown(table: pandas.DataFrame) -> str:
    """A frame as a Markdown table."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def dots(runs: dict[str, Any], published: dict[str, float], title: str) -> Any:
    """One dot per run, a line per selector, and the paper's mean beside them."""
    from plotly import graph_objects as go

    figure = go.Figure()
    names = list(runs)
    figure.add_scatter(
        x=[value for name in names for value in runs[name]],
        y=[name for name in names for _ in runs[name]],
        mode="markers", marker={"color": BLUE, "size": 8, "opacity": 0.7}, name="a run",
    )  # fmt: skip
    if published:
        figure.add_scatter(
            x=list(published.values()), y=list(published), mode="markers", name="the paper's mean",
            marker={"color": ORANGE, "symbol": "diamond-open", "size": 10},
        )  # fmt: skip
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        height=140 + 24 * len(names),
        margin={"l": 50, "r": 15, "t": 45, "b": 45},
        template="plotly_white",
        legend={"orientation": "h", "y": -0.15},
        showlegend=bool(published),
    )
    figure.update_xaxes(title="A_T, %", automargin=True)
    figure.update_yaxes(
        automargin=True, autorange="reversed", categoryorder="array", categoryarray=names
    )
    return figure


def write(
    out: Path, name: str, title: str, lead: str, runs: pandas.DataFrame,
    tables: dict[str, tuple[str, pandas.DataFrame]], figures: list[Any],
) -> None:  # fmt: skip
    """`runs` as Parquet; the tables, each with a sentence, as Parquet, Markdown and a page."""
    import pandas

    runs.to_parquet(out / f"{name}-runs.parquet", index=False)
    whole = pandas.concat(
        [table.assign(table=heading) for heading, (_, table) in tables.items()], ignore_index=True
    )
    whole.to_parquet(out / f"{name}.parquet", index=False)
    parts = [f"# {title}\n\n{lead}\n"]
    parts += [
        f"\n## {heading}\n\n{text}\n\n{markdown(table)}"
        for heading, (text, table) in tables.items()
    ]
    (out / f"{name}.md").write_text("".join(parts), encoding="utf-8")
    sections = [page.Section("Every run", "", side_by_side(*figures))] if figures else []
    sections += [
        page.Section(heading, text, page.table(table)) for heading, (text, table) in tables.items()
    ]
    footer = f"untuned {version('untuned')}. How it is run: docs/continual.md."
    page.write(out / f"{name}.html", title, lead, sections, footer)
