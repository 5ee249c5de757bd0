"""`untuned regularize`: a linear model with a penalty strength per feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.commands import record, saved_model
from untuned.commands.job import Job, Ready, in_front, make_ready
from untuned.report.regularize_page import strengths_in_words
from untuned.report.run_page import how_it_ended
from untuned.run.result import Result
from untuned.tables.labels import Task
from untuned.util import folder


def regularize(job: Job, penalty: str, task: Task | None) -> str:
    """Fit the model and its strengths, write the folder, and give the summary."""
    job.check()
    with folder.written_whole(job.out, job.overwrite) as target:
        ready = make_ready(job.train, job.label, task)
        if penalty == "class" and ready.labels.task == "numbers":
            raise ValueError(
                f"--penalty class needs classes and {job.label!r} holds numbers; give feature or "
                "all."
            )
        fitted = _fit(job, ready, penalty)
        if ready.labels.task == "classes":
            model = saved_model.classifier(fitted.coef_, fitted.intercept_, fitted.classes_)
        else:
            model = saved_model.regressor(fitted.coef_, fitted.intercept_)
        saved_model.save(target, ready.preparation, model)
        summary = _summary(fitted, ready)
        record.write(
            target,
            job,
            ready,
            fitted.result_,
            summary=summary,
            tables={
                "strengths": _strengths(fitted, ready, penalty),
                "coefficients": _coefficients(fitted, ready),
            },
            settings={"penalty": penalty},
        )
    return _words(summary, job, ready, fitted.result_)


def _groups(ready: Ready, penalty: str) -> Any:
    """What the estimator is told; a feature is a column of the table, with all its categories."""
    return [each.column for each in ready.seen] if penalty == "feature" else penalty


def _fit(job: Job, ready: Ready, penalty: str) -> Any:
    from untuned.estimators import BilevelLogisticRegression, BilevelRidge

    kind: Any = BilevelLogisticRegression if ready.labels.task == "classes" else BilevelRidge
    estimator = kind(penalty=_groups(ready, penalty), **job.estimator_options())
    return estimator.fit(ready.X, ready.y)


def _strengths(fitted: Any, ready: Ready, penalty: str) -> Any:
    """One line per strength, weakest penalty first: those are the features that matter."""
    import pandas

    sizes = np.abs(np.atleast_2d(fitted.coef_))
    names = [str(each) for each in fitted.groups_]
    if penalty == "feature":
        owners = np.array([names.index(each.column) for each in ready.seen])
        largest = [sizes[:, owners == place].max() for place in range(len(names))]
    elif len(names) == len(sizes):  # one row of coefficients per class
        largest = sizes.max(axis=1).tolist()
    else:
        largest = [sizes.max()] * len(names)
    frame = pandas.DataFrame(
        {penalty: names, "strength": fitted.regularization_, "largest_coefficient": largest}
    )
    return frame.sort_values("strength", kind="stable", ignore_index=True)


def _coefficients(fitted: Any, ready: Ready) -> Any:
    import pandas

    rows = np.atleast_2d(fitted.coef_)
    if ready.labels.task == "numbers":
        names = ["coefficient"]
    else:
        classes = [str(each) for each in fitted.classes_]
        names = classes if len(rows) == len(classes) else [classes[-1]]
    front = pandas.DataFrame({"feature": [each.name for each in ready.seen]})
    return in_front(front, pandas.DataFrame(dict(zip(names, rows, strict=True))))


def _summary(fitted: Any, ready: Ready) -> dict[str, Any]:
    outer = fitted.result_.history["outer"]
    strengths = np.ravel(fitted.regularization_)
    return {
        "rows": len(ready.y),
        "features": ready.X.shape[1],
        "strengths": len(strengths),
        "smallest_strength": float(strengths.min()),
        "largest_strength": float(strengths.max()),
        "outer_loss_first": float(outer[0]),
        "outer_loss_last": float(outer[-1]),
    }


def _words(summary: dict[str, Any], job: Job, ready: Ready, result: Result) -> str:
    what = "classes" if ready.labels.task == "classes" else "numbers"
    return "\n".join(
        [
            f"A model of {what} in {job.label!r} from {summary['rows']:,} rows.",
            strengths_in_words(summary),
            *ready.notes,
            *how_it_ended(result.status, result.message),
            f"Strengths, weakest penalty first: {job.out / f'strengths.{ready.table.format}'}",
            f"Model: {job.out / saved_model.FILE}",
            f"Report: {job.out / 'report.html'}",
        ]
    )
