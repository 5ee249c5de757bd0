"""The quality of every label: classes or numbers, with or without decisions of people."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from untuned.commands.job import Job
from untuned.run.result import Result
from untuned.tables.decisions import Decisions
from untuned.util import threads

NAMES = ("linear", "neighbours", "trees")  # base models that a second round may have by name
LEAST_SHARE = 0.05  # of all weights; a base model with less is not trained again
FEWEST = 10  # numbers to rate


class Verdicts(NamedTuple):
    """One entry per row that has a label."""

    quality: np.ndarray
    suggested: np.ndarray
    weights: np.ndarray
    issues: np.ndarray  # positions, the worst first, without those decided already
    noise_rate: float
    model_weights: dict[str, float]  # of the base models
    coef: np.ndarray | None  # of a linear model of the labels believed
    intercept: Any
    classes: np.ndarray | None  # None for numbers
    result: Result | None  # of the last search
    spread: np.ndarray | None = None  # of numbers around the one suggested
    doubt: str = ""  # a sentence, where the share of wrong labels cannot be told
    noise_range: tuple[float, float] | None = None  # shares of wrong labels that are possible
    disputed: np.ndarray | None = None  # positions that models take for another class
    is_cut: bool = False  # whether the limit of time left out models of numbers


def of_classes(
    job: Job, X: Any, y: np.ndarray, X_trusted: Any, y_trusted: Any, pred_probs: Any,
    judges: tuple[str, ...] = (), seen: np.ndarray | None = None, disputed: bool = False,
) -> Verdicts:  # fmt: skip
    """By a LabelCleaner; `judges` are its base models, the default ones if none is named.

    Rows that people have `seen` are no suspects. Of the others, the suspects are those worth a
    look; with `disputed`, all disputed rows follow.
    """
    from untuned.estimators import LabelCleaner
    from untuned.estimators.cleaning import noise

    cleaner = LabelCleaner(judge=list(judges) or "auto", **job.estimator_options())
    cleaner.fit(X, y, X_trusted, y_trusted, pred_probs)
    quality, suggested = np.asarray(cleaner.quality_, np.float64), np.array(cleaner.suggested_)
    issues, rate = np.asarray(cleaner.issues_, np.int64), float(cleaner.noise_rate_)
    if seen is not None:
        left = np.setdiff1d(np.arange(len(y)), seen)
        issues = left[noise.suspects(quality[left])]
    if disputed:
        more = cleaner.disputed_[~np.isin(cleaner.disputed_, issues)]
        issues = np.r_[issues, more if seen is None else more[~np.isin(more, seen)]]
    # A suspect is shown with another label, also where the given one is likelier.
    suggested[issues] = np.asarray(cleaner.alternative_)[issues]
    return Verdicts(
        quality, suggested, np.asarray(cleaner.weights_, np.float64), issues, rate,
        {name: float(weight) for name, weight in cleaner.judges_.items()},
        getattr(cleaner, "coef_", None), getattr(cleaner, "intercept_", None), cleaner.classes_,
        cleaner.result_, doubt="" if y_trusted is not None else about_classes(cleaner.sure_share_),
        noise_range=cleaner.noise_range_, disputed=cleaner.disputed_,
    )  # fmt: skip


def about_classes(sure_share: float) -> str:
    """What to know about the estimated share of wrong labels; nothing where it can be trusted."""
    if sure_share >= 0.5:
        return ""
    return (
        f"The base models are sure of {sure_share:.0%} of the rows only. Wrong labels and classes "
        "that overlap look alike then, so this share may be far off; labels that you check and "
        "give as --trusted help."
    )


def about_numbers(seen_share: float) -> str:
    """The same for numbers."""
    if seen_share >= 0.5:
        return ""
    return (
        f"Of numbers swapped between rows, {seen_share:.0%} only would be suspects, as predictions "
        "are too coarse; so this share may be far off."
    )


def worth_training(weights: dict[str, float]) -> list[str]:
    """The base models of a second round: those with a weight in the first, and the linear one, for
    its coefficients. Boosting is left out, as it takes longer than all others together."""
    least = LEAST_SHARE * sum(weights.values())
    found = [name for name in NAMES if name in weights]
    return [name for name in found if name == "linear" or weights[name] > least]


def of_numbers(job: Job, X: Any, y: np.ndarray, X_trusted: Any, y_trusted: Any) -> Verdicts:
    """By how far the predictions of regressors are off."""
    from untuned.estimators.cleaning import numbers

    with threads.limited(X.size):
        left = job.estimator_options()["max_seconds"]
        found = numbers.rate(X, y, X_trusted, y_trusted, seed=job.seed, max_seconds=left)
    suggested = np.where(found.quality < 0.5, found.predicted, y)
    return Verdicts(
        found.quality, suggested, found.quality, found.issues, found.noise_rate, found.weights,
        found.coef, found.intercept, None, None, found.spread, about_numbers(found.seen_share),
        is_cut=found.is_cut,
    )  # fmt: skip


def with_decisions(
    job: Job, X: Any, y: np.ndarray, trusted: tuple[Any, Any], pred_probs: Any, decided: Decisions,
    disputed: bool = False,
) -> Verdicts:  # fmt: skip
    """Rate the rows without a decision; rows with one are trusted.

    Where too few rows have a decision to be a trusted set, or too few others are left, they stay
    among the others with their labels corrected.
    """
    from untuned.estimators.cleaning.labelled_rows import below

    is_numbers = y.dtype.kind == "f"
    X_trusted, y_trusted = trusted
    rows, labels = np.arange(len(y)), y
    if is_numbers:
        rows = np.setdiff1d(rows, decided.settled)
    # Of classes, decided rows stay among the others as well: people look at the worst first, and
    # the rows they leave would alone look cleaner than the labelling was.
    apart = pred_probs is None and len(decided.settled) >= (1 if is_numbers else len(np.unique(y)))
    if apart and len(rows) >= FEWEST:
        decided_rows = X[decided.settled]
        X_trusted = decided_rows if X_trusted is None else below(decided_rows, X_trusted)
        y_trusted = decided.values if y_trusted is None else np.r_[decided.values, y_trusted]
    else:
        rows, labels = np.arange(len(y)), y.copy()
        labels[decided.settled] = decided.values
    seen = np.r_[decided.settled, decided.unclear]
    if is_numbers:
        found = of_numbers(job, X[rows], labels[rows], X_trusted, y_trusted)
    else:
        found = of_classes(
            job, X, labels, X_trusted, y_trusted, pred_probs, decided.judges, seen, disputed
        )
    quality, weights = np.ones(len(y)), np.ones(len(y))
    quality[rows], weights[rows] = found.quality, found.weights
    suggested = y.copy()
    suggested[rows] = found.suggested
    quality[decided.settled], weights[decided.settled] = 1.0, 1.0
    suggested[decided.settled] = decided.values
    suggested[decided.unclear] = y[decided.unclear]
    issues = rows[found.issues]
    issues = issues[~np.isin(issues, seen)]
    left = None if found.disputed is None else np.setdiff1d(found.disputed, seen)
    spread = None
    if found.spread is not None:
        spread = np.full(len(y), np.nan)
        spread[rows] = found.spread
    return found._replace(
        quality=quality, weights=weights, suggested=suggested, issues=issues, spread=spread,
        disputed=left,
    )  # fmt: skip
