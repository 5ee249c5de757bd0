"""From base models to the quality of each label, in two rounds.

1. Base models learn the given labels, cheap models first. Their out-of-fold probabilities are
   calibrated, and the noise is taken out of them. They are pooled, and the transition matrix is
   estimated by expectation and maximization (em.py). It starts from one rate for all classes, the
   mean doubt of the best model. A model whose weight in the pool is zero is not trained again.
2. The models learn soft targets, the probabilities of the true labels. Their new predictions are
   pooled with those of the first round, the matrix is estimated again, and Bayes' rule gives the
   quality of each label.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning import cross_fit, models, noise
from untuned.estimators.cleaning import pool as pools
from untuned.estimators.cleaning.cross_fit import Settings, Task, TimeIsUpError
from untuned.estimators.cleaning.em import Estimate, Estimator
from untuned.estimators.cleaning.forest import Trees
from untuned.estimators.cleaning.labelled_rows import Merged, Table, scarce
from untuned.estimators.cleaning.linear import Linear
from untuned.estimators.cleaning.models import Model
from untuned.estimators.cleaning.pool import Pool
from untuned.util.wording import brief

NAMED: dict[str, Any] = {
    "linear": Linear,
    "neighbours": models.neighbours,
    "trees": Trees,
    "boosting": models.boosting,
}
YOURS = "pred_probs"
FIRST_TURNS, SECOND_TURNS = 4, 2  # of pool and matrix, at most
FIRST_SHARE = 0.6  # of the time, for the first round


class Fitted(NamedTuple):
    """What the rounds found, per row of the task where there is one."""

    probabilities: np.ndarray  # of true labels, out of fold
    transition: np.ndarray
    least_rate: float  # of wrong labels that is about as likely as the transition's
    pool: Pool  # of both rounds
    weights: dict[str, float]  # of all models
    believed: np.ndarray  # quality of the labels from which the second round learned
    models: list[Model]  # of the second round
    new_rows: Pool | None  # of the second round's models alone
    linear: Linear | None

    def scores(self, X: Any) -> np.ndarray:
        """Logarithms of probabilities of new rows, but for a constant in each."""
        assert self.new_rows is not None
        several = zip(self.models, self.new_rows.weights, strict=True)
        logs = [w * pools.logs_of(model.probabilities(X)) for model, w in several if w > 0]
        return sum(logs) + self.new_rows.offsets


@dataclass
class SoftTargets:
    """Probabilities of true labels from which the second round's model of a fold may learn."""

    task: Task
    out_of_fold: list[np.ndarray]  # (folds, rows, classes) of each model
    calibrations: list[Pool]
    estimate: Estimate
    cache: dict[int, np.ndarray] = field(default_factory=dict)

    def __call__(self, fold: int) -> np.ndarray:
        if fold in self.cache:
            return self.cache[fold]
        logs = []
        for probabilities, calibration in zip(self.out_of_fold, self.calibrations, strict=True):
            of_fold = pools.logs_of(probabilities[fold].astype(np.float32))  # it may be in float16
            calibrated = calibration.probabilities(of_fold[None])
            logs.append(pools.logs_of(noise.without_noise(calibrated, self.estimate.taken_out)))
        likelihood = noise.likelihood(self.transition, self.task.label, self.task.trusted)
        joint = self.estimate.pool.probabilities(np.stack(logs)) * likelihood
        found = (joint / np.maximum(joint.sum(axis=1, keepdims=True), noise.TINY)).astype("f4")
        if not issparse(self.task.X):  # there, mostly one model learns, and memory is scarce
            self.cache[fold] = found
        return found

    @property
    def transition(self) -> np.ndarray:
        """The matrix of the first round."""
        return self.estimate.transition


def models_named(judge: Any) -> list[Model]:
    """The base models a user names."""
    if isinstance(judge, str) and judge == "auto":
        return []
    several = judge if isinstance(judge, list | tuple) else [judge]
    if not several:
        raise ValueError("judge=[] names nobody; give at least one judge, or 'auto'.")
    found: list[Model] = []
    for each in several:
        if isinstance(each, str) and each in NAMED:
            found.append(NAMED[each]())
        elif not isinstance(each, str | type) and hasattr(each, "fit"):
            if not hasattr(each, "predict_proba"):
                raise ValueError(
                    f"judge={brief(each)} has no predict_proba; give a classifier that has it, "
                    "e.g. by sklearn.calibration.CalibratedClassifierCV."
                )
            found.append(models.of_user(each))
        else:
            raise ValueError(
                f"judge={brief(each)} is no judge; give 'auto', 'linear', a classifier of "
                f"scikit-learn's kind, or a list of these and of {brief(list(NAMED))}."
            )
    names = [each.name for each in found]
    for number, each in enumerate(found):  # so that none is lost in judges_
        if names[:number].count(each.name):
            each.name = f"{each.name} {names[:number].count(each.name) + 1}"
    return found


def task_of(
    table: Table, merged: Merged, classes: int, count: Any, rng: Any, settings: Settings
) -> Task:
    """The rows with their folds; `count` of them, or the default."""
    order, label = merged.order, table.label[merged.first]
    stay = np.array_equal(merged.first, np.arange(table.X.shape[0]))
    X = table.X if stay else table.X[merged.first]
    if count == "auto":
        count = cross_fit.default_folds(X, classes)
    count = max(2, min(count, len(np.unique(merged.group))))
    fold = np.empty(len(label), int)
    fold[order] = cross_fit.stratified(merged.group[order], label[order], count, rng)
    return Task(
        X, label, merged.weight, table.trusted[merged.first], fold, count,
        classes, int(rng.randint(2**31 - 1)), order, settings,
    )  # fmt: skip


