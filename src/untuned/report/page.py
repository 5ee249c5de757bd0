"""One self-contained HTML page: headings, prose, tables and interactive charts.

Everything a page needs is inside the file, plotly's script too (once, however many charts), so it
opens from a disk, an e-mail or on a phone without a network.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from untuned.report import drawings, grid

if TYPE_CHECKING:
    import pandas

STYLE = """
:root { color-scheme: light; --ink: #1b1f24; --faint: #57606a; --line: #d8dee4; --paper: #fff;
        --shade: #f6f8fa; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p { max-width: 46rem; }
.lead, caption, footer { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right;
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.prose th, .prose td { text-align: left; vertical-align: top; white-space: normal; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--shade); padding: 0.7rem; }
h1, p { overflow-wrap: anywhere; }
.charts { display: grid; gap: 1rem;
          grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.charts > div { min-width: 0; }
.confusion td { text-align: center; min-width: 2rem; }
.confusion caption { caption-side: bottom; text-align: left; padding-top: 0.5rem; }
@media (max-width: 40rem) { th, td { padding: 0.3rem 0.4rem; } }
footer { margin-top: 3rem; border-top: 1px solid var(--line); font-size: 0.85rem; }
"""

# A chart is drawn as soon as it is read, before its neighbours narrow it.
FIT_CHARTS = (
    "<script>for (const chart of document.querySelectorAll('.plotly-graph-div')) "
    "Plotly.Plots.resize(chart);</script>\n"
)


# How every page begins, by which it is told from a page of somebody else's.
OURS = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="untuned">'
)


class Section(NamedTuple):
    """A heading, the text under it, and finished HTML: `chart(...)`s and `table(...)`s."""

    title: str
    text: str = ""
    body: str = ""


def chart(figure: Any, tools: bool = True) -> str:
    """A plotly figure as HTML; the script itself is put into the page by `write`.

    `tools=False` leaves out plotly's bar of buttons, which would hide the title of a small chart.
    """
    return figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displaylogo": False, "responsive": True, "displayModeBar": tools},
    )


def table(frame: pandas.DataFrame, prose: bool = False) -> str:
    """A frame as an HTML table that scrolls sideways on a phone; text in it is escaped.

    `prose`: cells hold sentences, which go on in the next line.
    """
    text = frame.to_html(index=False, border=0, na_rep="")
    return f'<div class="wide{" prose" * prose}">{text}</div>'


def write(
    path: Path,
    title: str,
    lead: str,
    sections: list[Section],
    footer: str = "",
    deck: str = "",
) -> None:
    """Write the page. `lead`, texts and footer are plain text; bodies are HTML.

    `deck` is HTML that people work on: the sections are folded away above it.
    """
    parts = "\n".join(_section(section) for section in sections)
    has_charts = 'class="plotly-graph-div"' in parts
    has_grid = '<div class="grid">' in parts
    style = STYLE + (grid.STYLE if has_grid else "")
    style += drawings.STYLE if '<div class="charts"><svg' in parts else ""
    script, after = "", ""
    if has_charts:
        from plotly.offline import get_plotlyjs

        script, after = f"<script>{get_plotlyjs()}</script>", FIT_CHARTS
    if has_grid:
        after += f"<script>{grid.script()}</script>\n"
    if deck:
        from untuned.report import cards

        style += cards.style()
        after += f"<script>{cards.script()}</script>\n"
        folded = "About this run: how labels differ, quality, columns, settings"
        parts = f'<details class="about"><summary>{folded}</summary>\n{parts}</details>\n{deck}'
    path.write_text(
        f"{OURS}<title>{html.escape(title)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{style}</style>\n{script}</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<p class="lead">{html.escape(lead)}</p>\n'
        f"{parts}\n<footer><p>{html.escape(footer)}</p></footer>\n{after}</body></html>\n",
        encoding="utf-8",
    )


def _section(section: Section) -> str:
    text = "\n".join(f"<p>{html.escape(part)}</p>" for part in section.text.split("\n\n") if part)
    return f"<section><h2>{html.escape(section.title)}</h2>\n{text}\n{section.body}</section>"
