"""Whether dear judges are asked at all: trees that are grown first, and what they show."""

from types import SimpleNamespace

import numpy as np
import pytest

from untuned.estimators import LabelCleaner
from untuned.estimators.cleaning import forest, trial
from untuned.estimators.cleaning.folds import Task

ROWS = 120


def task(folds, label=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3)).astype(np.float32)
    label = (X[:, 0] > 0).astype(int) if label is None else label
    order = np.arange(ROWS)
    return Task(X, label, np.ones(ROWS), order < 0, order % folds, folds, 2, 5, order)


@pytest.mark.parametrize(
    ("folds", "matched"),
    [
        (2, [(0, 0), (1, 1)]),
        (3, [(0, 1)]),
        (5, [(0, 1), (2, 3)]),
        (8, [(0, 1), (2, 3), (4, 5), (6, 7)]),
    ],
)
def test_pairs_of_folds_that_share_none(folds, matched):
    assert list(task(folds).matched()) == matched


@pytest.mark.parametrize("folds", [2, 3, 4, 8])
def test_trees_grown_beforehand_have_not_seen_the_rows_they_judge(folds):
    """Judge: labels of one fold are all changed, and what is said of it stays."""
    before = task(folds)
    other = np.where(before.fold == 0, 1 - before.label, before.label)
    rows, said = forest.Trees().beforehand(before)
    again, then = forest.Trees().beforehand(task(folds, other))
    np.testing.assert_array_equal(rows, again)
    assert len(rows) == len(set(rows)) == np.count_nonzero(before.fold < 2 * (folds // 2))
    judged = before.fold[rows] == 0
    np.testing.assert_array_equal(said[judged], then[judged])
    changed = folds > 3  # of three folds only two are judged, by what was not changed
    assert (np.abs(said - then).max() > 0.1) == (changed or folds == 2)


@pytest.mark.parametrize("folds", [3, 4, 8])
def test_what_was_grown_beforehand_is_not_grown_again(folds):
    """Nor is anything missing: as many trees as without a trial."""
    counts = []
    for tried in (False, True):
        judge = forest.Trees()
        if tried:
            judge.beforehand(task(folds))
            there = {pair: several[0] for pair, several in judge.grown.items()}
        judge.first(task(folds))
        counts.append({pair: _counted(several) for pair, several in judge.grown.items()})
    assert counts[0] == counts[1]
    assert all(judge.grown[pair][0] is part for pair, part in there.items())


def _counted(several):
    """Trees, and those of them that are kept."""
    return sum(len(part.nodes) for part in several), sum(len(part.kept) for part in several)


def table(kind):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 8))
    score = X.sum(axis=1) if kind == "plane" else X[:, 0] ** 2 + X[:, 1] ** 2 - 1.4
    wrong = rng.random(400) < 0.1
    return X, (score > 0) ^ wrong


@pytest.mark.parametrize(("kind", "helps"), [("plane", False), ("ring", True)])
def test_trees_are_grown_only_where_a_few_of_them_help(kind, helps, monkeypatch):
    """A linear judge knows all there is to know of a plane, and nothing of a ring."""
    asked = []
    first = forest.Trees.first
    monkeypatch.setattr(forest.Trees, "first", lambda *args: asked.append(1) or first(*args))
    cleaner = LabelCleaner(random_state=0).fit(*table(kind))
    assert bool(asked) == helps
    assert (cleaner.judges_["trees"] > 0) == helps


@pytest.mark.parametrize(("gain", "helps"), [(0.4, False), (0.6, True)])
def test_a_weight_must_be_one_standard_error_from_zero(gain, helps, monkeypatch):
    monkeypatch.setattr(trial, "_gains", lambda *args: np.full(ROWS, gain / ROWS))
    assert trial.trees_help(SimpleNamespace(task=task(4)), forest.Trees(), []) is helps
