"""What the commands on a user's table share: their options, and a prepared table."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from untuned import solvers
from untuned.commands import notes
from untuned.run import check_settings
from untuned.tables import columns, files, labels, pixels
from untuned.tables.columns import Column, Feature, features
from untuned.tables.files import Table
from untuned.tables.labels import Labels, Task
from untuned.tables.records import Selection
from untuned.util import progress
from untuned.util.wording import brief, is_unicode

FARTHEST = 1e9  # of a trusted row's value, in spreads of the training rows
# Writing took .42 to .47 times as long as imports, reading and preparing of 5,000 x 50, on clean,
# regularize and coreset, and more on a busy machine.
WRITING = 0.75
LEAST_SECONDS = 0.1  # for the models, whatever the limit
WIDE, OF_A_COLUMN = 20_000, 0.0009  # columns from which it takes long, and seconds for each


@dataclass(frozen=True)
class Job:
    """The options that every command on a table has."""

    command: str
    train: Path
    label: str
    out: Path
    method: str
    seed: int
    max_seconds: float | None  # of the whole command, writing included
    overwrite: bool
    started: float = field(default_factory=time.perf_counter)

    def check(self) -> None:
        """Refuse impossible options before any file is read."""
        for given in sys.argv[1:]:
            if not is_unicode(given):
                raise ValueError(
                    f"{brief(given)} holds letters that are not UTF-8, which no page or table can "
                    "show; rename the file or folder."
                )
        if self.max_seconds is not None and not 0 < self.max_seconds < float("inf"):
            raise ValueError(
                f"--max-seconds {self.max_seconds:g} is not usable; expected a number above zero, "
                "for example 60."
            )
        solver = solvers.get(self.method)()
        check_settings(solver, 1, self.max_seconds, None, self.seed, None, None)

    def estimator_options(self) -> dict[str, Any]:
        """The options that all our estimators take."""
        return {
            "method": self.method,
            "max_seconds": self._seconds_left(),
            "random_state": self.seed,
            "verbose": progress.is_watched(),
        }

    def _seconds_left(self) -> float | None:
        """What the models may take: not what is gone, nor what writing will take."""
        if self.max_seconds is None:
            return None
        gone = time.perf_counter() - self.started
        left = self.max_seconds - gone * (1 + WRITING)
        if left < LEAST_SECONDS:
            say(
                f"reading and preparing took {gone:.1f} s and writing takes about "
                f"{gone * WRITING:.1f} s, so the command takes longer than --max-seconds "
                f"{self.max_seconds:g}; the models get {LEAST_SECONDS:g} s."
            )
        return max(left, LEAST_SECONDS)


def say(sentence: str) -> None:
    """What to know at once, while a command runs: on standard error."""
    print(f"untuned: {sentence}", file=sys.stderr, flush=True)


class Ready(NamedTuple):
    """A table made ready for a model: the rows that have a label."""

    table: Table
    labels: Labels
    columns: list[Column]
    images: pixels.Images | None  # square pixels in the table's columns
    preparation: Any  # the fitted scikit-learn transformer; None where features were given
    X: Any  # an array, or a CSR matrix where there are texts
    notes: list[str]  # what was done, one sentence each

    @property
    def y(self) -> np.ndarray:
        return self.labels.values

    @property
    def seen(self) -> list[Feature]:
        """What each column of X stands for."""
        return features(self.preparation)

    def rows(self, picked: Any) -> Any:
        """The rows of the user's table for positions in X, as pandas understands them."""
        return self.table.frame.iloc[self.labels.rows[picked]]

    def records(self, picked: Any, front: Any = None) -> Selection:
        """The user's own records for positions in X, with columns of ours in front."""
        ours = None if front is None else marked(front, self.table.frame.columns)
        return Selection(self.table.records, self.labels.rows[picked], ours)


def make_ready(
    path: Path, label: str, task: Task | None, takes: columns.Takes = columns.DENSE
) -> Ready:
    """Read a table, understand its columns, and turn them into numbers."""
    with progress.busy(f"Reading {path}"):
        table = files.read(path)
        given = labels.read(table, label, task)
        wide = len(table.frame.columns)
        if wide >= WIDE:
            say(f"{path} has {wide:,} columns, which take about {wide * OF_A_COLUMN:.0f} s.")
        used = files.of_rows(table, given.rows).drop(columns=label)
        if not len(used.columns):
            raise ValueError(
                f"{path} has no column besides the label {brief(label)}; expected columns to "
                "learn from."
            )
        found = columns.understand(used, path, takes)
        preparation, X = columns.prepared(used, found, takes)
        images = pixels.find(used)
    said = notes.of_table(table, given, found, images, takes)
    return Ready(table, given, found, images, preparation, X, said)


def make_trusted_ready(path: Path, label: str, ready: Ready) -> tuple[Any, Labels]:
    """The trusted rows, prepared as the others were; they must have the same columns."""
    with progress.busy(f"Reading {path}"):
        table = files.read(path)
        if ready.labels.task == "numbers":
            given = labels.read(table, label, "numbers")
        else:
            given = labels.read_trusted(table, label, np.unique(ready.y), ready.table)
        frame = files.of_rows(table, given.rows)
        for column in ready.columns:
            if column.kind != "left out":
                _check_as_in_train(frame, column, path, ready.table.path)
        categories = [each.name for each in ready.columns if each.kind == "categories"]
        frame = frame.assign(**{name: columns.as_categories(frame[name]) for name in categories})
        X = ready.preparation.transform(frame[columns.names_used(ready.columns)])
        _check_range(X, frame, path, ready)
        return X.astype(np.float32), given


def _check_as_in_train(frame: Any, column: Column, path: Path, train: Path) -> None:
    """A column of the trusted rows must be there, of the same kind, and finite."""
    from pandas.api import types

    if column.name not in frame.columns:
        raise ValueError(
            f"{path} has no column {brief(column.name)}, which {train} has; expected the same "
            "columns in both."
        )
    if column.kind == "categories":
        return
    values = frame[column.name]
    if column.kind == "text":
        what, is_alike = "is text", values.dropna().map(lambda v: isinstance(v, str)).all()
    else:
        what = "holds numbers"
        is_alike = types.is_numeric_dtype(values) and not types.is_bool_dtype(values)
    if not is_alike:
        raise ValueError(
            f"Column {brief(column.name)} {what} in {train} and something else in {path}; "
            "expected the same columns in both."
        )
    if column.kind != "text":
        columns.refuse_extremes(values, path)


def _check_range(X: Any, frame: Any, path: Path, ready: Ready) -> None:
    """Refuse a trusted row that is so far from all others that its squares would overflow."""
    far = np.transpose((abs(X) > FARTHEST).nonzero())
    if len(far):
        row, feature = far[0]
        name = ready.seen[feature].column
        raise ValueError(
            f"Column {brief(name)} of {path} has {frame[name].iloc[row]:g} in row "
            f"{frame.index[row]} (counted from 0), more than {FARTHEST:g} times its spread in "
            f"{ready.table.path}; expected the same units in both."
        )


def marked(ours: Any, theirs: Iterable[str]) -> Any:
    """Our columns, marked by as many underscores as it takes for names that the user's lack."""
    mark, names = "_", set(theirs)
    while any(mark + str(name) in names for name in ours.columns):
        mark += "_"
    return ours.add_prefix(mark)


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["untuned", *sys.argv[1:]])
