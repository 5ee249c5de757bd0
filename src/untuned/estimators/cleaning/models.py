"""Base models: whatever gives probabilities of classes for rows it has not seen.

A base model is trained twice. First it learns the given labels. Then it learns what the labels
probably should be, by all that was predicted the first time; `targets(b)` are the probabilities of
true labels, of shape (rows, classes), from which fold b's model may learn.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from untuned.estimators.cleaning.cross_fit import FEWEST, Task, coarser, out_of_fold


class Targets(Protocol):
    """What the second round learns from."""

    @property
    def transition(self) -> np.ndarray:
        """The transition matrix of the first round."""

    def __call__(self, fold: int) -> np.ndarray:
        """Probabilities of true labels from which the model of a fold may learn."""


# Of boosting: as few rounds learn as much where classes are many.
LEARNED = 10.0  # rounds times learning rate: a hundred of scikit-learn's own
FASTEST = 0.5  # learning rate
TREES, MOST_ROUNDS = 200, 50
LEAVES = 8  # of a tree; larger ones learn more of the noise, and take longer
NEAREST = 15  # neighbours


class Model(Protocol):
    """What all base models can do."""

    name: str

    def first(self, task: Task) -> np.ndarray:
        """Probabilities learned from given labels, as `cross_fit.out_of_fold` shapes them."""

    def second(self, task: Task, targets: Targets) -> np.ndarray:
        """Out-of-fold probabilities of true labels (rows, classes); what was trained is kept."""

    def probabilities(self, X: Any) -> np.ndarray:
        """Of new rows, by what `second` trained."""

    def forget(self) -> None:
        """Let go of what only the rounds needed."""


class ByClassifier:
    """A classifier of scikit-learn's kind, one for each fold."""

    def __init__(
        self, name: str, make: Callable[[int, int], Any], most_folds: int | None = None
    ):  # fmt: skip
        self.name = name
        self.make = make  # from a seed and how many classes there are
        self.most_folds = most_folds  # the first time, when all pairs of them are trained
        self.models: list[Any] = []
        self.classes = 0

    def first(self, task: Task) -> np.ndarray:
        """Learn the given labels; see Model."""
        coarse = coarser(task, self.most_folds or task.folds)
        predicted = partial(self._predicted, task)
        # Who has seen none of a group's folds has not seen any one of them either.
        return out_of_fold(coarse, predicted)[np.arange(task.folds) % coarse.folds]

    def _predicted(self, task: Task, train: np.ndarray, rows: np.ndarray) -> np.ndarray:
        model = self.make(task.seed, task.classes)
        fit_classifier(model, task.X[train], task.label[train], task.weight[train])
        return predict(model, task.X[rows], task.classes)

    def second(self, task: Task, targets: Targets) -> np.ndarray:
        """Learn the most probable labels, each with its probability as a weight; see Model."""
        found = np.zeros((len(task.label), task.classes))
        self.models, self.classes = [], task.classes
        for fold in range(task.folds):
            task.check_time()
            train, rows = np.flatnonzero(task.fold != fold), np.flatnonzero(task.fold == fold)
            target = targets(fold)[train]
            model = self.make(task.seed + fold, task.classes)
            weight = task.weight[train] * target.max(axis=1)
            fit_classifier(model, task.X[train], target.argmax(axis=1), weight)
            found[rows] = predict(model, task.X[rows], task.classes)
            self.models.append(model)
        return found

    def probabilities(self, X: Any) -> np.ndarray:
        """The mean over folds."""
        return np.mean([predict(model, X, self.classes) for model in self.models], axis=0)

    def forget(self) -> None:
        """There is nothing to let go of."""


class Nearest:
    """Nearest neighbours, columns by their standard deviations."""

    def fit(self, X: Any, y: np.ndarray) -> Nearest:
        """Keep the rows."""
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        nearest = KNeighborsClassifier(min(NEAREST, len(y)), weights="distance")
        self.model = make_pipeline(StandardScaler(with_mean=False), nearest).fit(X, y)
        self.classes_ = self.model.classes_
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The shares of classes among the nearest rows."""
        return self.model.predict_proba(X)


def fit_classifier(model: Any, X: Any, label: np.ndarray, weight: np.ndarray) -> None:
    """Train, with weights where the classifier takes them."""
    takes = "sample_weight" in inspect.signature(model.fit).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that are rare, solvers that stop early: no harm
        model.fit(X, label, **({"sample_weight": weight} if takes else {}))


def predict(model: Any, X: Any, classes: int) -> np.ndarray:
    """Probabilities with a column for every class, also for those the model has not met."""
    found = np.zeros((X.shape[0], classes))
    known = np.asarray(model.classes_, int)
    if len(known) == 1:  # boosting gives two columns even then
        found[:, known] = 1.0
    elif X.shape[0]:
        found[:, known] = model.predict_proba(X)
    # Of few trees none may have voted for a class: as if there were one more, undecided.
    voters = len(getattr(model, "estimators_", ()))
    return (voters * found + 1 / classes) / (voters + 1) if voters else found


def boosting(trees: int = TREES, most: int = MOST_ROUNDS) -> ByClassifier:
    """Histogram boosting; dense tables only. On few rows it takes longer than all other models, so
    it has no more folds than on many."""
    return ByClassifier("boosting", partial(_make_boosting, trees, most), FEWEST)


def neighbours() -> ByClassifier:
    """Nearest neighbours; dense or sparse tables."""
    return ByClassifier("neighbours", _make_nearest, FEWEST)


def of_user(classifier: Any) -> ByClassifier:
    """A classifier that the user brought."""
    return ByClassifier(type(classifier).__name__, partial(_copy, classifier))


# Functions of the module, as a fitted cleaner can then be copied to another process.
def _make_boosting(trees: int, most: int, seed: int, classes: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    rounds = int(np.clip(trees / classes, min(LEARNED / FASTEST, most), most))
    rate = min(LEARNED / rounds, FASTEST)  # of few rounds, each learns more
    return HistGradientBoostingClassifier(
        learning_rate=rate, max_iter=rounds, max_leaf_nodes=LEAVES, early_stopping=False,
        random_state=seed,
    )  # fmt: skip


def _make_nearest(seed: int, classes: int) -> Nearest:
    return Nearest()


def _copy(classifier: Any, seed: int, classes: int) -> Any:
    from sklearn.base import clone

    return clone(classifier)
