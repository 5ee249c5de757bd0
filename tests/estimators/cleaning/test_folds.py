"""Who has seen which rows."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from untuned.estimators.cleaning import folds, judges, trial
from untuned.estimators.cleaning.hearing import Hearing


class Seen:
    """A classifier whose probabilities tell which rows it was trained on."""

    def __init__(self, trained):
        self.trained = trained

    def fit(self, X, y):
        self.mask = np.zeros(24)
        self.mask[X[:, 0].astype(int)] = 1
        self.classes_ = np.arange(24)
        self.trained.append(self.mask)
        return self

    def predict_proba(self, X):
        return np.tile(self.mask, (len(X), 1))


def a_task(count):
    rows = np.arange(24)
    return folds.Task(
        rows[:, None].astype(np.float32), rows, np.ones(24), np.zeros(24, bool), rows % count,
        count, 24, 0, rows,
    )  # fmt: skip


@pytest.mark.parametrize(("count", "most", "trainings"), [(8, 4, 6), (5, 4, 6), (8, None, 28)])
def test_opinions_are_of_judges_that_saw_neither_fold(count, most, trainings):
    trained = []
    judge = judges.ByClassifier("seen", lambda seed, first: Seen(trained), most)
    task = a_task(count)
    said = judge.first(task)  # [b, i, j]: whether (by how many) row j was seen
    assert said.shape == (count, 24, 24)
    assert len(trained) == trainings
    for b in range(count):
        for i in range(24):
            unseen = (task.fold == b) | (task.fold == task.fold[i])
            assert not said[b, i, unseen].any()
            assert said[b, i].any()


@pytest.mark.parametrize(("classes", "rounds"), [(2, 50), (5, 40), (10, 20), (26, 20)])
def test_boosting_of_many_classes_learns_as_much_in_fewer_rounds(classes, rounds):
    classifier = judges.boosting().make(0, classes).classifier
    assert classifier.max_iter == rounds
    assert classifier.max_iter * classifier.learning_rate == pytest.approx(judges.LEARNED)


@pytest.mark.parametrize(("count", "most"), [(8, 4), (8, 8), (3, 3)])
def test_a_trial_sees_no_more_rows_than_the_judge_will(count, most):
    """And is measured on as many as that leaves."""
    rng, asked = np.random.default_rng(0), []
    given = rng.integers(0, 2, 200)
    task = folds.Task(
        rng.normal(size=(200, 1)).astype(np.float32), given, np.ones(200), np.zeros(200, bool),
        np.arange(200) % count, count, 2, 0, np.arange(200),
    )  # fmt: skip
    says_nothing = np.full((count, 200, 2), 0.5, np.float32)

    def learned(task, train, rows, sure):
        asked.append((train, rows))
        return np.where(np.eye(2, dtype=bool)[given[rows]], sure, 1 - sure)

    options = {"method": "auto", "max_steps": 4, "progress": False}
    hearing = Hearing(task, options, np.inf)
    dealt = folds.coarser(task, most)
    helps = [
        trial._helps(hearing, dealt, partial(learned, sure=sure), [says_nothing])
        for sure in (0.9, 0.5)
    ]
    assert helps == [True, False]
    for train, rows in asked:
        assert set(dealt.fold[rows]) == {0, 1}
        assert set(dealt.fold[train]) == set(range(2, most))
        assert len(train) + len(rows) == 200


@pytest.mark.parametrize(("better", "helps"), [(1.001, False), (1.02, True)])
def test_a_judge_helps_if_labels_are_likelier_beyond_doubt_and_beyond_one_number(better, helps):
    """In both cases the gain is the same in all rows, but for rounding."""
    rng = np.random.default_rng(0)
    task = folds.Task(
        rng.normal(size=(400, 1)).astype(np.float32), np.arange(400) % 2, np.ones(400),
        np.zeros(400, bool), np.arange(400) % 4, 4, 2, 0, np.arange(400),
    )  # fmt: skip

    def pool(voices, given, start, rows):
        half = np.full((len(rows), 2), 0.5)
        said = half * better if len(voices) == 2 else half
        return SimpleNamespace(
            probabilities=lambda voices: said + 1e-5 * rng.random((len(rows), 1))
        )

    says_nothing = np.full((4, 400, 2), 0.5, np.float32)
    hearing = SimpleNamespace(task=task, pool=pool)
    found = trial._helps(
        hearing, task, lambda task, train, rows: np.full((len(rows), 2), 0.5), [says_nothing]
    )
    assert found is helps
