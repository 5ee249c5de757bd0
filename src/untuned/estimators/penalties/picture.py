"""The picture of a path. matplotlib is imported only when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from untuned.estimators.penalties.path import Path
from untuned.run.plotting import BLUE, ORANGE, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 8  # lines with a colour and a name; all others are grey
MOST_LINES = 500
MOST_ENTERED = 20
GREY = "#c8ccd0"


def figure(path: Path, features: list[str], groups: list[str]) -> Figure:
    """Coefficients, loss, strengths found, and the order of features: four panels."""
    from matplotlib import pyplot as plt

    drawn, panels = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    _coefficients(panels[0, 0], path, features)
    _loss(panels[0, 1], path)
    _found(panels[1, 0], path, groups)
    _entered(panels[1, 1], path, features)
    for panel in panels.flat:
        tidy(panel)
    return drawn


def _coefficients(panel: Axes, path: Path, features: list[str]) -> None:
    order = path.order()
    _lines(panel, path.strengths, path.coef[:, order], [features[k] for k in order])
    panel.axvline(path.strengths[path.best()], color="black", lw=0.8, ls="--")
    panel.set(title="Coefficients along one strength", xscale="log", xlabel="strength for all")
    panel.invert_xaxis()


def _loss(panel: Axes, path: Path) -> None:
    low, high = path.loss - path.error, path.loss + path.error
    panel.fill_between(path.strengths, low, high, color=BLUE, alpha=0.2, lw=0)
    panel.plot(path.strengths, path.loss, color=BLUE, marker=".")
    panel.axvline(path.strengths[path.best()], color="black", lw=0.8, ls="--")
    panel.set(
        title="Loss of rows held back, and its standard error", xscale="log",
        xlabel="strength for all",
    )  # fmt: skip
    panel.invert_xaxis()


def _found(panel: Axes, path: Path, groups: list[str]) -> None:
    order = path.weakest()
    names = [groups[k] for k in order]
    _lines(panel, np.arange(len(path.found)), path.found[:, order], names)
    panel.set(title="Strengths as they were found", yscale="log", xlabel="step of the search")


def _entered(panel: Axes, path: Path, features: list[str]) -> None:
    entered = path.entered()
    shown = [k for k in path.order()[:MOST_ENTERED] if entered[k] > 0]
    panel.plot(entered[shown], range(len(shown)), "o", color=BLUE)
    panel.axvline(path.strengths[path.best()], color="black", lw=0.8, ls="--")
    panel.set_yticks(range(len(shown)), [_short(features[k]) for k in shown], fontsize="small")
    panel.set(
        title="Features in the order in which they enter", xscale="log",
        xlabel="strength at which they do",
    )  # fmt: skip
    panel.invert_xaxis()
    panel.invert_yaxis()


def _lines(panel: Axes, x: np.ndarray, values: np.ndarray, names: list[str]) -> None:
    """Columns of `values`, the first ones with colours and names."""
    from matplotlib import colormaps

    mark = "." if len(x) == 1 else ""  # one point would draw no line
    if values.shape[1] == 1:
        panel.plot(x, values, color=ORANGE, marker=mark)
        return
    panel.plot(x, values[:, NAMED:MOST_LINES], color=GREY, lw=0.8, marker=mark)
    for k in reversed(range(min(NAMED, len(names)))):
        panel.plot(
            x, values[:, k], color=colormaps["tab10"](k), label=_short(names[k]), marker=mark
        )
    handles, labels = panel.get_legend_handles_labels()
    panel.legend(handles[::-1], labels[::-1], frameon=False, fontsize="small")


def _short(name: str, most: int = 24) -> str:
    # A dollar would begin mathematics, and a leading underscore hides a line from the legend.
    name = name.replace("$", r"\$")
    name = name if len(name) <= most else name[: most - 1] + "\u2026"
    return "\u200b" + name if name.startswith("_") else name
