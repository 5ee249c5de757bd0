"""A table that sorts and filters in the page, by mouse or keyboard; `grid.js` does the work."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from untuned.util import wording

if TYPE_CHECKING:
    import pandas


def grid(
    frame: pandas.DataFrame,
    name: str,
    choices: tuple[str, ...] = (),
    pictures: list[str] | None = None,
    sorted_by: str | None = None,
) -> str:
    """A frame as a table to sort and filter; each column of `choices` has a list to pick from.

    `name` tells a screen reader what the table holds. `pictures` are data URIs, one for each row
    of a frame with a column "row". `sorted_by` is the column by which the rows come sorted.
    """
    from pandas.api import types

    columns = list(frame.columns)
    head, cells = "", []
    if pictures is not None:
        head = '<th class="text" scope="col">image</th>'
        alts = (escape(f"image of row {row}") for row in frame["row"])
        shown = zip(pictures, alts, strict=True)
        cells.append([f'<td><img src="{uri}" alt="{alt}"></td>' for uri, alt in shown])
    for place, column in enumerate(columns):
        values = frame.iloc[:, place]
        is_number = types.is_numeric_dtype(values) and not types.is_bool_dtype(values)
        kind = "" if is_number else ' class="text"'
        order = ' aria-sort="ascending"' if column == sorted_by else ""
        head += f'<th scope="col"{kind}{order}><button>{escape(str(column))}</button></th>'
        cells.append([_cell(value, kind) for value in values])
    shift = len(cells) - len(columns)
    asked = '<label>Search<input type="search" placeholder="any text"></label>'
    asked += "".join(_choice(frame[each], columns.index(each) + shift) for each in choices)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    return (
        f'<div class="grid"><div class="asked">{asked}'
        f'<output aria-live="polite">{len(frame):,} of {len(frame):,} rows</output></div>\n'
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div></div>"
    )


def _choice(values: pandas.Series, place: int) -> str:
    """A list to pick one value of a column from; "=" tells an empty value from no choice."""
    kinds = map(escape, sorted({text(value) for value in values}, key=natural))
    options = "".join(f'<option value="={kind}">{kind}</option>' for kind in kinds)
    return (
        f'<label>{escape(str(values.name))}<select data-column="{place}">'
        f'<option value="">all</option>{options}</select></label>'
    )


def natural(name: str) -> tuple[int, float, str]:
    """A key that sorts numbers by their size, before words."""
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)


def text(value: Any, digits: int | None = None) -> str:
    """A value as text, exact or with so many digits; a missing value is empty."""
    import pandas

    if pandas.api.types.is_scalar(value) and pandas.isna(value):
        return ""
    if not isinstance(value, float | np.floating):
        return str(value)
    return repr(float(value)) if digits is None else wording.number(float(value), digits)


def _cell(value: Any, kind: str) -> str:
    if kind:
        return f"<td{kind}>{escape(text(value))}</td>"
    return f'<td data-value="{text(value)}">{escape(text(value, 4))}</td>'
