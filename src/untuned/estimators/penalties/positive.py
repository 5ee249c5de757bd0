"""Regressions of counts and of positive numbers, with a log link, that find their own penalties."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from untuned.estimators.penalties.base import WithNorm
from untuned.estimators.penalties.ridge import as_numbers
from untuned.util import interrupts, limits
from untuned.util.wording import brief


class BilevelPositive(RegressorMixin, WithNorm):
    """What the two share: means are exp(X w + b)."""

    _loss = "poisson"
    _column = "target"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    @interrupts.passed_on()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Find the strengths, and fit the model with them to all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self
        """
        began = time.perf_counter()
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True
        )
        if len(y) < 2:
            raise ValueError("X has n_samples=1; expected at least two rows, to judge by one.")
        target = as_numbers(y)
        limits.check(X, "X")
        limits.check(target, "y")
        self._check(target)
        weight = self._weights(sample_weight, X)
        mean = np.average(target, weights=weight)
        if not mean > 0:
            raise ValueError("y is zero in every row; expected some counts above zero.")
        coef, intercept = self._search(
            self._loss,
            X,
            (target / mean)[:, None],
            np.zeros(len(y), np.int64),
            ["y"],
            weight,
            began,
        )
        self.coef_ = limits.in_dtype(coef[0], X.dtype)
        self.intercept_ = limits.in_dtype(intercept[0] + np.log(mean), X.dtype)
        if self._loss == "poisson":  # its deviance has the units of y
            self.regularization_ = self.regularization_ * mean
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The expected target of each row."""
        outputs = self._outputs(X)
        return np.exp(np.minimum(outputs, np.log(np.finfo(outputs.dtype).max)))

    def _check(self, target: np.ndarray) -> None:
        if target.min() < 0:
            raise ValueError(
                f"y holds {brief(float(target.min()))}; expected counts of zero or more, so leave "
                "those rows out or use BilevelRidge."
            )


class BilevelPoisson(BilevelPositive):
    """Regression of counts, with a log link, that finds its own penalty strengths.

    Minimizes half the sum of the rows' Poisson deviances plus a penalty, where the mean of a row is
    exp(X w + b). The penalties are those of `BilevelLogisticRegression`.

    Parameters
    ----------
    penalty, norm, cv, method, max_steps, max_seconds, random_state, verbose
        As in `BilevelLogisticRegression`; folds are not stratified.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    regularization_ : ndarray of shape (n_groups,)
        The strengths, of standardised features: n_samples times `alpha` of `PoissonRegressor`.
    l1_ratio_, groups_, result_, n_iter_, path_, n_features_in_, feature_names_in_
        As in `BilevelLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from untuned.estimators import BilevelPoisson
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(200, 5))
    >>> model = BilevelPoisson(norm="l1", cv=3).fit(X, random.poisson(np.exp(X[:, 0])))
    >>> bool(0.8 < model.coef_[0] < 1.2)
    True
    """


class BilevelGamma(BilevelPositive):
    """Regression of positive numbers, with a log link, that finds its own penalty strengths.

    As `BilevelPoisson`, with Gamma deviances: errors grow with the mean.

    Parameters
    ----------
    penalty, norm, cv, method, max_steps, max_seconds, random_state, verbose
        As in `BilevelLogisticRegression`; folds are not stratified.

    Attributes
    ----------
    coef_, intercept_, regularization_, l1_ratio_, groups_, result_, n_iter_
        As in `BilevelPoisson`.

    Examples
    --------
    >>> import numpy as np
    >>> from untuned.estimators import BilevelGamma
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(200, 5))
    >>> model = BilevelGamma(penalty="all", cv=3).fit(X, random.gamma(3, np.exp(X[:, 0])))
    >>> bool(0.7 < model.coef_[0] < 1.2)
    True
    """

    _loss = "gamma"

    def _check(self, target: np.ndarray) -> None:
        if target.min() <= 0:
            raise ValueError(
                f"y holds {brief(float(target.min()))}; expected numbers above zero, so leave "
                "those rows out or use BilevelPoisson."
            )
