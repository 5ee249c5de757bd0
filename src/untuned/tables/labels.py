"""The label column: classes, or numbers to predict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from untuned.tables.files import UNSURE, Table
from untuned.tables.records import Corrections
from untuned.util.limits import LARGEST
from untuned.util.wording import brief, unknown

if TYPE_CHECKING:
    import pandas

# Where the task is not given: more different whole numbers than this are a quantity, not classes.
MOST_NUMBERED_CLASSES = 20
LONGEST = 18  # digits of a number that 64 bits hold

Task = Literal["classes", "numbers"]


class Labels(NamedTuple):
    """The labels of the rows that have one."""

    values: np.ndarray
    rows: np.ndarray  # which rows of the file they belong to, counted from 0
    task: Task
    note: str = ""  # a sentence on words such as NA, which may be a class or stand for no label


class Cells(NamedTuple):
    """The label column as it is in the file."""

    cells: pandas.Series
    guessed: pandas.Series  # the same as pandas understands it
    blank: np.ndarray  # which cells are empty, or have nothing but blanks
    words: np.ndarray  # which cells hold a word such as NA, that often stands for a missing value

    @property
    def are_numbers(self) -> bool:
        """Whether all cells are numbers, but for those that are blank or hold such words."""
        from pandas.api import types

        return types.is_numeric_dtype(self.guessed) and not types.is_bool_dtype(self.guessed)


def read(table: Table, name: str, task: Task | None) -> Labels:
    """The labels in column `name`; `task=None` tells classes from numbers by their values."""
    column = _cells(table, name)
    is_class, note = _words_are_a_class(table, name, column, task)
    rows = np.flatnonzero(~column.blank & (is_class | ~column.words))
    if not len(rows):
        raise ValueError(
            f"All labels in column {brief(name)} of {table.path} are missing; name another column "
            "with --label."
        )
    values = _values(column, rows, task)
    is_text = values.dtype == object
    distinct = len(np.unique(values))
    if task is None:
        is_quantity = not is_text and (distinct > MOST_NUMBERED_CLASSES or values.dtype.kind == "f")
        task = "numbers" if is_quantity else "classes"
    where = f"Label column {brief(name)} of {table.path}"
    largest = 0.0 if is_text else np.abs(values.astype(np.float64)).max()
    if not largest <= LARGEST:
        raise ValueError(f"{where} holds {largest:g}; expected finite numbers below {LARGEST:g}.")
    if task == "numbers":
        if is_text:
            raise ValueError(f"{where} holds text such as {brief(values[0])}; expected numbers.")
        values = values.astype(np.float64)
    elif values.dtype.kind == "f":
        strange = values[(values != np.round(values)) | (np.abs(values) >= UNSURE)][0]
        below = f" below {UNSURE:,}" if strange == np.round(strange) else ""
        raise ValueError(
            f"{where} holds numbers such as {strange:g}; expected classes, that is text or whole "
            f"numbers{below}, or --task numbers, which untuned clean and regularize have."
        )
    elif distinct > len(rows) / 2:
        raise ValueError(
            f"{where} has {distinct:,} classes in {len(rows):,} rows; expected at least two rows "
            "per class."
        )
    if distinct == 1:
        raise ValueError(
            f"{where} has only one value, {brief(values.tolist()[0])}; expected at least two "
            "different ones."
        )
    return Labels(values, rows, task, note)


def read_trusted(table: Table, name: str, classes: np.ndarray, train: Table) -> Labels:
    """The labels of the trusted rows, which must be among the classes of the others."""
    column = _cells(table, name)
    known = [isinstance(each, str) and each.strip() in classes for each in column.cells]
    rows = np.flatnonzero(~column.blank & (~column.words | np.array(known)))
    if classes.dtype == object:
        values = _as_text(column.cells.iloc[rows])
    else:
        values = _values(column, rows, "classes")
    strange = sorted(set(values.tolist()) - set(classes.tolist()), key=str)
    if strange:
        raise ValueError(
            f"{table.path} has the class {brief(strange[0])}, which {train.path} does not have; "
            f"expected classes among {brief(classes.tolist())}."
        )
    if len(rows) < len(classes):
        raise ValueError(
            f"{table.path} has {len(rows):,} labelled rows, fewer than the {len(classes)} classes; "
            "expected at least one trusted row of each class."
        )
    return Labels(values, rows, "classes")


def _cells(table: Table, name: str) -> Cells:
    """The label column, if there is one."""
    if name not in table.frame.columns:
        raise unknown(f"column in {table.path} called", name, table.frame.columns)
    guessed = table.frame[name]
    cells = table.records.cells(list(table.frame.columns).index(name))
    is_text = cells.map(lambda cell: isinstance(cell, str)).to_numpy(bool)
    is_blank = cells.map(lambda cell: isinstance(cell, str) and not cell.strip()).to_numpy(bool)
    missing = guessed.isna().to_numpy(bool)
    # Null in a Parquet file is no text, and so no word.
    return Cells(cells, guessed, is_blank | (missing & ~is_text), missing & is_text & ~is_blank)


def _words_are_a_class(
    table: Table, name: str, column: Cells, task: Task | None
) -> tuple[bool, str]:
    """Whether words such as NA are a class, and a sentence on it.

    They are one beside empty cells, which show how the file says that there is no label. Without
    empty cells they are one unless a column of numbers, this or another, has such a word as well.
    """
    if not column.words.any():
        return False, ""
    rows = np.flatnonzero(column.words)
    word, count = brief(column.cells.iloc[rows[0]].strip()), len(rows)
    where = f"{count:,} row{'s' if count > 1 else ''} with the label {word}"
    beside = column.are_numbers and (task != "classes" or not column.blank.any())
    other = name if beside else ""
    if not beside and not column.blank.any():
        other = _with_words(table, set(column.cells.iloc[rows].str.strip()), name)
    if other:
        return False, (
            f"{where} count as rows without a label, since such a word stands among the numbers of "
            f"{brief(other, 40)}; if it is a class, give it another name."
        )
    return True, f"{where} are a class of their own; if there is no label, leave the cells empty."


def _with_words(table: Table, words: set[str], label: str) -> str:
    """The first column of numbers that has one of these words for a missing number."""
    for place, name in enumerate(table.frame.columns):
        values = table.frame[name]
        if name != label and values.dtype.kind == "f" and values.hasnans:
            cells = table.records.cells(place)[values.isna().to_numpy()]
            if cells.map(lambda cell: isinstance(cell, str) and cell.strip() in words).any():
                return str(name)
    return ""


def _as_text(cells: pandas.Series) -> np.ndarray:
    """Nobody sees blanks around a text, so they make no class of their own."""
    return cells.astype(str).str.strip().to_numpy(dtype=object)


def _values(column: Cells, rows: np.ndarray, task: Task | None) -> np.ndarray:
    """Whole numbers where all are whole and written without leading zeros, else text.

    What a class is called must not change: 001 is not 1.
    """
    from pandas.api import types

    cells, guessed = column.cells.iloc[rows], column.guessed.iloc[rows]
    if not column.are_numbers or guessed.isna().any():
        return _as_text(cells)
    if isinstance(cells.iloc[0], str):  # of a CSV file
        texts = set(_as_text(cells))
        are_plain = all(re.fullmatch("-?[0-9]+", text) for text in texts)
        are_long = are_plain and max(map(len, texts)) > LONGEST
        if (are_long and task == "classes") or (
            task != "numbers" and any(re.match("[-+]?0[0-9]", text) for text in texts)
        ):
            return _as_text(cells)
        are_plain &= not are_long
    else:
        are_plain = types.is_integer_dtype(cells)
    if are_plain:  # by way of floats, which a missing cell makes of them, long ones would change
        return np.array([int(each) for each in cells])
    values: Any = guessed.to_numpy(dtype=np.float64)
    are_whole = (values == np.round(values)) & (np.abs(values) < UNSURE)
    return values.astype(np.int64) if are_whole.all() else values


def corrections(
    table: Table, name: str, given: Labels, rows: np.ndarray, values: np.ndarray
) -> Corrections:
    """New labels for some rows of the file, each written as it is written in another row."""
    place = list(table.frame.columns).index(name)
    changes = list(zip(rows.tolist(), values.tolist(), strict=True))
    if given.task == "numbers":
        return Corrections(place, {}, dict(changes))
    # A cell may be yes/no, a category or a date, or have blanks, which no other row should get.
    own: dict[Any, int] = {}
    cells = table.records.cells(place).iloc[given.rows]
    for label, cell, row in zip(given.values.tolist(), cells, given.rows.tolist(), strict=True):
        if label not in own or cell == label:
            own[label] = row
    return Corrections(place, {row: own[value] for row, value in changes}, {})
