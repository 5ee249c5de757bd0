"""Curves of a comparison as pictures, by matplotlib and by plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned import solvers
from untuned.run.plotting import tidy
from untuned_paper.comparison import grids, standings
from untuned_paper.comparison.curves import GAP, LOSS, Curve, curves, limits

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

AXES = {"step": "steps of x", "seconds": "seconds", "oracle_calls": "oracle calls"}
HEIGHTS = {
    GAP: "(Phi(x) - Phi*) / (Phi(x0) - Phi*)",
    LOSS: "validation loss f(x, y) of the current model",
}
POINT = "%{x:.4g}: %{y:.5g}<extra></extra>"  # in plotly's words
COLUMNS = {
    grids.TUNED: "baselines at published tuned values",
    grids.DEFAULT: "baselines at their defaults",
}

# Okabe and Ito's colours. The methods without step sizes have one each and thick lines; the others
# share five, told apart by dashes and markers.
FREE_COLOURS = {"d-tfbo": "#D55E00", "s-tfbo": "#0072B2", "auto": "#000000"}
COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#999999")
DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))
MARKERS = (("circle", "o"), ("square", "s"), ("triangle-up", "^"), ("diamond", "D"))


class Style(NamedTuple):
    """How a method is drawn, in plotly's words and in matplotlib's."""

    colour: str
    dash: tuple[str, str]
    marker: tuple[str, str]
    width: float


def style(method: str, setting: str = grids.DEFAULT) -> Style:
    """The same look for a method in every picture."""
    if method in FREE_COLOURS:
        dash = DASHES[setting == grids.ALL_ROWS]
        return Style(FREE_COLOURS[method], dash, MARKERS[0], 2.4)
    others = [name for name in solvers.names() if name not in FREE_COLOURS]
    line, colour = divmod(others.index(method), len(COLOURS))
    line %= len(DASHES)
    return Style(COLOURS[colour], DASHES[line], MARKERS[line], 1.2)


def figure(records: pandas.DataFrame, problems: list[str], axis: str, height: str) -> Figure:
    """One row of panels per problem; tuned baselines on the left, untuned ones on the right."""
    from matplotlib import pyplot as plt

    shape = (len(problems), len(COLUMNS))
    size = (12, 1.2 + 3.6 * len(problems))
    whole, panels = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    handles: dict[str, Any] = {}
    for row, problem in zip(panels, problems, strict=True):
        for panel, (column, title) in zip(row, COLUMNS.items(), strict=True):
            drawn = curves(records, problem, column, axis, height)
            for curve in drawn:
                handles[curve.name] = _draw(panel, curve)
            _name_the_lost(panel, drawn)
            panel.set(title=f"{problem}: {title}", xlabel=AXES[axis])
            if any(max(curve.across) > 0 for curve in drawn):  # there was time for a step
                panel.set_xscale("log")
            low, high = limits(records, problem, height)
            if low < high:  # something moved
                panel.set_ylim(low, high)
            if height == GAP:
                panel.set_yscale("log")
                for target in standings.TARGETS.values():
                    panel.axhline(target, color="#bbbbbb", linewidth=0.8, zorder=0)
            tidy(panel)
        row[0].set_ylabel(HEIGHTS[height], fontsize="small")
    names = sorted(handles, key=lambda name: (name.partition(",")[0] not in FREE_COLOURS, name))
    whole.legend(
        [handles[name] for name in names],
        names,
        loc="outside lower center",
        ncols=7,
        frameon=False,
        fontsize="small",
    )
    return whole


def _draw(panel: Any, curve: Curve) -> Any:
    look = style(curve.method, curve.setting)
    (line,) = panel.plot(
        curve.across,
        curve.middle,
        color=look.colour,
        linestyle=look.dash[1],
        marker=look.marker[1],
        markersize=3,
        linewidth=look.width,
        zorder=3 if curve.method in FREE_COLOURS else 2,
    )
    if curve.seeds > 1:
        panel.fill_between(
            curve.across,
            curve.low,
            curve.high,
            color=look.colour,
            alpha=0.12,
            linewidth=0,
        )
    for where, value in curve.ends:
        panel.plot(where, value, marker="x", color=look.colour, markersize=9, markeredgewidth=2)
    return line


def _name_the_lost(panel: Any, drawn: list[Curve]) -> None:
    """Write the method to its crosses, once, and one name below the other."""
    for number, curve in enumerate(curve for curve in drawn if curve.ends):
        panel.annotate(
            curve.label,
            curve.ends[0],
            textcoords="offset points",
            xytext=(0, -14 - 10 * number),
            fontsize="x-small",
            color=style(curve.method, curve.setting).colour,
            arrowprops={
                "arrowstyle": "-",
                "color": style(curve.method, curve.setting).colour,
                "lw": 0.6,
            },
        )


def interactive(records: pandas.DataFrame, problem: str, axis: str, height: str) -> Any:
    """The same two panels as a plotly figure; a click in the legend hides a method in both."""
    from plotly.subplots import make_subplots

    whole = make_subplots(
        cols=2, shared_yaxes=True, horizontal_spacing=0.04, subplot_titles=list(COLUMNS.values())
    )
    named: set[str] = set()
    for number, column in enumerate(COLUMNS, 1):
        for curve in curves(records, problem, column, axis, height):
            for trace in _traces(curve, shows_name=curve.name not in named):
                whole.add_trace(trace, row=1, col=number)
            named.add(curve.name)
    whole.update_xaxes(type="log", title_text=AXES[axis])
    ends = limits(records, problem, height)
    whole.update_yaxes(range=ends)
    if height == GAP:
        whole.update_yaxes(type="log", range=np.log10(ends), exponentformat="power")
        for target in standings.TARGETS.values():
            whole.add_hline(target, line_width=1, line_color="#bbbbbb")
    whole.update_yaxes(title_text=HEIGHTS[height], col=1)
    whole.update_layout(
        template="plotly_white",
        height=560,
        margin={"t": 60, "l": 70, "r": 10, "b": 60},
        legend={"orientation": "h", "y": -0.2},
        hovermode="closest",
    )
    return whole


def _traces(curve: Curve, shows_name: bool) -> list[Any]:
    import plotly.graph_objects as go

    look = style(curve.method, curve.setting)
    common = {"legendgroup": curve.name, "showlegend": False}
    traces = []
    if curve.seeds > 1:
        band = np.concatenate([curve.low, curve.high[::-1]])
        traces.append(
            go.Scatter(
                x=np.concatenate([curve.across, curve.across[::-1]]),
                y=band,
                fill="toself",
                fillcolor=look.colour,
                opacity=0.12,
                line={"width": 0},
                hoverinfo="skip",
                **common,
            )
        )
    traces.append(
        go.Scatter(
            x=curve.across,
            y=curve.middle,
            mode="lines+markers",
            name=curve.label,
            line={"color": look.colour, "dash": look.dash[0], "width": look.width},
            marker={"symbol": look.marker[0], "size": 5, "color": look.colour},
            **(common | {"showlegend": shows_name}),
            hovertemplate=f"{curve.method}, {curve.setting}<br>" + POINT,
        )
    )
    if curve.ends:
        where, value = zip(*curve.ends, strict=True)
        traces.append(
            go.Scatter(
                x=where,
                y=value,
                mode="markers",
                name=f"{curve.method} diverged",
                marker={"symbol": "x", "size": 12, "color": look.colour},
                **common,
                hovertemplate=f"{curve.method} diverged here<extra></extra>",
            )
        )
    return traces
