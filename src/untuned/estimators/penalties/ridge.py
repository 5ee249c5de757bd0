"""Ridge regression that finds its own penalty strengths."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from untuned.estimators.penalties.base import BilevelLinear
from untuned.util import interrupts, limits, threads
from untuned.util.wording import brief


class BilevelRidge(RegressorMixin, BilevelLinear):
    """Ridge regression that finds its own penalty strengths by cross-validation.

    As `BilevelLogisticRegression`, with squared errors: minimizes
    sum (y - X w - b)^2 + sum_j s_j w_j^2 with the strengths s that predict unseen rows best.

    Parameters
    ----------
    penalty : {"feature", "target", "all"}, sequence or mapping, default="feature"
        As in `BilevelLogisticRegression`; "target" for one strength per column of y.
    cv, method, max_steps, max_seconds, random_state, verbose
        As in `BilevelLogisticRegression`; folds are not stratified. With cv=None one strength is
        chosen by leaving out each row once, in closed form, and all rows are used.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), or (n_targets, n_features) where y has columns
    intercept_ : float, or ndarray of shape (n_targets,)
    regularization_ : ndarray of shape (n_groups,)
        The strengths, of standardised features, in the units of `alpha` of `Ridge`.
    groups_, result_, n_iter_, path_, n_features_in_, feature_names_in_
        As in `BilevelLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from untuned.estimators import BilevelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BilevelRidge(penalty="all", cv=3, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.5
    True
    """

    _column = "target"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @interrupts.passed_on()
    @threads.by_rows
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BilevelRidge:
        """Find the strengths, and fit the model with them to all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : BilevelRidge
        """
        began = time.perf_counter()
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], multi_output=True,
            y_numeric=True,
        )  # fmt: skip
        if len(y) < 2:
            raise ValueError("X has n_samples=1; expected at least two rows, to judge by one.")
        target = as_numbers(y).reshape(len(y), -1)
        limits.check(X, "X")
        limits.check(target, "y")
        weight = self._weights(sample_weight, X)
        # Strengths do not depend on the targets' units; of one size, targets count alike.
        mean = np.average(target, axis=0, weights=weight)
        spread = np.average((target - mean) ** 2, axis=0, weights=weight) ** 0.5
        spread = np.where(spread > 0, spread, 1.0)
        strata = np.zeros(len(y), np.int64)
        coef, intercept = self._search(
            "squared",
            X,
            (target - mean) / spread,
            strata,
            range(target.shape[1]),
            weight,
            began,
        )
        coef = limits.in_dtype(coef * spread[:, None], X.dtype)
        intercept = limits.in_dtype(intercept * spread + mean, X.dtype)
        self.coef_ = coef[0] if np.ndim(y) == 1 else coef
        self.intercept_ = intercept[0] if np.ndim(y) == 1 else intercept
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The expected target of each row."""
        return self._outputs(X)


def as_numbers(y: Any) -> np.ndarray:
    """The targets as numbers; scikit-learn lets text and None through."""
    try:
        target = np.asarray(y, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y holds {brief(np.ravel(y)[0])}; expected numbers, so convert it, or give classes to "
            "BilevelLogisticRegression."
        ) from None
    missing = np.isnan(target).sum()
    if missing:
        raise ValueError(
            f"Input y contains NaN or None in {missing} of {target.size} targets; leave those rows "
            "out."
        )
    return target
