"""Who has seen which rows."""

import numpy as np
import pytest

from untuned.estimators.cleaning import folds, judges


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
        count, 24, 0,
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
