"""A table that sorts and filters in the page, by mouse or keyboard, with a script of our own."""

from __future__ import annotations

import html
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from untuned.util import wording

if TYPE_CHECKING:
    import pandas

STYLE = """
.grid .asked { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: end;
               margin: 0.5rem 0; font-size: 0.9rem; }
.grid label { display: grid; color: var(--faint); }
.grid input, .grid select { font: inherit; padding: 0.3rem 0.4rem; max-width: 14rem; }
.grid .wide { max-height: 36rem; overflow: auto; border-block: 1px solid var(--line); }
.grid th { position: sticky; top: 0; background: var(--paper); padding: 0; z-index: 1; }
.grid th button { all: unset; cursor: pointer; padding: 0.4rem 0.7rem; font-weight: 600; }
.grid th button:focus-visible { outline: 2px solid #0072b2; outline-offset: -2px; }
.grid th button::after { content: "\\2195"; color: var(--faint); padding-left: 0.3rem; }
.grid th[aria-sort=ascending] button::after { content: "\\2191"; color: inherit; }
.grid th[aria-sort=descending] button::after { content: "\\2193"; color: inherit; }
.grid td { max-width: 18rem; overflow-wrap: anywhere; }
.grid td.text { white-space: normal; min-width: 3rem; }
.grid td.text, .grid th.text { text-align: left; }
.grid img { display: block; width: 3.5rem; height: 3.5rem; image-rendering: pixelated;
            border: 1px solid var(--line); }
"""


def script() -> str:
    """The script that makes grids work; a page needs it once."""
    return files("untuned.report").joinpath("grid.js").read_text(encoding="utf-8")


def grid(
    frame: pandas.DataFrame,
    name: str,
    choices: tuple[str, ...] = (),
    pictures: list[str] | None = None,
    sorted_by: str | None = None,
) -> str:
    """A frame as a table to sort and filter; `choices` are columns with a list to pick from.

    `name` tells a screen reader what the table holds; `pictures` are data URIs, one per
    row of a frame with a column "row";
    `sorted_by` is the column by which the rows are already in ascending order.
    """
    columns = list(frame.columns)
    shift = 0 if pictures is None else 1
    head = "" if pictures is None else '<th class="text" scope="col">image</th>'
    numeric = [_is_numeric(frame.iloc[:, place]) for place in range(len(columns))]
    for column, is_number in zip(columns, numeric, strict=True):
        order = ' aria-sort="ascending"' if column == sorted_by else ""
        kind = "" if is_number else ' class="text"'
        head += f'<th scope="col"{kind}{order}><button>{_escape(column)}</button></th>'
    lines = []
    for place, values in enumerate(frame.itertuples(index=False, name=None)):
        picture = ""
        if pictures is not None:
            alt = _escape(f"image of row {values[columns.index('row')]}")
            picture = f'<td><img src="{pictures[place]}" alt="{alt}"></td>'
        cells = "".join(_cell(value, number) for value, number in zip(values, numeric, strict=True))
        lines.append(f"<tr>{picture}{cells}</tr>")
    asked = '<label>Search<input type="search" placeholder="any text"></label>'
    for column in choices:
        asked += _choice(frame[column], column, columns.index(column) + shift)
    body = "\n".join(lines)
    return (
        f'<div class="grid"><div class="asked">{asked}'
        f'<output aria-live="polite">{len(frame):,} of {len(frame):,} rows</output></div>\n'
        f'<div class="wide" tabindex="0" role="region" aria-label="{_escape(name)}"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div></div>"
    )


def _choice(values: pandas.Series, column: str, place: int) -> str:
    """A list to pick one value of a column from; "=" tells an empty value from no choice."""
    kinds = sorted({_text(value) for value in values}, key=natural)
    options = "".join(
        f'<option value="={_escape(kind)}">{_escape(kind)}</option>' for kind in kinds
    )
    return (
        f'<label>{_escape(column)}<select data-column="{place}"><option value="">all</option>'
        f"{options}</select></label>"
    )


def natural(text: str) -> tuple[int, float, str]:
    """Numbers in their order, before words."""
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)


def _cell(value: Any, is_number: bool) -> str:
    if is_number:
        return f'<td data-value="{_text(value)}">{_escape(_short(value))}</td>'
    text = _text(value)
    return f'<td class="text">{_escape(text)}</td>'


def _text(value: Any) -> str:
    """A value as text, exactly; nothing for a missing one."""
    import pandas

    if pandas.api.types.is_scalar(value) and pandas.isna(value):
        return ""
    if isinstance(value, float | np.floating):
        return repr(float(value))
    return str(value)


def _short(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else wording.number(float(value), 4)
    return _text(value)


def _is_numeric(values: pandas.Series) -> bool:
    from pandas.api import types

    return types.is_numeric_dtype(values) and not types.is_bool_dtype(values)


def _escape(value: Any) -> str:
    return html.escape(str(value), quote=True)
