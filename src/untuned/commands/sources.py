"""What `untuned clean` is given beside a table: features, images in folders, trusted rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from untuned.commands import notes
from untuned.commands.job import Job, Ready, make_ready, make_trusted_ready
from untuned.tables import files, images, labels, patches, row_files, texts
from untuned.tables.columns import Column, Takes
from untuned.tables.files import Table
from untuned.tables.labels import Labels, Task
from untuned.util import progress
from untuned.util.wording import brief

CLASS = "class"  # the column that says in which folder an image is
TAKES = Takes(texts.WORDS_AND_PIECES)
MOST_NAMED = 20  # damaged images


class Asked(NamedTuple):
    """The options of `untuned clean` alone."""

    trusted: Path | None = None
    features: Path | None = None
    probabilities: Path | None = None
    decisions: Path | None = None
    task: Task = "classes"
    disputed: bool = False  # whether labels that judges would not give are suspects as well

    def inputs(self, job: Job) -> list[Path | None]:
        """What is read, but for decisions, which are written again."""
        return [job.train, self.trusted, self.features, self.probabilities]

    def check(self, train: Path) -> None:
        """Refuse options that exclude each other before any file is read."""
        if self.trusted and (self.features or self.probabilities):
            other = "--features" if self.features else "--probabilities"
            raise ValueError(
                f"{other} says nothing of the rows of --trusted; put those rows into {train} and "
                "confirm them by --decisions."
            )
        if self.task == "numbers" and (self.probabilities or train.is_dir()):
            what = "--probabilities are" if self.probabilities else "A folder of images is"
            raise ValueError(f"{what} of classes; leave out --task numbers.")
        if self.task == "numbers" and self.disputed:
            raise ValueError("--disputed is about classes; leave it out, or --task numbers.")


def ready_of(job: Job, train: Path, asked: Asked) -> Ready:
    """The rows to judge, from a table or a folder of images, by their own features or others."""
    if train.is_dir():
        return _of_images(job, train, asked.features)
    if asked.features:
        return with_features(train, job.label, asked.task, asked.features)
    return make_ready(train, job.label, asked.task, TAKES)


def trusted_of(path: Path, job: Job, ready: Ready) -> tuple[Any, np.ndarray]:
    """Features and labels of the trusted rows."""
    if not isinstance(ready.preparation, patches.Dictionary):
        X, given = make_trusted_ready(path, job.label, ready)
        return X, given.values
    if not path.is_dir():
        raise ValueError(
            f"--trusted {path} is no folder; expected images in one folder per class, as in "
            f"{ready.table.path}."
        )
    with progress.busy(f"Reading {path}"):
        found = images.read(path, job.label)
        table = files.made(path, found.frame)
        given = labels.read_trusted(table, job.label, np.unique(ready.y), ready.table)
        return patches.features(found.squares, ready.preparation), given.values


def with_features(path: Path, label: str, task: Task | None, features: Path) -> Ready:
    """A table of which only the label is used, and what the page shows."""
    with progress.busy(f"Reading {path} and {features}"):
        table = files.read(path)
        given = labels.read(table, label, task)
        X = row_files.features(features, len(table.frame), path)[given.rows]
    note = f"{X.shape[1]:,} features of each row come from {features}."
    return beside(table, label, given, X, note)


def _of_images(job: Job, folder: Path, features: Path | None) -> Ready:
    with progress.busy(f"Reading {folder}"):
        found = images.read(folder, job.label)
    table = files.made(folder, found.frame)
    given = labels.read(table, job.label, "classes")
    if features:
        X = row_files.features(features, len(found.frame), folder)
        note = f"{X.shape[1]:,} features of each image come from {features}."
        ready = beside(table, job.label, given, X, note)
    else:
        X, dictionary = patches.of_images(found.squares, job.seed)
        note = (
            f"Images are compared by {len(dictionary.typical)} typical patches of "
            f"{patches.PATCH} x {patches.PATCH} pixels, at {images.SIDE} x {images.SIDE} pixels."
        )
        ready = beside(table, job.label, given, X, note)._replace(preparation=dictionary)
    if found.damaged:
        ready.notes.append(_damaged(found.damaged))
    return ready


def beside(table: Table, label: str, given: Labels, X: Any, note: str) -> Ready:
    """A table from which only the label is learned, and its features, which `note` tells of."""
    others = [name for name in table.frame.columns if name != label]
    shown = [Column(str(name), "left out", "shown, not learned from", 0) for name in others]
    return Ready(table, given, shown, None, None, X, [*notes.about_rows(table, given), note])


def _damaged(names: list[str]) -> str:
    shown = ", ".join(brief(name)[1:-1] for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    many = "s that cannot be read are" if len(names) > 1 else " that cannot be read is"
    return f"{len(names):,} image{many} left out: {shown}{more}."
