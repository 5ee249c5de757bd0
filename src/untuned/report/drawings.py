"""Charts that stand still, as SVG inside the page: no script, a few kilobytes each."""

from __future__ import annotations

import html
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.report.page import side_by_side
from untuned.run.plotting import BLUE, PANELS

if TYPE_CHECKING:
    import pandas

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 44
MOST_POINTS = 400  # of a line; more are not seen at this width


class _Scale(NamedTuple):
    """Where values lie on an axis, and the ticks to write at it."""

    low: float
    high: float
    ticks: list[tuple[float, str]]

    def x(self, values: Any) -> Any:
        return LEFT + (values - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def y(self, values: Any) -> Any:
        share = (values - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def histogram(values: Any, title: str, axis: str, low: float, high: float) -> str:
    """How often each value occurs."""
    counts, edges = np.histogram(np.asarray(values, float), bins=40, range=(low, high))
    across, up = _linear(edges[0], edges[-1]), _linear(0, max(1, counts.max()), whole=True)
    bars = ""
    for left, right, edge, count in zip(
        across.x(edges[:-1]), across.x(edges[1:]), edges, counts, strict=False
    ):
        said = _element("title", f"{edge:.3g} and above: {count:,} rows")
        top, wide = up.y(count), right - left
        bar = _element("rect", said, x=left, y=top, width=wide, height=up.y(0) - top, fill=BLUE)
        bars += bar if count else ""
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
    points = {}
    for name, (values, colour) in lines.items():
        y = np.asarray(values, float)
        usable = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & (y > 0 if is_log else True))
        points[name, colour] = x[usable], np.log10(y[usable]) if is_log else y[usable]
    shown = np.concatenate([y for _, y in points.values()])
    if not len(shown):
        return _drawing(title, "step", _linear(0, 1), _linear(0, 1), "")
    make = _powers if is_log else _linear
    across, up = _linear(x.min(), x.max(), whole=True), make(shown.min(), shown.max())
    body, place = "", LEFT
    for (name, colour), (a, b) in points.items():
        every = max(1, ceil(len(a) / MOST_POINTS))
        at = list(zip(across.x(a[::every]), up.y(b[::every]), strict=True))
        if len(at) == 1:
            body += _element("circle", cx=at[0][0], cy=at[0][1], r=3, fill=colour)
        else:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
            body += _element("polyline", points=path, fill="none", stroke=colour, stroke_width=1.8)
        if name:
            body += _element("rect", x=place, y=HEIGHT - 9, width=10, height=3, fill=colour)
            body += _element("text", html.escape(name), x=place + 14, y=HEIGHT - 3)
            place += 24 + round(6.4 * len(name))
    return _drawing(title, "step", across, up, body)


def _drawing(title: str, axis: str, across: _Scale, up: _Scale, body: str) -> str:
    name, marks = html.escape(title), ""
    middle = (LEFT + WIDTH - RIGHT) / 2
    for value, words in up.ticks:
        y = up.y(value)
        marks += _element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        marks += _element("text", words, x=LEFT - 6, y=y + 4, text_anchor="end")
    for place, words, below in (
        *((across.x(value), words, 16) for value, words in across.ticks),
        (middle, html.escape(axis), 31),
    ):
        marks += _element("text", words, x=place, y=HEIGHT - BOTTOM + below, text_anchor="middle")
    marks = _element("text", name, class_="title", x=LEFT, y=16) + marks + body
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 4}" role="img" aria-label="{name}">{marks}</svg>'


def _element(tag: str, inside: str = "", **values: str | float) -> str:
    """An SVG element; numbers have one digit after the point."""
    said = ""
    for name, value in values.items():
        text = value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        said += f' {name.rstrip("_").replace("_", "-")}="{text}"'
    return f"<{tag}{said}>{inside}</{tag}>"


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


def _powers(low: float, high: float) -> _Scale:
    """Ticks at powers of ten, between logarithms."""
    first, last = floor(low), ceil(high)
    last += first == last
    powers = range(first, last + 1, max(1, ceil((last - first) / 5)))
    return _Scale(first, last, [(power, f"1e{power}") for power in powers])
