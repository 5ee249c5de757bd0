"""Large sparse tables, of whose rows no copy is made."""

import numpy as np
import pytest
from scipy.sparse import random as random_sparse
from scipy.sparse import vstack

from untuned.estimators.cleaning import labelled_rows, linear_judge, rounds

ROWS, AGAIN = 120, 4


def merged_task():
    """Rows, the last of which are there again with the same label."""
    X = random_sparse(ROWS, 40, 0.2, format="csr", dtype=np.float32, random_state=0)
    X = vstack([X, X[:AGAIN]], format="csr")
    label = np.arange(X.shape[0]) % 3
    label[ROWS:] = label[:AGAIN]
    weight = np.random.default_rng(0).uniform(0.5, 2, len(label))
    table = labelled_rows.Table(X, label, weight, np.zeros(len(label), bool))
    merged = labelled_rows.merge(table)
    return table, merged, rounds.task_of(table, merged, 3, 4, np.random.RandomState(0))


def test_rows_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(labelled_rows, "LARGE", 10)
    table, merged, task = merged_task()
    assert task.X is table.X
    assert np.array_equal(merged.place, np.arange(ROWS + AGAIN))
    assert sorted(task.order) == list(range(ROWS + AGAIN))
    first, again = np.arange(AGAIN), np.arange(ROWS, ROWS + AGAIN)
    assert np.array_equal(task.fold[first], task.fold[again])
    assert task.weight.sum() == pytest.approx(table.weight.sum())
    assert np.minimum(task.weight[first], task.weight[again]).max() == 0
    monkeypatch.setattr(labelled_rows, "LARGE", 10_000)
    table, merged, task = merged_task()
    assert task.X.shape[0] == ROWS
    assert np.array_equal(task.X.toarray(), table.X[merged.first].toarray())
    assert np.array_equal(task.label, table.label[merged.first])


def test_rows_that_weigh_nothing_are_as_good_as_left_out(monkeypatch):
    _, _, task = merged_task()
    judge, train = linear_judge.LinearJudge(), np.flatnonzero(task.fold != 1)
    judge.white, judge.features = linear_judge._prepared(task, 0.01)
    judge.total = task.weight.sum()
    rng = np.random.default_rng(1)
    taught = rng.dirichlet(np.ones(3), len(task.label)).astype(np.float32)
    copied = judge._trained(task, train, lambda: taught)
    monkeypatch.setattr(linear_judge, "LARGE", 10)
    assert judge._models(task, train, None)[0].rows.features.shape[0] == len(task.label)
    np.testing.assert_allclose(judge._trained(task, train, lambda: taught), copied, atol=2e-5)
    assert np.abs(copied).max() > 0.01
