"""Charts that stand still, as SVG inside the page: no script, a few kilobytes each."""

from __future__ import annotations

import html
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.run.plotting import BLUE, PANELS

if TYPE_CHECKING:
    import pandas

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 44
MOST_POINTS = 400  # of a line; more are not seen at this width

STYLE = """
.charts > svg { width: 100%; height: auto; max-width: 34rem; }
.charts > svg text { font: 12px system-ui, sans-serif; fill: var(--faint); }
.charts > svg .title { font-size: 14px; fill: var(--ink); }
.charts > svg .axis { stroke: var(--line); }
"""


class _Scale(NamedTuple):
    """Where values lie on an axis, and the ticks to write beside it."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    is_log: bool = False

    def share(self, values: Any) -> np.ndarray:
        values = np.asarray(values, float)
        values = np.log10(values) if self.is_log else values
        return (values - self.low) / (self.high - self.low)


def side_by_side(*drawings: str) -> str:
    """Drawings beside each other where there is room, else below each other."""
    return f'<div class="charts">{"".join(drawings)}</div>'


def histogram(values: Any, title: str, axis: str, low: float, high: float) -> str:
    """How often each value occurs."""
    counts, edges = np.histogram(np.asarray(values, float), bins=40, range=(low, high))
    across, up = (
        _linear(float(edges[0]), float(edges[-1])),
        _linear(0, max(1, counts.max()), whole=True),
    )
    shares, heights = across.share(edges), up.share(counts)
    bars = "".join(
        f'<rect x="{_x(left):.1f}" y="{_y(height):.1f}" width="{_x(right) - _x(left):.1f}" '
        f'height="{_y(0) - _y(height):.1f}" fill="{BLUE}"><title>{edge:.3g} and above: {count:,} '
        "rows</title></rect>"
        for left, right, height, edge, count in zip(
            shares[:-1], shares[1:], heights, edges[:-1], counts, strict=True
        )
        if count
    )
    return _drawing(title, axis, across, up, bars)


def convergence(history: pandas.DataFrame) -> str:
    """The outer loss, the norms and the step sizes against steps."""
    step = history["step"].to_numpy(float)
    drawn = [_lines("Outer loss", step, {"": (history["outer"], BLUE)}, is_log=False)]
    for title, lines in PANELS.items():
        named = {label: (history[name], colour) for name, (label, colour) in lines.items()}
        drawn.append(_lines(title, step, named, is_log=True))
    return side_by_side(*drawn)


def _lines(
    title: str, x: np.ndarray, lines: dict[str, tuple[pandas.Series, str]], is_log: bool
) -> str:
    known = {name: np.asarray(values, float) for name, (values, _) in lines.items()}
    usable = {
        name: np.isfinite(x) & np.isfinite(values) & (values > 0 if is_log else True)
        for name, values in known.items()
    }
    shown = np.concatenate([known[name][usable[name]] for name in known] or [np.zeros(0)])
    if not len(shown):
        return _drawing(title, "step", _linear(0, 1), _linear(0, 1), "")
    make = _logarithmic if is_log else _linear
    across, up = _linear(x.min(), x.max(), whole=True), make(shown.min(), shown.max())
    body, place = "", LEFT
    for name, (_, colour) in lines.items():
        at = np.flatnonzero(usable[name])
        at = at[:: max(1, ceil(len(at) / MOST_POINTS))]
        points = zip(across.share(x[at]), up.share(known[name][at]), strict=True)
        path = " ".join(f"{_x(a):.1f},{_y(b):.1f}" for a, b in points)
        dot = f'<circle cx="{path.partition(",")[0]}" cy="{path.partition(",")[2]}" r="3" '
        body += (
            f'{dot}fill="{colour}"/>'
            if len(at) == 1
            else f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        if name:
            body += (
                f'<rect x="{place}" y="{HEIGHT - 9}" width="10" height="3" fill="{colour}"/>'
                f'<text x="{place + 14}" y="{HEIGHT - 3}">{html.escape(name)}</text>'
            )
            place += 24 + round(6.4 * len(name))
    return _drawing(title, "step", across, up, body)


def _drawing(title: str, axis: str, across: _Scale, up: _Scale, body: str) -> str:
    name = html.escape(title)
    marks = "".join(
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(place):.1f}" '
        f'y2="{_y(place):.1f}"/><text x="{LEFT - 6}" y="{_y(place) + 4:.1f}" text-anchor="end">'
        f"{words}</text>"
        for place, words in _placed(up)
    )
    marks += "".join(
        f'<text x="{_x(place):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{words}</text>'
        for place, words in _placed(across)
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    marks += (
        f'<text x="{middle}" y="{HEIGHT - BOTTOM + 31}" text-anchor="middle">'
        f"{html.escape(axis)}</text>"
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 4}" role="img" aria-label="{name}">'
        f'<text class="title" x="{LEFT}" y="16">{name}</text>{marks}{body}</svg>'
    )


def _placed(scale: _Scale) -> list[tuple[float, str]]:
    return [(float(scale.share(10**v if scale.is_log else v)), words) for v, words in scale.ticks]


def _linear(low: float, high: float, whole: bool = False) -> _Scale:
    """Ticks at round numbers; at whole ones where rows or steps are counted."""
    low, high = float(low), float(high)
    if not high > low:
        low, high = low - 0.5, low + 0.5
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    round_ones = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(each * power for each in round_ones if each * power >= 0.999 * rough)
    step = max(1.0, step) if whole else step
    first = ceil(low / step - 1e-9)
    ticks = [each * step for each in range(first, floor(high / step + 1e-9) + 1)]
    return _Scale(low, high, [(tick, f"{tick:,.10g}"[:9]) for tick in ticks])


def _logarithmic(low: float, high: float) -> _Scale:
    first, last = floor(log10(low)), ceil(log10(high))
    last += first == last
    every = max(1, ceil((last - first) / 5))
    powers = range(first, last + 1, every)
    return _Scale(first, last, [(power, f"1e{power}") for power in powers], is_log=True)


def _x(share: Any) -> Any:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: Any) -> Any:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
