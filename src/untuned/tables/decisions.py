"""What people decided about suspect labels: the file `decisions.csv` that the page gives.

Each line names a row, carries a digest of it, and says `keep`, `change` or `unclear`. The digest
tells whether the row is still the one that was looked at.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.tables import files
from untuned.tables.labels import Labels, Task
from untuned.util.wording import brief

if TYPE_CHECKING:
    import pandas

COLUMNS = ("row", "digest", "given", "decision", "label")
JUDGES = "judges"  # a column that may be missing
KINDS = ("keep", "change", "unclear")


class Decisions(NamedTuple):
    """What was decided, for positions among the rows that have a label."""

    frame: pandas.DataFrame  # as it was read, for the next page
    settled: np.ndarray  # positions of labels that were confirmed or corrected
    values: np.ndarray  # their right labels
    unclear: np.ndarray  # positions
    judges: tuple[str, ...] = ()  # whom the run before found worth hearing


def digests(frame: pandas.DataFrame) -> list[str]:
    """One short digest per row, of all its values."""
    texts = frame.astype(object).where(frame.notna(), "")
    rows = (
        "\x1f".join(repr(v) if isinstance(v, float) else str(v) for v in row)
        for row in texts.itertuples(index=False, name=None)
    )
    names = "\x1f".join(map(str, frame.columns)) + "\x1e"
    # A letter in front, or a spreadsheet would take some of them for numbers.
    return ["r" + hashlib.sha256((names + row).encode()).hexdigest()[:15] for row in rows]


def read(
    path: Path, table: pandas.DataFrame, labels: Labels, of: Path, known_judges: tuple[str, ...]
) -> Decisions:
    """The decisions in a file about the rows of `table`; those of another table are refused."""
    import pandas

    # As text, since labels may read as numbers here and as text in the table.
    frame = files.read(path, as_text=True).frame
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(
            f"{path} has no column {brief(missing[0])}; expected decisions.csv as the report page "
            "of untuned clean gives it."
        )
    heard = str(frame[JUDGES].iloc[-1]) if JUDGES in frame.columns else ""
    judges = tuple(each for each in heard.split("+") if each in known_judges)
    frame = frame[list(COLUMNS)].drop_duplicates("row", keep="last", ignore_index=True)
    rows = pandas.to_numeric(frame["row"], errors="coerce").to_numpy(float)
    place = {int(row): position for position, row in enumerate(labels.rows)}
    known = [row in place for row in rows]
    if not all(known):
        raise _other_table(path, of, frame["row"].iloc[known.index(False)])
    positions = np.array([place[int(row)] for row in rows], np.int64)
    now = digests(table.iloc[labels.rows[positions]])
    differs = [a != b for a, b in zip(now, frame["digest"], strict=True)]
    if any(differs):
        raise _other_table(path, of, frame["row"].iloc[differs.index(True)])
    strange = ~frame["decision"].isin(KINDS)
    if strange.any():
        raise ValueError(
            f"{path} has the decision {brief(frame['decision'][strange].iloc[0])}; expected one of "
            f"{', '.join(KINDS)}."
        )
    is_unclear = (frame["decision"] == "unclear").to_numpy()
    settled = positions[~is_unclear]
    told = frame["label"][~is_unclear].tolist()
    kept = (frame["decision"][~is_unclear] == "keep").to_numpy()
    values = _as_labels(path, told, np.unique(labels.values), labels.task)
    values = np.where(kept, labels.values[settled], values)
    values = values.astype(labels.values.dtype)
    return Decisions(frame, settled, values, positions[is_unclear], judges)


def _other_table(path: Path, of: Path, row: Any) -> ValueError:
    return ValueError(
        f"{path} is about row {brief(row)} of another table than {of}, or the row has changed "
        "since; expected decisions from a page made from this very table."
    )


def _as_labels(path: Path, told: list[str], known: np.ndarray, task: Task) -> np.ndarray:
    """Labels as the table has them, of the text in the file."""
    if task == "numbers":
        try:
            values = np.array([float(each) for each in told])
        except ValueError as error:
            raise ValueError(f"{path} has a label that is no number: {error}.") from error
        if not np.isfinite(values).all():
            raise ValueError(f"{path} has a label that is not finite; expected numbers.")
        return values
    by_text = {str(each): each for each in known.tolist()}
    respelt = {_respelt(text): each for text, each in by_text.items()}
    if len(respelt) < len(by_text):
        respelt = {}  # classes that a spreadsheet could not tell apart either
    found = [by_text.get(each, respelt.get(_respelt(each))) for each in told]
    strange = [each for each, label in zip(told, found, strict=True) if label is None]
    if strange:
        raise ValueError(
            f"{path} has the label {brief(strange[0])}, which is none of the classes "
            f"{brief(known.tolist())}; expected one of them."
        )
    return np.array(found, known.dtype)


def _respelt(text: str) -> str:
    """The text as spreadsheets leave it alone: TRUE for True, 1 for 1.0, no blanks around it."""
    text = text.strip().casefold()
    try:
        return repr(float(text))
    except ValueError:
        return text
