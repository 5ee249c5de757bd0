"""Suspect labels as cards to decide on: the data for `cards.js`, which draws the cards.

The page holds texts of users as JSON, in which no character can end its element. The script sets
them as text, never as markup.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections import Counter
from string import Template
from typing import TYPE_CHECKING, Any

from untuned.report import page, pictures
from untuned.report.grid import natural, text
from untuned.report.run_page import Run

if TYPE_CHECKING:
    import pandas

FIRST_COLUMNS = 12  # of the user's on a card, beside texts; a press shows the others
ROOM = 1_000_000  # letters for the columns of all cards, so that the page stays below 2 MB
MOST_LETTERS = 20_000  # of one text; the card says how many more there are
DIGITS = 6  # of the numbers on a card
OURS = ("row", "quality", "given_label", "suggested_label", "weight", "digest", "spread")


def deck(run: Run, suspects: pandas.DataFrame) -> str:
    """The list of cards, the bar above it, and the data of both."""
    data = json.dumps(_data(run, suspects), ensure_ascii=False, separators=(",", ":"))
    # None of these can then end the element, or a line of script.
    data = data.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"})
    return Template(page.resource("cards.html")).substitute(
        label=html.escape(str(run.found["input"]["label"])),
        file=html.escape(str(run.found["files"]["suspects"])),
        data=data,
    )


def _data(run: Run, suspects: pandas.DataFrame) -> dict[str, Any]:
    found = run.found
    is_numbers = found["input"]["task"] == "numbers"
    ours = OURS if is_numbers else OURS[:-1]  # in front of the user's columns
    theirs = suspects.iloc[:, len(ours) :].drop(columns=found["input"]["label"])
    uris, theirs = pictures.split(theirs, found["images"])
    if uris is None and "thumbnails" in found["files"]:
        uris = [_checked(uri) for uri in run.table("thumbnails")["picture"]]
        theirs = theirs.drop(columns="sha256")  # no reader needs it
    declared = [str(each["name"]) for each in found["columns"] if each["kind"] == "text"]
    prose = [name for name in declared if name in theirs.columns]
    prose += [name for name in theirs.columns if name not in prose and _is_long(theirs[name])]
    front = suspects.iloc[:, : len(ours)].set_axis(ours, axis=1)
    against = _against(run, front["row"])
    every = [name for name in theirs.columns if name not in prose]
    others = _told(theirs[every], against)
    shown = "{:.6g}".format if is_numbers else str
    classes = [] if is_numbers else sorted(map(str, found["summary"]["classes"]), key=natural)
    data = {
        "label": str(found["input"]["label"]),
        "task": found["input"]["task"],
        "classes": classes,
        "columns": [str(name) for name in others],
        "first": FIRST_COLUMNS,
        "left": len(every) - len(others),
        "texts": [str(name) for name in prose],
        "row": [int(row) for row in front["row"]],
        "digest": [str(each) for each in front["digest"]],
        "given": [shown(each) for each in front["given_label"]],
        "suggested": [shown(each) for each in front["suggested_label"]],
        "quality": [round(float(each), 3) for each in front["quality"]],
        "values": _texts(theirs[others]),
        "prose": [[_cut(each) for each in line] for line in _texts(theirs[prose])],
        "against": against,
        "pictures": uris,
        "earlier": _earlier(run),
        "judges": "+".join(map(str, found["summary"]["worth_asking_again"])),
    }
    mark = json.dumps([str(found["made"]), data["digest"]])
    return data | {"run": hashlib.sha256(mark.encode()).hexdigest()[:20]}


def _texts(frame: pandas.DataFrame) -> list[list[str]]:
    return [[text(value, DIGITS) for value in line] for line in frame.to_numpy(object)]


def _told(values: pandas.DataFrame, against: list[list[tuple[str, str]]]) -> list[Any]:
    """The columns that fit on the page; first come those that contradict the most labels."""
    counts = Counter(name for reasons in against for name in {name for name, _ in reasons})
    told: set[Any] = set()
    room = ROOM
    for name in sorted(values.columns, key=lambda name: -counts[str(name)]):
        room -= sum(len(text(each, DIGITS)) + len('"",') for each in values[name])
        if room < 0 and len(told) >= FIRST_COLUMNS:
            break
        told.add(name)
    return [name for name in values.columns if name in told]


def _checked(uri: Any) -> str:
    """A picture whose data are in the page; an address would be fetched."""
    if not str(uri).startswith(("data:image/png;base64,", "data:image/jpeg;base64,")):
        raise ValueError(f"a thumbnail begins with {str(uri)[:20]!r}")
    return str(uri)


def _against(run: Run, rows: pandas.Series) -> list[list[tuple[str, str]]]:
    """For each suspect the columns and values that contradict its label."""
    found: dict[int, list[tuple[str, str]]] = {}
    if "evidence" in run.found["files"]:
        lines = run.table("evidence", names=(1, 2))  # column and value
        for row, column, value in zip(lines["row"], lines["column"], lines["value"], strict=True):
            found.setdefault(int(row), []).append((str(column), text(value, DIGITS)))
    return [found.get(int(row), []) for row in rows]


def _earlier(run: Run) -> list[list[str]]:
    """Decisions of earlier rounds, which the page saves again together with the new ones."""
    if "decisions" not in run.found["files"]:
        return []
    frame = run.table("decisions", as_text=True)
    return _texts(frame[["row", "digest", "given", "decision", "label"]])


def _is_long(values: pandas.Series) -> bool:
    texts = [value for value in values if isinstance(value, str)]
    return bool(texts) and sum(map(len, texts)) > 60 * len(texts)


def _cut(prose: str) -> str:
    more = len(prose) - MOST_LETTERS
    return prose if more <= 0 else f"{prose[:MOST_LETTERS]}\u2026 ({more:,} more letters)"
