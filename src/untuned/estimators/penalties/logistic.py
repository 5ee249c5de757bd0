"""Logistic regression that finds its own penalty strengths."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from untuned.estimators.penalties.base import WithNorm
from untuned.util import interrupts, limits, threads
from untuned.util.wording import brief


class BilevelLogisticRegression(ClassifierMixin, WithNorm):
    """Logistic regression that finds its own penalty strengths by cross-validation.

    Minimizes the sum of the rows' log-losses plus 1/2 sum_j s_j w_j^2 over w, where the strengths s
    are those with the least log-loss on rows that w has not seen. There may be one strength per
    feature, since they follow gradients instead of a grid. So many could overfit: they are judged
    on rows that neither w nor s have seen. Where several strengths are not worth it there, or rows
    are fewer than 100, all are equal.

    Features are standardised inside, so strengths compare, and `coef_` is in the units of X.
    The intercept is not penalized.

    Parameters
    ----------
    penalty : {"feature", "class", "all"}, sequence or mapping, default="feature"
        Which coefficients share a strength: those of a feature, those of a class, all; or the group
        of each feature, as a sequence in the order of the columns or as a mapping from feature
        names (or positions) to names of groups.
    norm : {"l2", "l1", "elasticnet"}, default="l2"
        Squared penalties s_j w_j^2 / 2, absolute ones s_j |w_j|, which make coefficients zero, or
        s_j (rho |w_j| + (1 - rho) w_j^2 / 2) with a rho that is found too.
    cv : int, float, splitter or iterable, default=None
        The rows that judge: a number of stratified folds, the share of one stratified split, a
        scikit-learn splitter, or pairs (train, test) of row numbers. None: 5 folds, or 3 of more
        than 1024 features; of more than 16384 rows (or 10 per feature) that many are drawn for the
        search, and the model is then fitted to all.
    method : str or solver, default="auto"
        As in `untuned.minimize`.
    max_steps : int, default=100
        Most steps of each of the two searches, for one strength and for all of them.
    max_seconds : float, default=None
        Limit to the time of the search.
    random_state : int, RandomState or None, default=None
        Draws the folds.
    verbose : bool, default=False
        True for a live bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
    intercept_ : ndarray of shape (n_classes,), or (1,)
    regularization_ : ndarray of shape (n_groups,)
        The strengths, of standardised features, in the units of 1/C of `LogisticRegression`.
    groups_ : ndarray of shape (n_groups,)
        The features, classes or groups that the strengths belong to.
    l1_ratio_ : float
        rho, with norm="elasticnet".
    classes_ : ndarray of shape (n_classes,)
    result_ : untuned.Result
        The last search: its history, status and message.
    n_iter_ : int
        Steps of both searches.
    path_ : Path
        What `plot` shows: `strengths` that all groups had alike, `loss` and `error` of the rows
        held back, `coef`, and `found`, the strengths after each step.
    n_features_in_, feature_names_in_ : as in every scikit-learn estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from untuned.estimators import BilevelLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BilevelLogisticRegression(penalty="all", cv=3, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    """

    @interrupts.passed_on()
    @threads.by_rows
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BilevelLogisticRegression:
        """Find the strengths, and fit the model with them to all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : BilevelLogisticRegression
        """
        began = time.perf_counter()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        limits.check(X, "X")
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        codes, self.classes_ = encoder.transform(y), encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {brief(self.classes_[0])}; expected labels of at least "
                "two."
            )
        binary = len(self.classes_) == 2
        if binary:
            target, names = (2.0 * codes - 1)[:, None], self.classes_[1:]
        else:
            # By columns, as models want them: there may be very many rows.
            target = np.eye(len(self.classes_), dtype=np.float32)[:, codes].T
            names = self.classes_
        loss = "logistic" if binary else "softmax"
        weight = self._weights(sample_weight, X)
        found = self._search(loss, X, target, codes, names, weight, began)
        self.coef_, self.intercept_ = (limits.in_dtype(part, X.dtype) for part in found)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The logarithm of the odds: (n_samples,) for two classes, else (n_samples, n_classes)."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        outputs = self.decision_function(X)
        codes = (outputs > 0).astype(int) if outputs.ndim == 1 else outputs.argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class: (n_samples, n_classes), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of `predict_proba`."""
        from scipy.special import log_softmax

        outputs = self.decision_function(X)
        if outputs.ndim == 1:
            return -np.logaddexp(0, np.column_stack([outputs, -outputs]))
        return log_softmax(outputs, axis=1)
