"""Extremely randomised trees as a base model: grown once, used in both rounds.

A tree is grown on given labels, once for each pair of folds that it must not see. Its prediction is
the mean over the rows that share a leaf: of given labels the first time, of what labels probably
should be the second time. So the second round grows nothing, and fold b's model then is all trees
that have not seen it.

Trees are scikit-learn's. Its forests take ten times as long as the growing itself where rows are
few, in copies and checks of each tree, so trees are grown one by one here. The second round needs
only the leaf of each row, so only the trees for new rows are kept: they grow with the rows and are
most of the memory of a fit, so that of their nodes only what leads to a leaf stays.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse

from untuned.estimators.cleaning.cross_fit import FEWEST, Task, coarser, out_of_fold
from untuned.estimators.cleaning.models import Targets

TREES = 140  # that predict each row, and the more the better for all that is learned from them
DEEPEST = 2**31 - 1
FEW_TREES = 20  # of a pair of folds on sparse columns, where each takes long
FOREST = 100  # trees for new rows
BLOCK = 2**20  # rows times trees times classes that are looked at together


class KeptTree:
    """What of a tree finds the leaf of a row: 14 bytes a node, a tenth of scikit-learn's."""

    def __init__(self, tree: Any):
        nodes = tree.__getstate__()["nodes"]
        self.columns, self.dtype, self.depth = tree.n_features, nodes.dtype, tree.max_depth
        self.feature, self.right = nodes["feature"].astype("i4"), nodes["right_child"].astype("i4")
        # Rows are in single precision, so the next lower threshold there sends them the same way.
        self.threshold = nodes["threshold"].astype("f4")
        higher = self.threshold > nodes["threshold"]
        self.threshold[higher] = np.nextafter(self.threshold[higher], np.float32(-np.inf))
        self.missing = nodes["missing_go_to_left"].astype(bool)

    def apply(self, X: Any) -> np.ndarray:
        """The leaf of each row, by scikit-learn's own tree."""
        from sklearn.tree._tree import Tree

        nodes = np.zeros(len(self.right), self.dtype)
        inner = self.right >= 0
        nodes["left_child"] = np.where(inner, np.arange(1, len(inner) + 1), -1)  # depth first
        nodes["right_child"], nodes["feature"] = self.right, self.feature
        nodes["threshold"], nodes["missing_go_to_left"] = self.threshold, self.missing
        tree = Tree(self.columns, np.ones(1, np.intp), 1)
        tree.__setstate__({
            "max_depth": self.depth, "node_count": len(nodes), "nodes": nodes,
            "values": np.zeros((len(nodes), 1, 1)),
        })  # fmt: skip
        return tree.apply(X)


