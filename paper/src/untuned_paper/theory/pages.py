"""The pictures and the page of `untuned reproduce theory`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from untuned.report import page
from untuned.run.plotting import BLUE, GREEN, ORANGE, tidy

if TYPE_CHECKING:
    from untuned_paper.theory.study import Findings

COLOURS = (BLUE, ORANGE, GREEN)


def write_pictures(out: Path, found: Findings) -> None:
    """averages.png, stages.png and sub_loops.png."""
    from matplotlib import pyplot as plt

    for name, draw in (
        ("averages", _draw_averages),
        ("stages", _draw_stages),
        ("sub_loops", _draw_sub_loops),
    ):
        figure, panels = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        draw(panels, found)
        for panel in panels:
            tidy(panel)
        if name != "stages":  # both panels have the same lines
            lines = panels[0].get_legend_handles_labels()
            figure.legend(*lines, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(out / f"{name}.png", dpi=150)
        plt.close(figure)


def _draw_averages(panels: Any, found: Findings) -> None:
    groups = found.averages.groupby("method", sort=False)
    for panel, (method, rows) in zip(panels, groups, strict=True):
        _measured_and_bound(panel, rows, "average", "bound")
        panel.set(yscale="log", title=f"{method}: average squared gradient of Phi")


def _draw_sub_loops(panels: Any, found: Findings) -> None:
    for panel, letter in zip(panels, "PQ", strict=True):
        _measured_and_bound(panel, found.sub_loops, f"largest {letter}_t", f"{letter}'")
        panel.set(yscale="symlog", ylim=(0, None))
        panel.set_title(f"D-TFBO: longest sub-loop {letter}_t and its bound {letter}'")


def _measured_and_bound(panel: Any, rows: Any, measured: str, bound: str) -> None:
    for colour, (name, part) in zip(COLOURS, rows.groupby("problem", sort=False), strict=False):
        panel.plot(part["T"], part[measured], "o-", color=colour, label=f"{name}, measured")
        panel.plot(part["T"], part[bound], "--", color=colour, label=f"{name}, bound")
    panel.set(xscale="log", xlabel="steps T")


def _draw_stages(panels: Any, found: Findings) -> None:
    groups = found.stages.groupby("method", sort=False)
    for panel, (method, rows) in zip(panels, groups, strict=True):
        lines = rows.groupby("accumulator", sort=False)
        for colour, (letter, part) in zip(COLOURS, lines, strict=False):
            panel.plot(part["step"] + 1, part["value"], color=colour, label=letter)
            limit = _threshold(found, str(method), str(letter))
            panel.axhline(limit["threshold"], color=colour, ls="--", lw=1)
            if limit["is crossed"]:
                panel.axvline(limit["crossed after step"] + 1, color=colour, ls=":", lw=1)
        panel.set(xscale="log", yscale="log", xlabel="step, counted from 1")
        panel.set_title(f"{method}: accumulators (dashed: thresholds, dotted: crossed)")
        panel.legend(frameon=False, fontsize="small", loc="center right")


def _threshold(found: Findings, method: str, letter: str) -> Any:
    rows = found.thresholds
    return rows[(rows["method"] == method) & (rows["accumulator"] == letter)].iloc[0]


def write_page(path: Path, found: Findings, text: str) -> None:
    """The findings as one HTML page."""
    worst = found.checks.sort_values("worst", ascending=False).drop_duplicates(["method", "claim"])
    page.write(
        path,
        "The theory of tuning-free bilevel optimization, measured",
        "What the paper proves, computed from exact constants, beside runs of the library's own "
        "methods on problems for which every assumption holds on the whole space.",
        [
            page.Section("In short", text.replace("\n", "\n\n")),
            page.Section(
                "Theorems 1 and 2",
                "The average of |grad Phi(x_t)|^2 over T steps, and its bound. Both fall like 1/T. "
                "The bounds hold for every problem with such constants and are far above the runs; "
                "that of S-TFBO by dozens of powers of ten.",
                page.chart(_averages_chart(found)) + page.table(_short(found.averages)),
            ),
            page.Section(
                "Slopes",
                "Least squares on logarithmic scales. The corollaries promise evaluations of order "
                "epsilon^-2 and epsilon^-1. The first is the worst case of the sub-loops' stage "
                "one; in runs they start where the last one ended and soon have nothing to do.",
                page.table(_short(found.slopes)),
            ),
            page.Section(
                "Stages (Proposition 1)",
                "Accumulators against their thresholds; beyond a threshold every step descends.",
                page.chart(_stages_chart(found)) + page.table(_short(found.thresholds)),
            ),
            page.Section(
                "Sub-loops (Proposition 2)",
                "The longest sub-loop of a run beside its bound.",
                page.table(_short(found.sub_loops)),
            ),
            page.Section(
                "Printed, and supported by the proof",
                "Four claims as the paper prints them, on correct runs. Above 1 the run exceeds "
                "the claim.",
                page.table(_short(found.printed)),
            ),
            page.Section(
                "Every inequality",
                "The step at which each comes nearest to its bound, over all problems; `worst` is "
                "the measured value as a share of the bound.",
                page.table(_short(worst[["method", "claim", "holds", "worst", "problem", "step"]])),
            ),
        ],
        "Raw numbers are in the Parquet files beside this page.",
    )


def _short(frame: Any) -> Any:
    """Numbers with four digits, for reading."""
    return frame.map(lambda value: f"{value:.4g}" if isinstance(value, float) else value)


def _averages_chart(found: Findings) -> Any:
    from plotly import graph_objects as go

    figure = go.Figure()
    methods = list(found.averages["method"].unique())
    names = list(found.averages["problem"].unique())
    for (name, method), rows in found.averages.groupby(["problem", "method"], sort=False):
        colour = COLOURS[names.index(name)]
        symbol = "circle" if method == methods[0] else "square"
        for column, dash in (("average", "solid"), ("bound", "dash")):
            figure.add_scatter(
                x=rows["T"], y=rows[column], mode="lines+markers",
                name=f"{method}, {name}: {column}", marker={"symbol": symbol},
                line={"dash": dash, "color": colour},
            )  # fmt: skip
    figure.update_xaxes(type="log", title="steps T")
    figure.update_yaxes(type="log", title="average |grad Phi|^2", exponentformat="power")
    figure.update_layout(height=520, legend={"font": {"size": 11}})
    return figure


def _stages_chart(found: Findings) -> Any:
    from plotly.subplots import make_subplots

    methods = list(found.stages["method"].unique())
    figure = make_subplots(1, len(methods), subplot_titles=methods)
    for column, method in enumerate(methods, start=1):
        rows = found.stages[found.stages["method"] == method]
        for colour, (letter, part) in zip(
            COLOURS, rows.groupby("accumulator", sort=False), strict=False
        ):
            limit = _threshold(found, method, str(letter))
            figure.add_scatter(
                x=part["step"] + 1, y=part["value"], name=f"{method}: {letter}",
                line={"color": colour}, row=1, col=column,
            )  # fmt: skip
            figure.add_hline(
                y=limit["threshold"], line={"color": colour, "dash": "dash"}, row=1, col=column
            )
            if limit["is crossed"]:
                figure.add_vline(
                    x=limit["crossed after step"] + 1,
                    line={"color": colour, "dash": "dot"},
                    row=1,
                    col=column,
                )
    figure.update_xaxes(type="log", title="step, counted from 1")
    figure.update_yaxes(type="log")
    figure.update_layout(height=460)
    return figure
