"""What must change no answer: precision, scales, names and dtypes of labels; and the clock."""

import time

import numpy as np
import pandas
import pytest
from sklearn.metrics import roc_auc_score

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import cross_fit, forest, models, two_rounds

ROWS = 400


def noisy():
    """Three clouds in float64, one label in five wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, ROWS)
    X = 2.2 * np.eye(3, 5)[true] + rng.normal(size=(ROWS, 5))
    wrong = rng.random(ROWS) < 0.2
    return X, np.where(wrong, (true + rng.integers(1, 3, ROWS)) % 3, true), wrong


def auroc(X, given, wrong, **settings):
    cleaner = LabelCleaner(random_state=0, **settings).fit(X, given)
    return roc_auc_score(wrong, -cleaner.quality_)


def test_single_precision_is_double_precision():
    X, given, _ = noisy()
    X = X.astype(np.float32)
    single, double = (
        LabelCleaner(random_state=0).fit(each, given) for each in (X, X.astype(float))
    )
    assert np.array_equal(single.quality_, double.quality_)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: 2000 + 6 * X,
        lambda X: X * 10.0 ** np.array([-6, -3, 0, 3, 6]),
        lambda X: (1e6 + X).astype(np.float32),
    ],
    ids=["years", "scales", "far from zero, single"],
)
def test_scales_and_offsets_change_no_scores(change):
    """Oracle: the columns as they are in float64. Folds are drawn by the rows' content, so what is
    left is the chance of a draw, which is .01 here."""
    X, given, wrong = noisy()
    seeds = [auroc(X, given, wrong, folds=4) for X in (X, 2 * X, X - 1)]
    assert auroc(change(X), given, wrong, folds=4) == pytest.approx(np.mean(seeds), abs=0.015)


@pytest.mark.parametrize(
    "names",
    [
        np.array(["a", "b", "c"]), np.array(["c", "b", "a"], object),
        np.array([-3, 7, 900], np.int16), np.array([0.0, 1.0, 2.0], np.float32),
    ],
    ids=["text", "objects", "int16", "float32"],
)  # fmt: skip
def test_labels_come_back_in_their_own_dtype(names):
    X, given, wrong = noisy()
    cleaner = LabelCleaner("linear", random_state=0).fit(X, names[given])
    for found in (cleaner.suggested_, cleaner.alternative_, cleaner.predict(X), cleaner.classes_):
        assert found.dtype == names.dtype
        assert set(found) <= set(names)
    assert roc_auc_score(wrong, -cleaner.quality_) > 0.95


def test_truth_values_and_categories():
    X, given, wrong = noisy()
    cleaner = LabelCleaner("linear", random_state=0).fit(X, given == 1)
    assert cleaner.suggested_.dtype == bool
    categories = pandas.Series(np.array(["x", "y", "z"])[given], dtype="category")
    assert auroc(X, categories, wrong, judge="linear") > 0.95


class Slow(models.ByClassifier):
    """A model whose trainings take a tenth of a second each."""

    def first(self, task):
        def predicted(train, rows):
            time.sleep(0.1)
            return np.full((len(rows), task.classes), 1 / task.classes)

        return cross_fit.out_of_fold(task, predicted)


def test_the_limit_of_time_ends_a_model_between_two_trainings(monkeypatch):
    """28 trainings would take 2.8 s. The model is left out, and the one before it stays."""
    monkeypatch.setattr(two_rounds, "Trees", lambda: Slow("slow", None))
    X, given, wrong = noisy()
    LabelCleaner("linear", random_state=0).fit(X, given)  # imports what is needed
    began = time.monotonic()
    cleaner = LabelCleaner(random_state=0, folds=8, max_seconds=1.0).fit(X, given)
    assert time.monotonic() - began < 2.5
    assert set(cleaner.judges_) == {"linear"}
    assert roc_auc_score(wrong, -cleaner.quality_) > 0.95
    assert set(LabelCleaner(random_state=0, folds=4).fit(X, given).judges_) == {"linear", "slow"}


def test_kept_trees_take_a_tenth_of_the_memory_of_scikit_learns():
    X, given, _ = noisy()
    order, every = np.arange(ROWS), np.ones(ROWS)
    task = cross_fit.Task(
        X.astype(np.float32), given, every, every < 0, order % 4, 4, 3, 0, order,
        cross_fit.Settings(),
    )  # fmt: skip
    (grown,) = forest.grow(task, order[::2], 5, np.random.RandomState(0), 5)
    for nodes, tree in zip(grown.nodes, grown.kept, strict=True):
        held = sum(part.nbytes for part in vars(tree).values() if isinstance(part, np.ndarray))
        assert held <= 14 * nodes
