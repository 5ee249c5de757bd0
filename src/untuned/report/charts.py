"""Interactive charts, by plotly; `drawings.py` makes those that stand still."""

from __future__ import annotations

from html import escape
from typing import Any

from untuned.report import page
from untuned.run.plotting import BLUE, GREEN, ORANGE

# The colours of plotting.py, then Okabe and Ito's others, then grey.
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#c8ccd0"
LONGEST = 24  # letters of a name on an axis


def side_by_side(*figures: Any) -> str:
    """Charts in a row where the window is wide enough, else in a column."""
    return page.side_by_side(*(page.chart(figure, tools=False) for figure in figures))


def dots(names: list[str], values: Any, axis: str) -> Any:
    """One dot per name, on a logarithmic scale, the first on top."""
    figure = _figure("", axis)
    places = list(range(len(names)))
    short = [each if len(each) <= LONGEST else each[: LONGEST - 1] + "\u2026" for each in names]
    figure.add_scatter(
        x=values, y=places, mode="markers", marker={"color": BLUE, "size": 9},
        text=_plain(names), hovertemplate="%{text}: %{x:.3g}<extra></extra>",
    )  # fmt: skip
    # Few ticks: within one decade plotly writes so many that they overlap.
    figure.update_xaxes(type="log", exponentformat="power", nticks=4, tickangle=0)
    figure.update_yaxes(tickvals=places, ticktext=_plain(short), autorange="reversed")
    figure.update_layout(height=120 + 22 * len(names))
    return figure


def lines(frame: Any, x: str, y: str, title: str, at: float | None = None) -> Any:
    """A line for each name in the first column, strengths on a logarithmic scale.

    The first few have a colour, and the mouse shows all names; `at` draws a vertical line.
    """
    figure = _figure(title, x)
    names = frame.iloc[:, 0].drop_duplicates().tolist()
    for place, name in reversed(list(enumerate(names))):
        part = frame[frame.iloc[:, 0] == name]
        figure.add_scatter(
            x=part[x], y=part[y], name=_plain([name])[0],
            mode="lines" if len(part) > 1 else "markers",
            line={"color": COLOURS[place] if place < len(COLOURS) else GREY, "width": 1.8},
            hovertemplate="%{fullData.name}: %{y:.3g} at %{x:.3g}<extra></extra>",
            showlegend=place < len(COLOURS), legendrank=place,
        )  # fmt: skip
    below = {"orientation": "h", "y": -0.3}
    figure.update_layout(showlegend=len(names) > 1, legend=below, height=400)
    if y == "strength":
        figure.update_yaxes(type="log", exponentformat="power")
    return _along_strengths(figure, at) if x == "strength" else figure


def band(frame: Any, title: str, at: float) -> Any:
    """The loss along a strength, between one standard error less and one more."""
    figure = _figure(title, "strength")
    strength, loss, error = (frame[name] for name in ("strength", "loss", "standard_error"))
    for values, fill in ((loss - error, None), (loss + error, "tonexty")):
        figure.add_scatter(
            x=strength, y=values, mode="lines", line={"width": 0}, fill=fill,
            fillcolor="rgba(0, 114, 178, 0.2)", hoverinfo="skip",
        )  # fmt: skip
    figure.add_scatter(
        x=strength, y=loss, mode="lines+markers", marker={"color": BLUE}, customdata=error,
        hovertemplate="%{y:.4g} \u00b1 %{customdata:.2g} at %{x:.3g}<extra></extra>",
    )  # fmt: skip
    return _along_strengths(figure, at)


def _along_strengths(figure: Any, best: float | None) -> Any:
    """Strengths on the horizontal axis, the strongest on the left; the best as a dashed line."""
    figure.update_xaxes(type="log", exponentformat="power", autorange="reversed")
    if best is not None:
        figure.add_vline(x=best, line={"color": "black", "width": 1, "dash": "dash"})
    return figure


def _plain(names: list[Any]) -> list[str]:
    """Texts of users as plotly shows them: `<` would begin one of its own marks."""
    return [escape(str(name), quote=False) for name in names]


def _figure(title: str, axis: str) -> Any:
    from plotly import graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 15}}, height=320, showlegend=False,
        margin={"l": 50, "r": 15, "t": 45, "b": 45}, template="plotly_white",
    )  # fmt: skip
    figure.update_xaxes(title=axis, automargin=True)
    figure.update_yaxes(automargin=True)
    return figure
