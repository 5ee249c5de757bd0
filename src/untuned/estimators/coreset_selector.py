"""`CoresetSelector`: the few rows of a table that are worth training on."""

from __future__ import annotations

import math
import numbers
import time
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from untuned.coreset import baselines
from untuned.util import interrupts, limits, threads
from untuned.util.wording import brief, unknown

STRATEGIES = ("bilevel", "herding", "kmeans", "uniform")
FEATURES = ("kernel", "linear")
MOST_ROWS = 20_000  # looked at; more rows hardly tell more about one model
ROWS_PER_CHOSEN = 4  # looked at, at least
MOST_ENTRIES = 2**26  # of a dense copy
COMPONENTS = 300  # of kernel features


class CoresetSelector(BaseEstimator):
    """Choose the few rows on which a classifier trains almost as well as on all of them.

    Rows are exchanged until logistic regression trained on the chosen ones has the least loss on
    *all* rows. Then each chosen row gets a weight, by the same measure. Train on
    `X[indices_], y[indices_]`, with `sample_weight=weights_[indices_]` or without.

    Parameters
    ----------
    size : int or float, default=0.1
        How many rows: a number, or a share between 0 and 1. Where it is at least the
        number of classes, "bilevel" and "herding" give every class a row; "uniform" and
        "kmeans" do not look at labels and may miss a class.
    strategy : {"bilevel", "uniform", "kmeans", "herding"}, default="bilevel"
        "bilevel" is what is described above. The others look at no model: random rows; the rows
        nearest to the centres of clusters, weighted by their numbers of rows; per
        class, rows whose mean follows the mean of the class.
    features : {"linear", "kernel"}, default="linear"
        Of standardised columns as they are, or of a Gaussian kernel (Nystroem, 300 components):
        for coresets of models that are not linear.
    method : str or solver, default="auto"
        How "bilevel" chooses rows. "auto" exchanges rows; another method of `untuned.minimize`
        solves the paper's problem: weights on the simplex and a smoothed top-K regularizer.
    max_steps : int, default=300
        Most steps of the choice.
    max_seconds : float, default=None
        Limit to the time of `fit`, of which compiling is a part that cannot be cut short: a few
        seconds in a process's first `fit`.
    random_state : int, RandomState or None, default=None
        Draws the rows to begin with, and those looked at where there are more than 20,000.
    verbose : bool, default=False
        True for a live bar.

    Attributes
    ----------
    indices_ : ndarray of shape (size,)
        The chosen rows, the most important first.
    weights_ : ndarray of shape (n_samples,)
        In [0, 1]; 0 for rows that are not chosen.
    result_ : untuned.Result or None
        The run that chose the rows; None for strategies without one.
    classes_ : ndarray
        The labels.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from untuned.estimators import CoresetSelector
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = CoresetSelector(size=6, random_state=0).fit(X, y)
    >>> sorted({int(label) for label in y[selector.indices_]})
    [0, 1, 2]
    """

    def __init__(
        self, size: Any = 0.1, *, strategy: str = "bilevel", features: str = "linear",
        method: Any = "auto", max_steps: int = 300, max_seconds: float | None = None,
        random_state: Any = None, verbose: bool = False,
    ):  # fmt: skip
        self.size = size
        self.strategy = strategy
        self.features = features
        self.method = method
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    @interrupts.passed_on()
    @threads.by_rows
    def fit(self, X: Any, y: Any) -> CoresetSelector:
        """Choose rows of X, whose labels are y."""
        began = time.monotonic()
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        if self.features not in FEATURES:
            raise unknown("kind of features", self.features, FEATURES)
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float32, np.float64], ensure_min_samples=2
        )
        check_classification_targets(y)
        limits.check(X, "X")
        self.classes_, label = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {brief(self.classes_[0])}; expected at least two, so "
                "that there is something to tell apart."
            )
        size = self._checked_size(len(label))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rng = np.random.default_rng(seed)

        order = _one_of_each_class_first(label, rng)
        seen = order[: _rows_to_look_at(X.shape, size)]
        self.result_ = None
        if self.strategy == "uniform":
            rows, weights = baselines.uniform(len(label), size, rng)
        elif size == len(label):
            rows, weights = seen, np.ones(size)
        else:
            table = self._table(X, seen, seed)
            chosen, weights = self._select(table, label[seen], size, seed, rng, began)
            rows = seen[chosen]
        self.indices_ = rows
        self.weights_ = np.zeros(len(label))
        self.weights_[rows] = weights
        return self

    def fit_resample(self, X: Any, y: Any) -> tuple[Any, Any]:
        """The chosen rows of X and y, after `fit`; as imbalanced-learn's samplers have it."""
        self.fit(X, y)
        return _safe_indexing(X, self.indices_), _safe_indexing(y, self.indices_)

    def _select(
        self, table: np.ndarray, label: np.ndarray, size: int, seed: int,
        rng: np.random.Generator, began: float,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        if self.strategy == "kmeans":
            return baselines.k_means(table, size, rng)
        if self.strategy == "herding":
            return baselines.herding(table, label, size, rng)
        from untuned.coreset import bilevel

        # The rows come in random order, one of each class first.
        starts = [np.arange(size), baselines.herding(table, label, size, rng)[0]]
        found = bilevel.select(
            table, label, len(self.classes_), starts, self.method,
            max_steps=self.max_steps, max_seconds=self.max_seconds, began=began, seed=seed,
            progress=bool(self.verbose),
        )  # fmt: skip
        self.result_ = found.result
        return found.rows, found.weights

    def _checked_size(self, rows: int) -> int:
        size = self.size
        is_number = isinstance(size, numbers.Real) and not isinstance(size, bool | np.bool_)
        if not (is_number and math.isfinite(size) and size > 0):
            raise ValueError(
                f"size={brief(size)} is not usable; expected a whole number of rows from 1 up, or "
                "a share between 0 and 1, for example size=0.1."
            )
        if size < 1:
            return max(1, round(size * rows))
        if size != int(size):
            raise ValueError(
                f"size={brief(size)} is neither a whole number of rows nor a share below 1; "
                f"give size={int(size)} for that many rows."
            )
        if size == 1 and not isinstance(size, numbers.Integral):
            raise ValueError(
                f"size={brief(size)} may mean one row or all of them; give size=1 or size={rows}."
            )
        if size > rows:
            raise ValueError(
                f"size={brief(size)} is above the {rows} rows that X has; expected at most as many."
            )
        return int(size)

    def _table(self, X: Any, seen: np.ndarray, seed: int) -> np.ndarray:
        """The rows looked at, dense, each column of mean 0 and variance 1; or kernel features."""
        table = np.empty((len(seen), X.shape[1]), np.float32)
        part = X[seen] if sparse.issparse(X) else X
        block = max(1, 2**20 // X.shape[1])
        blocks = [slice(start, start + block) for start in range(0, len(seen), block)]

        def rows(block: slice) -> np.ndarray:
            if sparse.issparse(X):
                return part[block].toarray().astype(float)
            return part[seen[block]].astype(float)

        mean = sum(rows(block).sum(axis=0) for block in blocks) / len(seen)
        square = sum(((rows(block) - mean) ** 2).sum(axis=0) for block in blocks) / len(seen)
        # Where a column varies by rounding only, dividing would make it noise.
        constant = square <= (1e-6 * np.abs(mean)) ** 2
        scale = np.where(constant, 1.0, np.sqrt(square))
        for block in blocks:
            table[block] = np.where(constant, 0.0, (rows(block) - mean) / scale)
        if self.features == "linear":
            return table
        from sklearn.kernel_approximation import Nystroem

        kernel = Nystroem(n_components=min(COMPONENTS, len(seen)), random_state=seed)
        return kernel.fit_transform(table).astype(np.float32)


def _rows_to_look_at(shape: tuple[int, int], size: int) -> int:
    """How many rows a choice of `size` considers."""
    affordable = min(MOST_ROWS, MOST_ENTRIES // shape[1])
    return min(shape[0], max(affordable, ROWS_PER_CHOSEN * size))


def _one_of_each_class_first(label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """All rows in random order, but for the first row of every class, which comes before."""
    order = rng.permutation(len(label))
    first = np.unique(label[order], return_index=True)[1]
    return np.concatenate([order[np.sort(first)], np.delete(order, first)])
