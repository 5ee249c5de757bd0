"""Trees that are grown once and learn twice."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.tree import ExtraTreeClassifier

from untuned.estimators.cleaning import forest, labelled_rows
from untuned.estimators.cleaning.cross_fit import Settings, Task

ROWS = 90


def task(classes=3, folds=3, sparse=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 4)).astype(np.float32)
    label = np.digitize(X[:, 0] + 0.3 * rng.normal(size=ROWS), np.linspace(-1, 1, classes - 1))
    weight, nobody = rng.uniform(0.5, 2, ROWS), np.zeros(ROWS, bool)
    X, order = csr_matrix(X) if sparse else X, np.arange(ROWS)
    return Task(X, label, weight, nobody, order % folds, folds, classes, 5, order, Settings())


def given(one):
    return np.eye(one.classes)[one.label]


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 8])
@pytest.mark.parametrize("changed", [False, True], ids=["this release", "another release"])
def test_trees_are_those_of_scikit_learn(classes, sparse, alike, changed, monkeypatch):
    """Oracle: scikit-learn's class with the same draws. Also where a release of scikit-learn
    lacks what its class is gone around by."""
    if changed:
        monkeypatch.delattr("sklearn.tree._splitter.RandomSplitter")
        monkeypatch.delattr("sklearn.tree._splitter.RandomSparseSplitter")
    one, train = task(classes, sparse=sparse), np.arange(0, ROWS, 2)
    one = replace(one, weight=np.full(ROWS, 2.0)) if alike else one
    (grown,) = forest.grow(one, train, 10, np.random.RandomState(1), 10)
    random = np.random.RandomState(1)
    for tree in grown.kept:
        theirs = ExtraTreeClassifier(max_features="sqrt", random_state=random)
        theirs.fit(one.X[train], one.label[train], sample_weight=one.weight[train])
        np.testing.assert_array_equal(tree.feature, theirs.tree_.feature)
        np.testing.assert_array_equal(tree.apply(one.X), theirs.tree_.apply(one.X))


def test_trees_predict_what_a_forest_predicts():
    """Oracle: scikit-learn's forest, many trees of each, and one tree's leaves one by one."""
    one = task()
    train, rows = np.flatnonzero(one.fold != 0), np.flatnonzero(one.fold == 0)
    several = forest.grow(one, train, 500, np.random.RandomState(0), 0)
    found = forest._mean(several, given(one) * one.weight[:, None], train, rows)
    theirs = ExtraTreesClassifier(1000, random_state=0)
    theirs.fit(one.X[train], one.label[train], sample_weight=one.weight[train])
    assert np.abs(found - theirs.predict_proba(one.X[rows])).mean() < 0.03
    (grown,) = forest.grow(one, train, 10, np.random.RandomState(1), 10)
    tree, values = grown.kept[0], given(one) * one.weight[:, None]
    means, _ = grown.means(values, train)
    leaf = tree.apply(one.X[train])
    for each in np.unique(leaf):
        expected = values[train[leaf == each]].sum(axis=0)
        np.testing.assert_allclose(means[each], expected / expected.sum(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("folds", [3, 6])
def test_no_row_is_predicted_from_its_own_label(folds, sparse):
    """Neither in the first round nor in the second, by what others were taught through it. (Six
    folds are four to trees on sparse columns.)"""
    before = task(folds=folds, sparse=sparse)
    changed = np.flatnonzero(before.fold == 1)
    label = before.label.copy()
    label[changed] = (label[changed] + 1) % before.classes
    after = Task(before.X, label, *list(vars(before).values())[2:])
    first, second = [], []
    for one in (before, after):
        model = forest.Trees()
        probabilities = model.first(one)
        first.append(probabilities)
        second.append(model.second(one, lambda fold, of=probabilities: of[fold]))
    np.testing.assert_array_equal(first[0][1], first[1][1])
    np.testing.assert_array_equal(second[0][changed], second[1][changed])
    assert np.abs(second[0] - second[1]).max() > 0.1


def test_the_second_time_leaves_are_means_of_targets(monkeypatch):
    """And new rows are modeld by it. In blocks of a tree or all at once, it is the same."""
    one = task(folds=4)
    believed = np.eye(3)[(one.label + 1) % 3]
    said = []
    for block in (1, forest.BLOCK):
        monkeypatch.setattr(forest, "BLOCK", block)
        model = forest.Trees()
        model.first(one)
        said.append((model.second(one, lambda fold: believed), model.probabilities(one.X)))
        model.forget()
    np.testing.assert_allclose(said[0][0], said[1][0], rtol=1e-5)
    np.testing.assert_allclose(said[0][1], said[1][1])
    unseen, seen = said[1]
    assert (unseen.argmax(axis=1) == believed.argmax(axis=1)).mean() > 0.6
    assert (seen.argmax(axis=1) == believed.argmax(axis=1)).mean() > 0.95
    np.testing.assert_allclose(seen.sum(axis=1), 1, rtol=1e-6)


def test_one_class_has_all_votes_but_a_doubt():
    """Of a rare class all labels may be taken for wrong."""
    one = task()
    model = forest.Trees()
    model.first(one)
    found = model.second(one, lambda fold: np.tile([0.0, 1.0, 0.0], (ROWS, 1)))
    trees = 2 * sum(len(part.nodes) for part in model.grown[0, 1])
    np.testing.assert_allclose(found[:, [0, 2]], 1 / 3 / (trees + 1))


def test_places_of_sparse_columns_may_be_long():
    """Trees take whole numbers of 32 bits only, and matrices may come with those of 64."""
    X = csr_matrix(task().X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    given = labelled_rows.in_float32(X)
    assert given.indices.dtype == given.indptr.dtype == np.int32
    np.testing.assert_array_equal(given.toarray(), X.toarray())


def test_only_trees_for_rows_to_come_are_kept():
    """Trees are most of the memory of a fit; the second round asks leaves alone."""
    one = task()
    model = forest.Trees()
    model.first(one)
    model.second(one, lambda fold: np.tile([0.2, 0.5, 0.3], (ROWS, 1)))
    grown = sum(len(part.nodes) for several in model.grown.values() for part in several)
    assert forest.FOREST <= len(model.forest) < forest.FOREST + len(model.grown) < grown
