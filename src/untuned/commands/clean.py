"""`untuned clean`: which labels of a table, or of images in folders, are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from untuned.commands import evidence, record, saved_model, sources, verdicts
from untuned.commands.job import Job, Ready
from untuned.commands.sources import Asked
from untuned.commands.verdicts import Verdicts
from untuned.report.clean_page import lead
from untuned.report.run_page import how_it_ended
from untuned.tables import decisions, images, labels, patches, row_files
from untuned.tables.decisions import Decisions
from untuned.tables.records import Selection
from untuned.util import folder

PLAIN = Asked()


class Cleaned(NamedTuple):
    """What was judged, the verdicts, and the numbers to report."""

    ready: Ready
    found: Verdicts
    decided: Decisions | None
    summary: dict[str, Any]


def clean(job: Job, asked: Asked = PLAIN) -> str:
    """Find the labels that look wrong, write the folder, and give the summary."""
    job.check()
    asked.check(job.train)
    with folder.written_whole(job.out, job.overwrite, asked.inputs(job)) as target:
        done = fit(job, job.train, asked)
        write(target, job, done, asked)
    return words(done, job)


def fit(job: Job, train: Path, asked: Asked) -> Cleaned:
    """Read what is given and judge every label."""
    ready = sources.ready_of(job, train, asked)
    X, y = ready.X, ready.y
    trusted: tuple[Any, Any] = (None, None)
    if asked.trusted is not None:
        trusted = sources.trusted_of(asked.trusted, job, ready)
    probabilities = None
    if asked.probabilities is not None:
        from untuned.estimators.cleaning.labelled_rows import check_unseen

        classes, given = np.unique(y, return_inverse=True)
        whole = row_files.probabilities(asked.probabilities, len(ready.table.frame), train, classes)
        probabilities = whole[ready.labels.rows]
        check_unseen(probabilities, given, f"--probabilities {asked.probabilities}")
    decided = None
    if asked.decisions is not None:
        decided = decisions.read(
            asked.decisions, ready.table.frame, ready.labels, train, verdicts.NAMES
        )
        found = verdicts.with_decisions(job, X, y, trusted, probabilities, decided, asked.disputed)
    elif asked.task == "numbers":
        found = verdicts.of_numbers(job, X, y, *trusted)
    else:
        found = verdicts.of_classes(job, X, y, *trusted, probabilities, disputed=asked.disputed)
    if found.is_cut:
        ready.notes.extend(how_it_ended("max_seconds", ""))
    return Cleaned(ready, found, decided, _summary(ready, found, decided, trusted[1]))


def _summary(
    ready: Ready, found: Verdicts, decided: Decisions | None, y_trusted: Any
) -> dict[str, Any]:
    settled = 0 if decided is None else len(decided.settled)
    suspects = len(found.issues)
    disputed = found.issues if found.disputed is None else found.disputed
    trusted = settled + (0 if y_trusted is None else len(y_trusted))
    summary = {
        "rows": len(ready.y),
        "trusted_rows": trusted,
        "suspect_labels": suspects,
        "share_of_rows": suspects / len(ready.y),
        "noise_rate_estimate": found.noise_rate,
        "noise_range": found.noise_range,
        "more_disputed_labels": len(np.setdiff1d(disputed, found.issues)),
        "doubt": found.doubt,
        "judges": found.model_weights,
        "worth_asking_again": verdicts.worth_training(found.model_weights),
    }
    if decided is not None:
        changed = decided.values != ready.y[decided.settled]
        summary |= {
            "confirmed_labels": int((~changed).sum()),
            "corrected_labels": int(changed.sum()),
            "unclear_labels": len(decided.unclear),
        }
    if ready.labels.task == "classes":
        classes, counts = np.unique(ready.y, return_counts=True)
        summary["classes"] = dict(zip(classes.tolist(), counts.tolist(), strict=True))
    return summary


def model_of(found: Verdicts) -> Any:
    """The linear model of the labels believed, as plain scikit-learn; None where there is none."""
    if found.coef is None:
        return None
    if found.classes is None:
        return saved_model.regressor(found.coef, found.intercept)
    return saved_model.classifier(found.coef, found.intercept, found.classes)


def write(target: Path, job: Job, done: Cleaned, asked: Asked) -> None:
    """Write the model, the tables and the page."""
    preparation = done.ready.preparation
    if isinstance(preparation, patches.Dictionary):
        patches.save(target / "dictionary.npz", preparation)
        preparation = None
    model = model_of(done.found)
    if model is not None:
        saved_model.save(target, preparation, model)
    record.write(
        target,
        job,
        done.ready,
        done.found.result,
        summary=done.summary,
        tables=_tables(done, job.label),
        settings={
            name: str(value) if isinstance(value, Path) else value
            for name, value in asked._asdict().items()
        },
    )


def _tables(done: Cleaned, label: str) -> dict[str, Any]:
    """Every row's verdict; the suspects in full, worst first; the table without them."""
    import pandas

    ready, found, worst = done.ready, done.found, done.found.issues
    is_suspect = np.zeros(len(ready.y), bool)
    is_suspect[worst] = True
    lines = pandas.DataFrame(
        {
            "row": ready.labels.rows,
            "quality": found.quality,
            "given_label": ready.y,
            "suggested_label": found.suggested,
            "weight": found.weights,
            "suspect": is_suspect,
        }
    )
    rows = ready.rows(worst)
    ours = lines.iloc[worst].drop(columns="suspect").assign(digest=decisions.digests(rows))
    if found.disputed is not None:
        lines["disputed"] = np.isin(np.arange(len(lines)), found.disputed)
    if found.spread is not None:
        ours = ours.assign(spread=found.spread[worst])
    tables = {
        "rows": lines,
        "suspects": ready.records(worst, ours),
        "evidence": evidence.of_suspects(ready, found),
        "cleaned": _cleaned(done, label),
    }
    if done.decided is not None:
        tables["decisions"] = done.decided.frame
    if ready.table.path.is_dir():
        tables["thumbnails"] = images.thumbnails(ready.table.path, rows["image"])
    return tables


def _cleaned(done: Cleaned, label: str) -> Selection:
    """The table without its suspects, and with the labels that were corrected."""
    table, given, decided = done.ready.table, done.ready.labels, done.decided
    rows = np.delete(np.arange(len(table.frame)), given.rows[done.found.issues])
    if decided is None:
        return Selection(table.records, rows)
    changed = decided.values != given.values[decided.settled]
    corrected = labels.corrections(
        table, label, given, given.rows[decided.settled[changed]], decided.values[changed]
    )
    return Selection(table.records, rows, corrections=corrected)


def words(done: Cleaned, job: Job) -> str:
    """The summary that is printed."""
    kind, unlabelled = done.ready.table.format, len(done.ready.table.frame) - len(done.ready.y)
    beside = f" (it keeps the {unlabelled:,} without a label)" if unlabelled else ""
    written = {
        "Suspect rows, worst first": f"suspects.{kind}",
        "The table without them": f"cleaned.{kind}{beside}",
    }
    return record.words(job, done.ready, done.found.result, lead(done.summary), written)