class Grown(NamedTuple):
    """Some trees, and who shares a leaf of theirs."""

    nodes: np.ndarray  # how many each tree has
    leaves: np.ndarray  # (rows of the task, trees); nodes of all these trees are counted through
    kept: list[KeptTree]  # the first of the trees

    def means(self, values: np.ndarray, train: np.ndarray) -> tuple[np.ndarray, csr_matrix]:
        """The mean of each node over the rows of `train`, and the nodes (columns) of rows."""
        rows, trees = self.leaves.shape
        ones, starts = np.ones(self.leaves.size, np.float32), np.arange(rows + 1) * trees
        sharing = csr_matrix((ones, self.leaves.ravel(), starts), shape=(rows, self.nodes.sum()))
        learned = np.zeros(values.shape, np.float32)  # finer than votes of some trees are
        learned[train] = values[train]
        found = sharing.T @ learned
        found /= np.maximum(found.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return found, sharing

    def of_kept(self) -> Grown:
        """The same of the trees that are kept."""
        some = slice(len(self.kept))
        return Grown(self.nodes[some], self.leaves[:, some], self.kept)


class Trees:
    """A forest for each pair of folds."""

    name = "trees"

    def __init__(self) -> None:
        self.grown: dict[tuple[int, int], list[Grown]] = {}
        self.forest: list[tuple[KeptTree, np.ndarray]] = []  # trees, and what their nodes predict

    def first(self, task: Task) -> np.ndarray:
        """Grow, and learn the given labels; see Model."""
        self.grown, coarse = {}, _coarse(task)
        given, pairs, random = _given(task), coarse.pairs(), np.random.RandomState(task.seed)
        # Each row's fold is in so many pairs.
        count = FEW_TREES if issparse(task.X) else ceil(TREES / (coarse.folds - 1))
        kept = ceil(FOREST / (coarse.folds * (coarse.folds - 1) / 2))

        def predicted(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
            grown = self.grown[next(pairs)] = grow(task, train, count, random, kept)
            return _mean(grown, given, train, rows)

        # Who has seen none of a group's folds has not seen any one of them either.
        return out_of_fold(coarse, predicted)[np.arange(task.folds) % coarse.folds]

    def second(self, task: Task, targets: Targets) -> np.ndarray:
        """Learn what labels probably should be, in the same leaves; see Model."""
        found = np.zeros((len(task.label), task.classes))
        believed = np.zeros((len(task.label), task.classes))
        coarse = _coarse(task)
        for fold in range(task.folds):
            task.check_time()
            train, rows = np.flatnonzero(task.fold != fold), np.flatnonzero(task.fold == fold)
            target = targets(fold) * task.weight[:, None]
            believed[train] += target[train]
            own = fold % coarse.folds
            unseen = [part for pair in self.grown if own in pair for part in self.grown[pair]]
            found[rows] = _mean(unseen, target, train, rows)
        self.forest, every = [], np.arange(len(task.label))
        for part in (part.of_kept() for several in self.grown.values() for part in several):
            if part.kept:
                means = part.means(believed, every)[0].astype(np.float32)
                each = np.split(means, np.cumsum(part.nodes)[:-1])
                self.forest += zip(part.kept, each, strict=True)
        return found

    def probabilities(self, X: Any) -> np.ndarray:
        """By the trees that were kept."""
        votes = sum(values[tree.apply(X)] for tree, values in self.forest)
        return _with_a_doubt(votes / len(self.forest), len(self.forest))

    def forget(self) -> None:
        """Let go of who shares a leaf with whom."""
        self.grown = {}


def _coarse(task: Task) -> Task:
    """With the folds that trees have: on sparse columns no more than on many rows."""
    return coarser(task, FEWEST) if issparse(task.X) else task


def grow(
    task: Task, train: np.ndarray, count: int, random: np.random.RandomState, kept: int
) -> list[Grown]:
    """Trees of the given labels of some rows; the first `kept` of them stay."""
    X, label, weight = task.X[train], task.label[train], task.weight[train].astype(float)
    target = label.astype(float)[:, None]
    if (weight == weight[0]).all():
        weight = None
    if issparse(X):
        X = X.tocsc()
        X.sort_indices()
    most, found = max(1, BLOCK // (len(task.label) * task.classes)), []
    for start in range(0, count, most):
        task.check_time()
        several = range(min(most, count - start))
        trees = [_tree(X, target, weight, task.classes, random) for _ in several]
        found.append(_grown(trees, task.X, max(0, kept - start)))
    return found


def _tree(
    X: Any, target: np.ndarray, weight: np.ndarray | None, classes: int,
    random: np.random.RandomState,
) -> Any:  # fmt: skip
    """One of scikit-learn's extra trees.

    Its class takes as long to look at the labels of a few hundred rows as it does to grow, and does
    so for every tree. What it then calls is called here; where another release calls it otherwise,
    the class is asked.
    """
    from sklearn import tree

    try:
        codes = np.array([classes], np.intp)
        criterion = tree._criterion.Gini(1, codes)
        most = max(1, int(X.shape[1] ** 0.5))
        splitter = tree._splitter.RandomSplitter
        if issparse(X):
            splitter = tree._splitter.RandomSparseSplitter
        grown = tree._tree.Tree(X.shape[1], codes, 1)
        builder = tree._tree.DepthFirstTreeBuilder(
            splitter(criterion, most, 1, 0.0, random, None), 2, 1, 0.0, DEEPEST, 0.0
        )
        builder.build(grown, X, target, weight, None)
        return grown
    except (AttributeError, TypeError):
        one = tree.ExtraTreeClassifier(max_features="sqrt", random_state=random)
        return one.fit(X, target, sample_weight=weight).tree_


def _grown(trees: list[Any], X: Any, kept: int) -> Grown:
    nodes = np.array([tree.node_count for tree in trees])
    before = np.cumsum(nodes) - nodes
    leaves = [tree.apply(X) + start for tree, start in zip(trees, before, strict=True)]
    found = np.stack(leaves, axis=1).astype(np.int32)
    return Grown(nodes, found, [KeptTree(tree) for tree in trees[:kept]])


def _given(task: Task) -> np.ndarray:
    return np.eye(task.classes)[task.label] * task.weight[:, None]


def _mean(
    several: list[Grown], values: np.ndarray, train: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """The mean over trees of the mean over the rows of `train` in the same leaf."""
    total = np.zeros((len(rows), values.shape[1]))
    for part in several:
        means, sharing = part.means(values, train)
        total += sharing[rows] @ means
    trees = sum(len(part.nodes) for part in several)
    return _with_a_doubt(total / trees, trees)


def _with_a_doubt(votes: np.ndarray, trees: int) -> np.ndarray:
    """Of few trees none may have voted for a class: as if there were one more, undecided."""
    return (trees * votes + 1 / votes.shape[1]) / (trees + 1)
