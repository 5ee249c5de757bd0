"""Charts that answer to the mouse, by plotly; those that stand still are in drawings.py."""

from __future__ import annotations

from typing import Any

from untuned.report import page
from untuned.run.plotting import BLUE, GREEN, ORANGE

# After those of plotting.py, Okabe and Ito's others; then grey.
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#c8ccd0"


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
    # Few ticks: within one decade plotly writes so many that they overlap.
    figure.update_xaxes(type="log", exponentformat="power", nticks=4, tickangle=0)
    figure.update_yaxes(
        tickvals=places, ticktext=[_plain(name) for name in short], autorange="reversed"
    )
    figure.update_layout(height=120 + 22 * len(names))
    return figure


def lines(frame: Any, x: str, y: str, title: str, at: float | None = None) -> Any:
    """A line for each name in the first column, strengths on a logarithmic scale.

    The first few have a colour and all say their name under the mouse; `at` draws a vertical line.
    """
    figure = _figure(title, x.replace("_", " "))
    names = frame.iloc[:, 0].drop_duplicates().tolist()
    for place, name in reversed(list(enumerate(names))):
        part = frame[frame.iloc[:, 0] == name]
        figure.add_scatter(
            x=part[x], y=part[y], name=_plain(str(name)),
            mode="lines" if len(part) > 1 else "markers",
            line={"color": COLOURS[place] if place < len(COLOURS) else GREY, "width": 1.8},
            hovertemplate="%{fullData.name}: %{y:.3g} at %{x:.3g}<extra></extra>",
            showlegend=place < len(COLOURS), legendrank=place,
        )  # fmt: skip
    figure.update_layout(
        showlegend=len(names) > 1, legend={"orientation": "h", "y": -0.3}, height=400
    )
    _strengths(figure, at, x == "strength", y == "strength")
    return figure


def band(frame: Any, title: str, at: float) -> Any:
    """The loss along a strength, between one standard error less and one more."""
    figure = _figure(title, "strength")
    low, high = (frame["loss"] + side * frame["standard_error"] for side in (-1, 1))
    for values, fill in ((low, None), (high, "tonexty")):
        figure.add_scatter(
            x=frame["strength"], y=values, mode="lines", line={"width": 0}, fill=fill,
            fillcolor="rgba(0, 114, 178, 0.2)", hoverinfo="skip",
        )  # fmt: skip
    figure.add_scatter(
        x=frame["strength"], y=frame["loss"], mode="lines+markers", marker={"color": BLUE},
        customdata=frame["standard_error"],
        hovertemplate="%{y:.4g} \u00b1 %{customdata:.2g} at %{x:.3g}<extra></extra>",
    )  # fmt: skip
    _strengths(figure, at, True, False)
    return figure


def _strengths(figure: Any, at: float | None, across: bool, up: bool) -> None:
    """Logarithmic axes where strengths are; across, the strongest is on the left."""
    if across:
        figure.update_xaxes(type="log", exponentformat="power", autorange="reversed")
    if up:
        figure.update_yaxes(type="log", exponentformat="power")
    if at is not None:
        figure.add_vline(x=at, line={"color": "black", "width": 1, "dash": "dash"})


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
