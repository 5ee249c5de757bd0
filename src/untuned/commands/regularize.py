"""`untuned regularize`: a linear model with a penalty strength per feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.commands import designs, record, saved_model
from untuned.commands.designs import Asked, Design
from untuned.commands.job import Job, marked
from untuned.report.regularize_page import strengths_in_words
from untuned.util import folder

PLAIN = Asked()
MOST_DRAWN = 40  # lines of a chart


def regularize(job: Job, asked: Asked = PLAIN) -> str:
    """Fit the model and its strengths, write the folder, and give the summary."""
    job.check()
    asked.check(job.train)
    with folder.written_whole(job.out, job.overwrite, asked.inputs(job)) as target:
        design = designs.design_of(job, asked)
        fitted = _fit(job, asked, design)
        saved_model.save(target, design.ready.preparation, _plain_model(fitted, design))
        summary = _summary(fitted, design)
        record.write(
            target,
            job,
            design.ready,
            fitted.result_,
            summary=summary,
            tables={
                "strengths": _strengths(fitted, design),
                "coefficients": _coefficients(fitted, design),
                **_path(fitted, design),
            },
            settings={
                "penalty": design.shared_by,
                "norm": asked.norm,
                "groups": asked.groups and str(asked.groups),
                "features": asked.features and str(asked.features),
            },
        )
    said = [
        f"A model of {design.ready.labels.task} in {job.label!r} from {summary['rows']:,} rows.",
        strengths_in_words(summary),
    ]
    written = {
        "Strengths, weakest penalty first": f"strengths.{design.ready.table.format}",
        "Model": saved_model.FILE,
    }
    return record.words(job, design.ready, fitted.result_, said, written)


def _fit(job: Job, asked: Asked, design: Design) -> Any:
    from untuned import estimators

    options = job.estimator_options() | {"penalty": design.penalty}
    if design.ready.labels.task == "classes":
        estimator: Any = estimators.BilevelLogisticRegression(norm=asked.norm, **options)
    else:
        kinds = {
            "l2": estimators.BilevelRidge, "l1": estimators.BilevelLasso,
            "elasticnet": estimators.BilevelElasticNet,
        }  # fmt: skip
        estimator = kinds[asked.norm](**options)
    return estimator.fit(design.X, design.ready.y)


def _plain_model(fitted: Any, design: Design) -> Any:
    coef = design.widened(np.atleast_2d(fitted.coef_))
    if design.ready.labels.task == "classes":
        return saved_model.classifier(coef, fitted.intercept_, fitted.classes_)
    return saved_model.regressor(coef[0], fitted.intercept_)


def _strengths(fitted: Any, design: Design) -> Any:
    """One line per strength, weakest penalty first: those are the features that matter."""
    import pandas

    sizes = np.abs(np.atleast_2d(fitted.coef_))
    names = [str(each) for each in fitted.groups_]
    largest: Any
    if design.shared_by in ("feature", "group"):
        places = {name: place for place, name in enumerate(names)}
        largest = np.zeros(len(names))
        np.maximum.at(largest, [places[name] for name in design.penalty], sizes.max(axis=0))
    elif len(names) == len(sizes):  # one row of coefficients per class
        largest = sizes.max(axis=1).tolist()
    else:
        largest = [sizes.max()] * len(names)
    frame = pandas.DataFrame(
        {
            design.shared_by: names,
            "strength": fitted.regularization_,
            "largest_coefficient": largest,
        }
    )
    return frame.sort_values("strength", kind="stable", ignore_index=True)


def _coefficients(fitted: Any, design: Design) -> Any:
    import pandas

    rows = np.atleast_2d(fitted.coef_)
    if design.ready.labels.task == "numbers":
        names = ["coefficient"]
    else:
        classes = [str(each) for each in fitted.classes_]
        names = classes if len(rows) == len(classes) else [classes[-1]]
    front = pandas.DataFrame({"feature": [each.name for each in design.seen]})
    return marked(front, names).join(pandas.DataFrame(dict(zip(names, rows, strict=True))))


def _path(fitted: Any, design: Design) -> dict[str, Any]:
    """What the search saw: losses along one strength, coefficients there, features as they enter,
    and the strengths after each step."""
    import pandas

    path, names = fitted.path_, np.array([each.name for each in design.seen], object)
    order, weakest = path.order(), path.weakest()[:MOST_DRAWN]
    entered = path.entered()[order]
    drawn = order[:MOST_DRAWN]
    lines = pandas.DataFrame(path.coef[:, drawn], index=path.strengths)
    steps = pandas.DataFrame(path.found[:, weakest])
    groups = np.array([str(each) for each in fitted.groups_], object)[weakest]
    return {
        "path": pandas.DataFrame(
            {"strength": path.strengths, "loss": path.loss, "standard_error": path.error}
        ),
        "lines": _long(lines, "strength", "feature", names[drawn], "coefficient"),
        "entered": pandas.DataFrame({"feature": names[order], "strength": entered})[entered > 0],
        "search": _long(steps, "step", design.shared_by, groups, "strength"),
    }


def _long(frame: Any, index: str, column: str, names: Any, value: str) -> Any:
    """One line per entry, column after column; names may repeat."""
    import pandas

    return pandas.DataFrame(
        {
            column: np.repeat(names, len(frame)),
            index: np.tile(frame.index.to_numpy(), len(names)),
            value: frame.to_numpy().T.ravel(),
        }
    )


def _summary(fitted: Any, design: Design) -> dict[str, Any]:
    outer = fitted.result_.history["outer"]
    strengths = np.ravel(fitted.regularization_)
    return {
        "rows": len(design.ready.y),
        "features": len(design.used),
        "features_in_the_model": int(np.atleast_2d(fitted.coef_).any(axis=0).sum()),
        "strengths": len(strengths),
        "smallest_strength": float(strengths.min()),
        "largest_strength": float(strengths.max()),
        "outer_loss_first": float(outer[0]),
        "outer_loss_last": float(outer[-1]),
    }
