"""What `untuned regularize` is given: a table or a matrix, and which of its columns go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from untuned.commands import sources
from untuned.commands.job import Job, Ready, make_ready
from untuned.tables import columns, group_files, labels, row_files, texts
from untuned.tables.columns import Column, Feature, Takes
from untuned.tables.labels import Task
from untuned.util import progress

Penalty = Literal["feature", "class", "all"]
Norm = Literal["l2", "l1", "elasticnet"]
TAKES = Takes(texts.WORDS, sparse=True)
MATRICES = (".npz", ".npy")


class Asked(NamedTuple):
    """The options of `untuned regularize` alone."""

    penalty: Penalty | None = None
    norm: Norm = "l2"
    groups: Path | None = None
    features: Path | None = None
    task: Task | None = None

    def inputs(self, job: Job) -> list[Path | None]:
        """What is read."""
        labels = Path(job.label) if job.train.suffix in MATRICES else None
        return [job.train, self.features, self.groups, labels]

    def check(self, train: Path) -> None:
        """Refuse options that exclude each other before any file is read."""
        if self.groups and self.penalty:
            raise ValueError(
                f"--groups says which columns share a strength, and so does --penalty "
                f"{self.penalty}; give one of them."
            )
        if self.features and train.suffix in MATRICES:
            raise ValueError(
                f"{train} is a matrix and so is --features; give a table with the labels, or the "
                "labels by --label."
            )


class Design(NamedTuple):
    """Rows to fit: X of the columns that are not zero throughout, and who shares a strength."""

    ready: Ready
    X: Any
    used: np.ndarray  # which columns of `ready.X` these are
    seen: list[Feature]  # what each of them is
    penalty: Any  # as the estimators take it
    shared_by: str  # "feature", "class", "all" or "group"

    def widened(self, coef: np.ndarray) -> np.ndarray:
        """Coefficients (columns, features) for all columns of `ready.X`."""
        wide = np.zeros((len(coef), self.ready.X.shape[1]))
        wide[:, self.used] = coef
        return wide


def design_of(job: Job, asked: Asked) -> Design:
    """What is given, read and checked."""
    ready = _ready(job, asked)
    if asked.penalty == "class" and ready.labels.task == "numbers":
        raise ValueError(
            f"--penalty class needs classes and {job.label!r} holds numbers; give feature or all."
        )
    used = np.arange(ready.X.shape[1])
    if sparse.issparse(ready.X):
        ready.X.eliminate_zeros()
        used = np.flatnonzero(ready.X.getnnz(axis=0))
    if not len(used):
        raise ValueError(
            f"{asked.features or job.train} is zero in every row and column; expected numbers to "
            "learn from."
        )
    seen = _seen(ready)
    seen = [seen[place] for place in used]
    ready.notes.extend(_about_zeros(ready, used))
    shared_by: str = asked.penalty or "feature"
    penalty: Any = shared_by
    if asked.groups:
        shared_by = "group"
        there = ready.columns
        if ready.preparation is None:
            there = [Column(each.column, "numbers", "", 0) for each in seen]
            gone = sorted(set(range(ready.X.shape[1])) - set(used.tolist()))
            there += [Column(str(k), "left out", "zero in every row", 0) for k in gone]
        of_column = group_files.read(asked.groups, there, asked.features or job.train)
        penalty = [of_column[each.column] for each in seen]
    elif penalty == "feature":
        penalty = [each.column for each in seen]
    return Design(ready, ready.X[:, used], used, seen, penalty, shared_by)


def _ready(job: Job, asked: Asked) -> Ready:
    if asked.features:
        return sources.with_features(job.train, job.label, asked.task, asked.features)
    if job.train.suffix not in MATRICES:
        return make_ready(job.train, job.label, asked.task, TAKES)
    with progress.busy(f"Reading {job.train}"):
        X, table, column = row_files.matrix(job.train, job.label)
        given = labels.read(table, column, asked.task)
    table = table._replace(path=job.train, format="csv")
    note = f"{X.shape[1]:,} features of each row come from {job.train}."
    return sources.beside(table, column, given, X[given.rows], note)


def _seen(ready: Ready) -> list[Feature]:
    """What each column of X is; words by their names, and those of a matrix by their numbers."""
    if ready.preparation is None:
        return [Feature(str(place), str(place)) for place in range(ready.X.shape[1])]
    seen = ready.seen
    for name, (step, start) in columns.prose(ready.preparation).items():
        words = texts.named(ready.table.frame[name].iloc[ready.labels.rows], step)
        seen[start : start + len(words)] = [Feature(f"{name}: {word}", name) for word in words]
    return seen


def _about_zeros(ready: Ready, used: np.ndarray) -> list[str]:
    """Sentences on columns and rows of a matrix without an entry."""
    if not sparse.issparse(ready.X):
        return []
    notes = []
    unused = ready.X.shape[1] - len(used)
    if unused and ready.preparation is None:
        notes.append(f"{unused:,} columns are zero in every row and have no coefficient.")
    rows = int((ready.X.getnnz(axis=1) == 0).sum())
    if rows:
        notes.append(f"{rows:,} rows are zero in every column: the model knows only their label.")
    return notes
