"""Pictures of a run. matplotlib is imported only when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from untuned.run.result import History

# Colours that stay apart for colour-blind readers (Okabe and Ito).
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"

PANELS = {
    "Gradient norms": {
        "hypergrad_norm": ("hypergradient (x)", BLUE),
        "inner_grad_norm": ("inner gradient (y)", ORANGE),
        "residual_norm": ("linear residual (v)", GREEN),
    },
    "Step sizes": {
        "step_x": ("x", BLUE),
        "step_y": ("y", ORANGE),
        "step_v": ("v", GREEN),
    },
}


def run_figure(history: History, status: str) -> Figure:
    """Outer loss, norms and step sizes of a run, side by side."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    draw_run(axes, history)
    figure.suptitle(f"{status} after {history['step'][-1] if history.records else 0} steps")
    return figure


def draw_run(panels: Any, history: History) -> None:
    """Outer loss, norms and step sizes, one to each of three panels."""
    _draw_loss(panels[0], history)
    for panel, title in zip(panels[1:], PANELS, strict=True):
        _draw_lines(panel, history, title)


def _draw_loss(panel: Axes, history: History) -> None:
    """The outer loss against steps."""
    # A single record would draw no line; the marker shows it.
    panel.plot(history["step"], history["outer"], color=BLUE, marker=_marker(history))
    panel.set(title="Outer loss f(x, y)", xlabel="step")
    tidy(panel)


def _draw_lines(panel: Axes, history: History, title: str) -> None:
    """The lines of one of `PANELS` on a logarithmic scale."""
    for column, (label, colour) in PANELS[title].items():
        values = history[column]
        shown = np.where(values > 0, values, np.nan)  # a norm of exactly zero has no logarithm
        panel.plot(history["step"], shown, color=colour, label=label, marker=_marker(history))
    panel.set(title=title, xlabel="step", yscale="log")
    panel.legend(frameon=False, fontsize="small")
    tidy(panel)


def _marker(history: History) -> str:
    return "o" if history.records == 1 else ""


def tidy(panel: Axes) -> None:
    """The style of a panel."""
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
