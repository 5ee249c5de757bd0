"""One HTML page that is complete in itself: headings, text, tables and charts.

All that a page needs is inside its file, also plotly's script (once, however many charts there
are). It opens from a disk, from an e-mail or on a phone, without a network.
"""

from __future__ import annotations

import html
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas

# How each page of ours begins. A file that begins otherwise is not ours.
OURS = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="untuned">'
)
# Markup that a part of a page has, and the files with its style and script.
PARTS = {
    'class="plotly-graph-div"': ("charts.js",),
    '<div class="grid">': ("grid.css", "grid.js"),
    '<div class="charts"><svg': ("drawings.css",),
    '<section id="decide"': ("cards.css", "cards.js"),
}


class Section(NamedTuple):
    """A heading, the text under it, and finished HTML: `chart(...)`s and `table(...)`s."""

    title: str
    text: str = ""
    body: str = ""


def resource(name: str) -> str:
    """A style, a script or a template of this package."""
    return files("untuned.report").joinpath(name).read_text(encoding="utf-8")


def chart(figure: Any, tools: bool = True) -> str:
    """A plotly figure as HTML; `write` adds plotly's script to the page.

    `tools=False` leaves out plotly's buttons, which would hide the title of a small chart.
    """
    return figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displaylogo": False, "responsive": True, "displayModeBar": tools},
    )


def side_by_side(*shown: str) -> str:
    """Charts in a row where the window is wide enough, else in a column."""
    return f'<div class="charts">{"".join(shown)}</div>'


def table(frame: pandas.DataFrame, prose: bool = False) -> str:
    """A frame as an HTML table that scrolls sideways on a phone; its texts are escaped.

    `prose`: cells hold sentences, which are broken into lines.
    """
    text = frame.to_html(index=False, border=0, na_rep="")
    return f'<div class="wide{" prose" * prose}">{text}</div>'


def write(
    path: Path, title: str, lead: str, sections: list[Section], footer: str = "", deck: str = ""
) -> None:
    """Write a page to a file; see `whole`."""
    path.write_text(whole(title, lead, sections, footer, deck), encoding="utf-8")


def whole(title: str, lead: str, sections: list[Section], footer: str = "", deck: str = "") -> str:
    """The page. `lead`, texts and footer are plain text; bodies are HTML.

    `deck` is HTML that people work on. The sections are then folded away above it.
    """
    parts = "\n".join(map(_section, sections))
    if deck:
        folded = "About this run: how labels differ, quality, columns, settings"
        parts = f'<details class="about"><summary>{folded}</summary>\n{parts}</details>\n{deck}'
    used = [name for markup, names in PARTS.items() if markup in parts for name in names]
    plotly = ""
    if "charts.js" in used:
        from plotly.offline import get_plotlyjs

        plotly = f"<script>{get_plotlyjs()}</script>"
    style = "".join(resource(name) for name in ["page.css", *used] if name.endswith(".css"))
    scripts = [f"<script>{resource(name)}</script>\n" for name in used if name.endswith(".js")]
    return (
        f"{OURS}<title>{html.escape(title)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style>\n{plotly}</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<p class="lead">{html.escape(lead)}</p>\n{parts}\n'
        f"<footer><p>{html.escape(footer)}</p></footer>\n{''.join(scripts)}</body></html>\n"
    )


def _section(section: Section) -> str:
    text = "\n".join(f"<p>{html.escape(part)}</p>" for part in section.text.split("\n\n") if part)
    return f"<section><h2>{html.escape(section.title)}</h2>\n{text}\n{section.body}</section>"
