"""`untuned clean`: which labels of a table are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from untuned.commands import record, saved_model
from untuned.commands.job import Job, Ready, in_front, make_ready, make_trusted_ready
from untuned.report.run_page import how_it_ended
from untuned.util import folder


class Cleaned(NamedTuple):
    """A table, the cleaner fitted to it, and the numbers to report."""

    ready: Ready
    cleaner: Any
    summary: dict[str, Any]


def clean(job: Job, trusted: Path | None) -> str:
    """Find the labels that look wrong, write the folder, and give the summary."""
    job.check()
    with folder.written_whole(job.out, job.overwrite) as target:
        done = fit(job, job.train, trusted)
        write(target, job, done, trusted)
    return words(done, job)


def fit(job: Job, train: Path, trusted: Path | None) -> Cleaned:
    """Read the tables and fit a cleaner."""
    ready = make_ready(train, job.label, "classes")
    X_trusted, y_trusted = None, None
    if trusted is not None:
        X_trusted, labels = make_trusted_ready(trusted, job.label, ready)
        y_trusted = labels.values
    from untuned.estimators import LabelCleaner

    cleaner: Any = LabelCleaner(**job.estimator_options())
    cleaner.fit(ready.X, ready.y, X_trusted=X_trusted, y_trusted=y_trusted)
    suspects = len(cleaner.issues_)
    classes, counts = np.unique(ready.y, return_counts=True)
    summary = {
        "rows": len(ready.y),
        "trusted_rows": 0 if y_trusted is None else len(y_trusted),
        "suspect_labels": suspects,
        "share_of_rows": suspects / len(ready.y),
        "noise_rate_estimate": float(cleaner.noise_rate_),
        "classes": dict(zip(classes.tolist(), counts.tolist(), strict=True)),
    }
    return Cleaned(ready, cleaner, summary)


def model_of(cleaner: Any) -> Any:
    """The cleaned model as plain scikit-learn."""
    return saved_model.classifier(cleaner.coef_, cleaner.intercept_, cleaner.classes_)


def write(target: Path, job: Job, done: Cleaned, trusted: Path | None) -> None:
    """Write the model, the tables and the page."""
    saved_model.save(target, done.ready.preparation, model_of(done.cleaner))
    record.write(
        target,
        job,
        done.ready,
        done.cleaner.result_,
        summary=done.summary,
        tables=_tables(done.cleaner, done.ready),
        settings={"trusted": trusted and str(trusted)},
    )


def _tables(cleaner: Any, ready: Ready) -> dict[str, Any]:
    """Every row's verdict; the suspects in full, worst first; the table without them."""
    import pandas

    is_suspect = np.zeros(len(ready.y), bool)
    is_suspect[cleaner.issues_] = True
    verdicts = pandas.DataFrame(
        {
            "row": ready.labels.rows,
            "quality": np.asarray(cleaner.quality_, np.float64),
            "given_label": ready.y,
            "suggested_label": cleaner.suggested_,
            "weight": np.asarray(cleaner.weights_, np.float64),
            "suspect": is_suspect,
        }
    )
    worst = np.asarray(cleaner.issues_, np.int64)
    return {
        "rows": verdicts,
        "suspects": in_front(verdicts.iloc[worst].drop(columns="suspect"), ready.rows(worst)),
        "cleaned": ready.rows(np.flatnonzero(~is_suspect)),
    }


def words(done: Cleaned, job: Job) -> str:
    """The summary that is printed."""
    summary, kind, result = done.summary, done.ready.table.format, done.cleaner.result_
    against = (
        f"against {summary['trusted_rows']:,} trusted rows"
        if summary["trusted_rows"]
        else "by cross-fitting, since no trusted rows were given"
    )
    return "\n".join(
        [
            f"{summary['suspect_labels']:,} of {summary['rows']:,} labels look wrong "
            f"({summary['share_of_rows']:.1%}), judged {against}.",
            *done.ready.notes,
            *how_it_ended(result.status, result.message),
            f"Suspect rows, worst first: {job.out / f'suspects.{kind}'}",
            f"The table without them: {job.out / f'cleaned.{kind}'}",
            f"Report: {job.out / 'report.html'}",
        ]
    )