def fit_probabilities(
    P: np.ndarray, given: np.ndarray, weight: np.ndarray, classes: int, seed: int,
    settings: Settings,
) -> Fitted:  # fmt: skip
    """From a user's probabilities alone."""
    rows = len(given)
    task = Task(
        None, given, weight, np.zeros(rows, bool), np.zeros(rows, int), 1, classes, seed,
        np.arange(rows), settings,
    )  # fmt: skip
    estimator = Estimator(task)
    first = first_round(estimator, [P[None]]).estimate
    calibrated = estimator.calibrated(P)[1]

    def logs_given(transition: np.ndarray) -> np.ndarray:
        return pools.logs_of(noise.without_noise(calibrated, transition))[None]

    return Fitted(
        first.probabilities, first.transition, estimator.least_rate(logs_given, first),
        first.pool, {YOURS: float(first.pool.weights[0])}, _quality(first, task), [], None, None,
    )  # fmt: skip


def fit(task: Task, asked: list[Model], automatic: bool, yours: np.ndarray | None) -> Fitted:
    """Both rounds; `yours` are probabilities that the user gave."""
    estimator = Estimator(task)
    if automatic:
        asked = [Linear()] if issparse(task.X) else [Linear(), Trees()]
    hurried = replace(task, settings=task.settings.within(FIRST_SHARE))
    asked, out_of_fold = _trained_first(hurried, asked)
    targets = first_round(estimator, out_of_fold)
    first = targets.estimate
    used: list[Model] = []
    found: list[np.ndarray] = []
    linear: Linear | None = None
    for model, weight in zip(asked, first.pool.weights, strict=True):
        if linear is None and isinstance(model, Linear):
            linear = model
        try:
            if weight > 0:
                found.append(model.second(task if used else task.without_limit(), targets))
                used.append(model)
            elif isinstance(model, Linear):
                model.coefficients_only(task, targets)
        except TimeIsUpError:
            continue
    found.append(first.probabilities)
    if yours is not None:
        calibrated = estimator.calibrated(yours)[1]
        found.append(noise.without_noise(calibrated, first.transition))
    logs = np.stack([pools.logs_of(each) for each in found])
    last = estimator.estimate_again(logs, first, SECOND_TURNS)
    of_used = logs[: len(used)]
    likelihood = estimator.likelihood(last.transition)
    new_rows = estimator.pool(of_used, likelihood, np.ones(len(used)))
    for model in {*used, *([linear] if linear else [])}:
        model.forget()
    return Fitted(
        last.probabilities, last.transition, estimator.least_rate(lambda _: logs, last),
        last.pool, _weights(last.pool, asked, used, first, yours is not None),
        _quality(first, task), used, new_rows, linear,
    )  # fmt: skip


def _trained_first(task: Task, asked: list[Model]) -> tuple[list[Model], list[np.ndarray]]:
    """The models that were trained in time, and their out-of-fold probabilities."""
    trained: list[Model] = []
    found: list[np.ndarray] = []
    for model in asked:
        try:
            # The first model is trained however long it takes.
            found.append(model.first(task if trained else task.without_limit()))
        except TimeIsUpError:
            break
        trained.append(model)
    return trained, found


def first_round(estimator: Estimator, out_of_fold: list[np.ndarray]) -> SoftTargets:
    """Calibrate and pool models that have learned the given labels.

    Such models also predict the noise, which is taken out of them after calibration.
    """
    task, noisy = estimator.task, estimator.noisy
    at = np.arange(len(task.label))
    calibrations, calibrated = [], []
    for probabilities in out_of_fold:
        own = probabilities[task.fold, at].astype(np.float64)
        # Trusted labels are not those that models have learned to expect.
        pool, found = estimator.calibrated(own, noisy)
        calibrations.append(pool)
        calibrated.append(found)
    best = max(calibrated, key=lambda p: task.weight @ np.log(p[at, task.label] + noise.TINY))

    def logs_given(transition: np.ndarray) -> np.ndarray:
        return np.stack([pools.logs_of(noise.without_noise(p, transition)) for p in calibrated])

    doubt = 1 - np.average(best[at, task.label][noisy], weights=task.weight[noisy])
    guess = noise.uniform(float(doubt), task.classes)
    first = estimator.estimate(logs_given, guess, len(calibrated), FIRST_TURNS)
    if scarce(task.X):
        first = first._replace(probabilities=first.probabilities.astype(np.float32))
    return SoftTargets(task, out_of_fold, calibrations, first)


def _weights(
    pool: Pool, asked: list[Model], used: list[Model], first: Estimate, yours: bool
) -> dict[str, float]:
    """The weight of each model: its own, and its share of the first round's."""
    weights = {model.name: 0.0 for model in asked}
    weights |= {model.name: float(w) for model, w in zip(used, pool.weights, strict=False)}
    before = pool.weights[len(used)]
    for model, weight in zip(asked, first.pool.weights, strict=True):
        weights[model.name] += float(before * weight)
    return weights | ({YOURS: float(pool.weights[-1])} if yours else {})


def _quality(first: Estimate, task: Task) -> np.ndarray:
    posterior = noise.posterior(first.probabilities, first.transition, task.label)
    return np.where(task.trusted, 1.0, posterior[np.arange(len(task.label)), task.label])
