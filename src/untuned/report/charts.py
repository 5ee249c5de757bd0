"""Charts that answer to the mouse, by plotly; those that stand still are in drawings.py."""

from __future__ import annotations

from typing import Any

from untuned.report import page
from untuned.run.plotting import BLUE, ORANGE


def side_by_side(*figures: Any) -> str:
    """Charts side by side where there is room, else one below the other."""
    shown = "".join(page.chart(figure, tools=False) for figure in figures)
    return f'<div class="charts">{shown}</div>'


def dots(names: list[str], values: Any, axis: str) -> Any:
    """One dot per name, on a logarithmic scale, the first on top."""
    figure = _figure("", axis)
    short = [name if len(name) <= 24 else name[:23] + "\u2026" for name in names]
    places = list(range(len(names)))
    figure.add_scatter(
        x=values, y=places, mode="markers", marker={"color": BLUE, "size": 9},
        text=[_plain(name) for name in names], hovertemplate="%{text}: %{x:.3g}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(type="log", exponentformat="power")
    figure.update_yaxes(
        tickvals=places, ticktext=[_plain(name) for name in short], autorange="reversed"
    )
    figure.update_layout(height=120 + 22 * len(names))
    return figure


def groups(names: list[str], parts: dict[str, Any], title: str) -> Any:
    """For each name one bar per part, side by side, as percentages."""
    figure = _figure(title, "")
    for colour, (part, values) in zip((BLUE, ORANGE), parts.items(), strict=True):
        figure.add_bar(x=[_plain(name) for name in names], y=values, name=part, marker_color=colour)
    figure.update_xaxes(type="category")
    figure.update_yaxes(tickformat=".0%")
    figure.update_layout(showlegend=True, barmode="group", legend={"orientation": "h", "y": -0.25})
    return figure


def _plain(text: str) -> str:
    """A user's text as plotly shows it: `<` would begin one of its own marks."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _figure(title: str, axis: str) -> Any:
    from plotly import graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        height=320,
        margin={"l": 50, "r": 15, "t": 45, "b": 45},
        showlegend=False,
        template="plotly_white",
    )
    figure.update_xaxes(title=axis, automargin=True)
    figure.update_yaxes(automargin=True)
    return figure
