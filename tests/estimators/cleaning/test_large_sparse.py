"""Large sparse tables, of whose rows no copy is made."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack
from scipy.sparse import random as random_sparse

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import (
    columns,
    cross_fit,
    labelled_rows,
    linear,
    softmax_regression,
    two_rounds,
)

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
    settings = cross_fit.Settings()
    random = np.random.RandomState(0)
    return table, merged, two_rounds.task_of(table, merged, 3, 4, random, settings)


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
    model, train = linear.Linear(), np.flatnonzero(task.fold != 1)
    model.ridge = 0.01
    model.white, model.features = columns.prepared(task, 0.01)
    model.total = task.weight.sum()
    rng = np.random.default_rng(1)
    taught = rng.dirichlet(np.ones(3), len(task.label)).astype(np.float32)
    copied = model._trained(task, train, lambda: taught)
    monkeypatch.setattr(labelled_rows, "LARGE", 10)
    in_place = model._trained(task, train, lambda: taught)
    for each in (in_place, copied):  # a number added to all intercepts is rounding, and no matter
        each[-1] -= each[-1].mean()
    np.testing.assert_allclose(in_place, copied, atol=2e-5)
    assert np.abs(copied).max() > 0.01


def out_of_order(X):
    """The same matrix, the columns of each row in another order."""
    parts = [np.arange(*ends)[::-1] for ends in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    order = np.concatenate(parts)
    return csr_matrix((X.data[order], X.indices[order], X.indptr), shape=X.shape)


def test_columns_out_of_order_are_not_copied_and_mean_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    given = np.arange(240) % 3
    X = random_sparse(240, 30, 0.2, format="csr", dtype=np.float32, random_state=0).tolil()
    X[np.arange(240), given] = 2.0
    X, given[:20] = X.tocsr(), rng.integers(0, 3, 20)
    other = out_of_order(X)
    assert not other.has_canonical_format
    assert labelled_rows.in_float32(other).has_canonical_format
    monkeypatch.setattr(labelled_rows, "LARGE", 10)
    monkeypatch.setattr(softmax_regression, "LEFT", 1e-4)  # what is left depends on rounding
    assert np.shares_memory(labelled_rows.in_float32(other).data, other.data)
    one, two = (LabelCleaner("linear", random_state=0).fit(each, given) for each in (X, other))
    np.testing.assert_allclose(two.quality_, one.quality_, atol=1e-3)
    assert np.ptp(one.quality_) > 0.5


def test_a_column_that_is_there_twice_in_a_row_is_summed(monkeypatch):
    monkeypatch.setattr(labelled_rows, "LARGE", 1)
    monkeypatch.setattr(labelled_rows, "BLOCK_ROWS", 2)
    numbers, columns = np.float32([1, 2, 3, 4, 5, 6]), [1, 0, 1, 1, 0, 0]
    X = csr_matrix((numbers, columns, [0, 2, 3, 4, 6]), shape=(4, 2))
    found = labelled_rows.in_float32(X)
    assert found.toarray().tolist() == [[2, 1], [0, 3], [0, 4], [11, 0]]
    assert (found.nnz, X.nnz) == (5, 6)


def test_probabilities_in_half_precision_are_those_in_full(monkeypatch):
    _, _, task = merged_task()
    p = np.random.default_rng(0).dirichlet(np.ones(3) / 3, len(task.label))
    full = cross_fit.out_of_fold(task, lambda train, rows: p[rows])
    monkeypatch.setattr(labelled_rows, "LARGE", 10)
    half = cross_fit.out_of_fold(task, lambda train, rows: p[rows])
    assert (full.dtype, half.dtype) == (np.float32, np.float16)
    np.testing.assert_allclose(half, full, rtol=2e-3, atol=1e-7)
