"""The label column: classes, or numbers to predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from untuned.tables.files import Table
from untuned.util.limits import LARGEST
from untuned.util.wording import brief, unknown

if TYPE_CHECKING:
    import pandas

# Where the task is not given: more different whole numbers than this are a quantity, not classes.
MOST_NUMBERED_CLASSES = 20
UNSURE = 2**53  # from here on a float does not tell neighbouring whole numbers apart

Task = Literal["classes", "numbers"]


class Labels(NamedTuple):
    """The labels of the rows that have one."""

    values: np.ndarray
    rows: np.ndarray  # which rows of the file they belong to, counted from 0
    task: Task


def read(table: Table, name: str, task: Task | None) -> Labels:
    """The labels in column `name`; `task=None` tells classes from numbers by their values."""
    if name not in table.frame.columns:
        raise unknown(f"column in {table.path} called", name, table.frame.columns)
    column = table.frame[name]
    rows = _labelled(column)
    if not len(rows):
        raise ValueError(
            f"All labels in column {brief(name)} of {table.path} are missing; name another column "
            "with --label."
        )
    values = _as_numbers_or_text(column.iloc[rows])
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
    return Labels(values, rows, task)


def read_trusted(table: Table, name: str, classes: np.ndarray, train: Table) -> Labels:
    """The labels of the trusted rows, which must be among the classes of the others."""
    if name not in table.frame.columns:
        raise unknown(f"column in {table.path} called", name, table.frame.columns)
    column = table.frame[name]
    rows = _labelled(column)
    values = _as_numbers_or_text(column.iloc[rows])
    if classes.dtype == object and values.dtype != object:
        values = values.astype(str).astype(object)  # a file whose class names are all numbers
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


def _labelled(column: pandas.Series) -> np.ndarray:
    """The rows that have a label; blanks are none."""
    is_blank = column.map(lambda cell: isinstance(cell, str) and not cell.strip()).astype(bool)
    return np.flatnonzero(column.notna() & ~is_blank)


def _as_numbers_or_text(column: pandas.Series) -> np.ndarray:
    """Whole numbers where all are whole (a missing one makes a column float), else text.

    Nobody sees blanks around a text, so they make no class of their own.
    """
    from pandas.api import types

    if types.is_bool_dtype(column) or not types.is_numeric_dtype(column):
        return column.astype(str).str.strip().to_numpy(dtype=object)
    values: Any = column.to_numpy(dtype=np.float64)
    are_whole = (values == np.round(values)) & (np.abs(values) < UNSURE)
    return values.astype(np.int64) if are_whole.all() else values


def corrected(
    column: pandas.Series, given: Labels, rows: np.ndarray, values: np.ndarray
) -> pandas.Series:
    """The label column with other labels in some rows of the file, in its own type if it can be."""
    column = column.copy()
    if given.task == "classes":
        # Values are text or whole numbers; the cells may be yes/no, categories or dates, or have
        # blanks around them, which no other row should get.
        own: dict[Any, Any] = {}
        for label, cell in zip(given.values.tolist(), column.iloc[given.rows], strict=True):
            if label not in own or cell == label:
                own[label] = cell
        changes = [own[value] for value in values.tolist()]
    else:
        changes = values.tolist()
        if column.dtype != np.int64 or any(value != round(value) for value in changes):
            column = column.astype(np.float64)
    for row, value in zip(rows, changes, strict=True):
        column.iloc[row] = value
    return column
