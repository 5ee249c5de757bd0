"""`untuned coreset`: which rows of a table to keep."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.commands import record, saved_model
from untuned.commands.job import Job, Ready, make_ready
from untuned.report import coreset_page
from untuned.util import folder


def coreset(job: Job, size: int) -> str:
    """Choose `size` rows with weights, write the folder, and give the summary."""
    job.check()
    with folder.written_whole(job.out, job.overwrite, [job.train]) as target:
        ready = make_ready(job.train, job.label, "classes")
        _check_size(size, ready)
        from untuned.estimators import CoresetSelector

        selector: Any = CoresetSelector(size=size, **job.estimator_options())
        selector.fit(ready.X, ready.y)
        kept = np.asarray(selector.indices_, np.int64)
        weights = np.asarray(selector.weights_, np.float64)[kept]
        model = _trained(ready, kept, weights)
        saved_model.save(target, ready.preparation, model)
        summary = _summary(ready, kept, model, job.seed)
        record.write(
            target,
            job,
            ready,
            selector.result_,
            summary=summary,
            tables=_tables(ready, kept, weights),
            settings={"size": size},
        )
    written = {"Kept rows with their weights": f"kept.{ready.table.format}"}
    return record.words(job, ready, selector.result_, coreset_page.lead(summary), written)


def _check_size(size: int, ready: Ready) -> None:
    if size > len(ready.y):
        raise ValueError(
            f"--size {size:,} is above the {len(ready.y):,} labelled rows of {ready.table.path}; "
            "expected at most as many."
        )
    classes = len(np.unique(ready.y))
    if size < classes:
        raise ValueError(
            f"--size {size:,} is below the {classes} classes of {ready.table.path}; expected at "
            "least one row of each class."
        )


def _trained(ready: Ready, rows: np.ndarray, weights: np.ndarray | None = None) -> Any:
    """A logistic regression that has seen only these rows."""
    from sklearn.linear_model import LogisticRegression

    scaled = None if weights is None else weights * len(rows) / weights.sum()
    model = LogisticRegression(max_iter=1000).fit(ready.X[rows], ready.y[rows], scaled)
    return saved_model.classifier(model.coef_, model.intercept_, model.classes_)


def _summary(ready: Ready, kept: np.ndarray, model: Any, seed: int) -> dict[str, Any]:
    classes, counts = np.unique(ready.y, return_counts=True)
    chosen = {each: int((ready.y[kept] == each).sum()) for each in classes.tolist()}
    others = np.setdiff1d(np.arange(len(ready.y)), kept)
    summary = {
        "rows": len(ready.y),
        "kept": len(kept),
        "classes": dict(zip(classes.tolist(), counts.tolist(), strict=True)),
        "kept_per_class": chosen,
        "accuracy_on_other_rows": None,
        "accuracy_of_random_rows": None,
    }
    if len(others):
        random = _random_rows(ready.y, len(kept), seed)
        summary["accuracy_on_other_rows"] = _accuracy(ready, model, others)
        summary["accuracy_of_random_rows"] = _accuracy(ready, _trained(ready, random), others)
    return summary


def _random_rows(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """As many rows at random, at least one of each class so that a model can be trained."""
    order = np.random.default_rng(seed).permutation(len(labels))
    _, first = np.unique(labels[order], return_index=True)
    rest = np.delete(order, first)
    return np.concatenate([order[first], rest])[:count]


def _accuracy(ready: Ready, model: Any, rows: np.ndarray) -> float:
    # A saved model's classes are text where the labels are.
    return float(np.mean(model.predict(ready.X[rows]).astype(str) == ready.y[rows].astype(str)))


def _tables(ready: Ready, kept: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    """The kept rows in full, the heaviest first."""
    import pandas

    order = np.argsort(-weights, kind="stable")
    front = pandas.DataFrame({"row": ready.labels.rows[kept[order]], "weight": weights[order]})
    return {"kept": ready.records(kept[order], front)}
