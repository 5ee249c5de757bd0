"""Which model has seen which rows."""

import numpy as np
import pytest

from untuned.estimators.cleaning import cross_fit, models


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
    return cross_fit.Task(
        rows[:, None].astype(np.float32), rows, np.ones(24), np.zeros(24, bool), rows % count,
        count, 24, 0, rows, cross_fit.Settings(),
    )  # fmt: skip


@pytest.mark.parametrize(("count", "most", "trainings"), [(8, 4, 6), (5, 4, 6), (8, None, 28)])
def test_probabilities_are_of_models_that_saw_neither_fold(count, most, trainings):
    trained = []
    model = models.ByClassifier("seen", lambda seed, first: Seen(trained), most)
    task = a_task(count)
    found = model.first(task)  # [b, i, j]: whether (by how many) row j was seen
    assert found.shape == (count, 24, 24)
    assert len(trained) == trainings
    for b in range(count):
        for i in range(24):
            unseen = (task.fold == b) | (task.fold == task.fold[i])
            assert not found[b, i, unseen].any()
            assert found[b, i].any()


@pytest.mark.parametrize(("classes", "rounds"), [(2, 50), (5, 40), (10, 20), (26, 20)])
def test_boosting_of_many_classes_learns_as_much_in_fewer_rounds(classes, rounds):
    classifier = models.boosting().make(0, classes)
    assert classifier.max_iter == rounds
    assert classifier.max_iter * classifier.learning_rate == pytest.approx(models.LEARNED)
