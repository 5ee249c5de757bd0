"""Suspect labels as cards to decide on: the data for `cards.js`, which draws and remembers.

Texts of users are data here, never markup: they go into the page as JSON, of which no character
can end the element it is in, and the script puts them onto cards as text.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections import Counter
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from untuned.report import pictures
from untuned.report.grid import natural
from untuned.report.run_page import Run
from untuned.util import wording

if TYPE_CHECKING:
    import pandas

FIRST_COLUMNS = 12  # of the user's on a card, beside texts; more are shown when asked for
ROOM = 1_000_000  # letters for the columns of all cards, so that the page stays below 2 MB
MOST_LETTERS = 20_000  # of one text; beyond, it says how much more there is
OURS = ("row", "quality", "given_label", "suggested_label", "weight", "digest", "spread")


def style() -> str:
    """How cards look, by day and by night."""
    return _resource("cards.css")


def script() -> str:
    """The script that makes cards work; a page needs it once."""
    return _resource("cards.js")


def _resource(name: str) -> str:
    return files("untuned.report").joinpath(name).read_text(encoding="utf-8")


def deck(run: Run, suspects: pandas.DataFrame) -> str:
    """The list of cards, the bar above it, and the data of both."""
    text = json.dumps(_data(run, suspects), ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":  # none of them can end the element, or a line of script
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Template(_resource("cards.html")).substitute(
        label=html.escape(str(run.found["input"]["label"])),
        file=html.escape(str(run.found["files"]["suspects"])),
        data=text,
    )


def _data(run: Run, suspects: pandas.DataFrame) -> dict[str, Any]:
    found = run.found
    is_numbers = found["input"]["task"] == "numbers"
    ours = OURS if is_numbers else OURS[:-1]  # in front of the user's columns
    theirs = suspects.iloc[:, len(ours) :].drop(columns=found["input"]["label"])
    images, uris = found["images"], None
    if images:
        pixels = theirs[images["columns"]].to_numpy(float)
        uris = pictures.data_uris(pixels, images["side"], images["largest"])
        theirs = theirs.drop(columns=images["columns"])
    elif "thumbnails" in found["files"]:
        uris = [_checked(uri) for uri in run.table("thumbnails")["picture"]]
        theirs = theirs.drop(columns="sha256")  # for machines
    prose = [str(each["name"]) for each in found["columns"] if each["kind"] == "text"]
    prose += [name for name in theirs.columns if name not in prose and _is_long(theirs[name])]
    prose = [name for name in prose if name in theirs.columns]
    front = suspects.iloc[:, : len(ours)].set_axis(ours, axis=1)
    against = _against(run, front["row"])
    every = [name for name in theirs.columns if name not in prose]
    others = _told(theirs[every], against)
    names = [] if is_numbers else sorted(map(str, found["summary"]["classes"]), key=natural)
    shown = _number if is_numbers else str
    data = {
        "label": str(found["input"]["label"]),
        "task": found["input"]["task"],
        "classes": names,
        "columns": [str(name) for name in others],
        "first": FIRST_COLUMNS,
        "left": len(every) - len(others),
        "texts": [str(name) for name in prose],
        "row": [int(row) for row in front["row"]],
        "digest": [str(each) for each in front["digest"]],
        "given": [shown(each) for each in front["given_label"]],
        "suggested": [shown(each) for each in front["suggested_label"]],
        "quality": [round(float(each), 3) for each in front["quality"]],
        "values": [[_value(v) for v in line] for line in theirs[others].to_numpy(object)],
        "prose": [[_cut(_value(v)) for v in line] for line in theirs[prose].to_numpy(object)],
        "against": against,
        "pictures": uris,
        "earlier": _earlier(run),
        "judges": "+".join(map(str, found["summary"]["worth_asking_again"])),
    }
    mark = json.dumps([str(found["made"]), data["digest"]])
    return data | {"run": hashlib.sha256(mark.encode()).hexdigest()[:20]}


def _told(values: pandas.DataFrame, against: list[list[tuple[str, str]]]) -> list[Any]:
    """The columns that the page has: all, or those that speak against the most labels."""
    counts = Counter(name for reasons in against for name in {name for name, _ in reasons})
    told: set[Any] = set()
    room = ROOM
    for name in sorted(values.columns, key=lambda name: -counts[str(name)]):
        room -= sum(len(_value(each)) + len('"",') for each in values[name])
        if room < 0 and len(told) >= FIRST_COLUMNS:
            break
        told.add(name)
    return [name for name in values.columns if name in told]


def _checked(uri: Any) -> str:
    """A picture is data inside the page, whatever the file says; nothing is fetched."""
    text = str(uri)
    if not text.startswith(("data:image/png;base64,", "data:image/jpeg;base64,")):
        raise ValueError(f"a thumbnail begins with {text[:20]!r}")
    return text


def _against(run: Run, rows: pandas.Series) -> list[list[tuple[str, str]]]:
    """For each suspect the columns and values that speak against its label."""
    found: dict[int, list[tuple[str, str]]] = {}
    if "evidence" in run.found["files"]:
        lines = run.table("evidence", names=(1, 2))  # column and value
        for row, column, value in zip(lines["row"], lines["column"], lines["value"], strict=True):
            found.setdefault(int(row), []).append((str(column), _value(value)))
    return [found.get(int(row), []) for row in rows]


def _earlier(run: Run) -> list[list[str]]:
    """Decisions of the rounds before, which leave the page again with the new ones."""
    if "decisions" not in run.found["files"]:
        return []
    frame = run.table("decisions", as_text=True)[["row", "digest", "given", "decision", "label"]]
    return [[_value(each) for each in line] for line in frame.to_numpy(object)]


def _is_long(values: pandas.Series) -> bool:
    texts = [value for value in values if isinstance(value, str)]
    return bool(texts) and sum(map(len, texts)) > 60 * len(texts)


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


def _value(value: Any) -> str:
    import pandas

    if pandas.api.types.is_scalar(value) and pandas.isna(value):
        return ""
    return wording.number(value) if isinstance(value, float) else str(value)


def _cut(text: str) -> str:
    more = len(text) - MOST_LETTERS
    return text if more <= 0 else f"{text[:MOST_LETTERS]}\u2026 ({more:,} more letters)"
