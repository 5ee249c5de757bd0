"""`LabelCleaner`: which labels are wrong, and a classifier that is not misled by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from untuned.estimators.cleaning import labelled_rows, noise
from untuned.estimators.cleaning.labelled_rows import Table
from untuned.util import interrupts, limits

if TYPE_CHECKING:
    from untuned.estimators.cleaning.rounds import Cleaned


class LabelCleaner(ClassifierMixin, BaseEstimator):
    """Find wrong labels, and learn a linear classifier that is not misled by them.

    Every row gets a weight, and how weights follow from the evidence about a label is learned
    together with the ridge, so that models predict rows they have not seen: trusted rows, where
    there are some, and the noisy rows themselves, allowing for how often labels are wrong.

    Parameters
    ----------
    folds : int, default=3
        Each row's label is judged by a model that has not seen it, nor the other rows of its
        fold. More folds take longer, and judge a little better where rows are few.
    method : str or solver, default="auto"
        The method of `untuned.minimize`.
    max_steps : int, default=4
        Steps of the method in each round of cleaning.
    max_seconds : float or None, default=None
        Time after which no further round is begun.
    random_state : int, RandomState instance or None, default=None
        For the folds.
    verbose : bool, default=False
        Whether to show a live bar.

    Attributes
    ----------
    quality_ : ndarray of shape (n_samples,)
        Probability that the given label is right, from models that have not seen it.
    issues_ : ndarray of int
        Rows whose label is more likely wrong than right, the worst first.
    suggested_ : ndarray of shape (n_samples,)
        The given label, or for `issues_` the most probable other one.
    weights_ : ndarray of shape (n_samples,)
        The weights in [0, 1] the classifier was trained with.
    noise_rate_ : float
        Estimated share of wrong labels.
    transition_ : ndarray of shape (n_classes, n_classes)
        Estimated probability of each given label (columns) for each true one (rows).
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
    regularization_ : ndarray of shape (1,)
        The ridge on coefficients of standardised features that was learned.
    result_ : untuned.Result
        The last round's run.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X has column names

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from untuned.estimators import LabelCleaner
    >>> X, y = load_wine(return_X_y=True)
    >>> y[[5, 100, 160]] = [1, 2, 0]   # three labels made wrong
    >>> cleaner = LabelCleaner(random_state=0).fit(X, y)
    >>> sorted(cleaner.issues_.tolist())
    [5, 100, 160]
    >>> cleaner.suggested_[[5, 100, 160]]
    array([0, 1, 2])
    """

    def __init__(
        self,
        folds: int = 3,
        *,
        method: Any = "auto",
        max_steps: int = 4,
        max_seconds: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.folds = folds
        self.method = method
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @interrupts.passed_on()
    def fit(
        self,
        X: Any,
        y: Any,
        X_trusted: Any = None,
        y_trusted: Any = None,
        sample_weight: Any = None,
    ) -> LabelCleaner:
        """Judge the labels y of the rows X.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_samples, n_features)
        y : labels of shape (n_samples,), some of them wrong
        X_trusted, y_trusted : rows and labels that are known to be right, or None. A few for
            each class help; with None, the noisy rows alone are used.
        sample_weight : array of shape (n_samples,), or None
            Of the rows of X. A row of weight 0 is judged, and not learned from.
        """
        labelled_rows.check_settings(self.folds, self.max_seconds)
        labelled_rows.check_labels_present(y, "y")
        X, y = validate_data(self, X, y, accept_sparse="csr", ensure_min_samples=2)
        check_classification_targets(y)
        limits.check(X, "X")
        weight = labelled_rows.checked_weights(sample_weight, X)
        self.classes_, given = np.unique(y, return_inverse=True)
        labelled_rows.check_classes(self.classes_, given, weight)
        table = Table((X,), given, weight, np.zeros(len(given), bool))
        if X_trusted is not None or y_trusted is not None:
            names = getattr(self, "feature_names_in_", None)
            features, true = labelled_rows.trusted_rows(
                X_trusted, y_trusted, names, X.shape[1], self.classes_
            )
            table = Table(
                (X, features),
                np.r_[given, true],
                np.r_[weight, np.ones(len(true))],
                np.r_[table.trusted, np.ones(len(true), bool)],
            )
        from untuned.estimators.cleaning.rounds import clean

        merged = labelled_rows.merge(table)
        labelled_rows.check_rows_differ(merged)
        cleaned = clean(
            table, merged, len(self.classes_), self.folds, check_random_state(self.random_state),
            max_seconds=self.max_seconds, method=self.method, max_steps=self.max_steps,
            progress=bool(self.verbose),
        )  # fmt: skip
        self._keep_model(cleaned)
        self._judge(cleaned, X, given, merged.place[: len(given)])
        self.noise_rate_ = float(np.average(1 - self.quality_, weights=weight))
        return self

    def _keep_model(self, cleaned: Cleaned) -> None:
        coef, intercept = cleaned.coef.T, cleaned.intercept
        if len(self.classes_) == 2:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        self.coef_, self.intercept_ = coef, intercept
        self.regularization_ = np.array([cleaned.learned.ridge])
        self.transition_, self.result_ = cleaned.transition, cleaned.result

    def _judge(self, cleaned: Cleaned, X: Any, given: np.ndarray, place: np.ndarray) -> None:
        """Quality, issues and suggestions for the rows as they came."""
        from untuned.estimators.cleaning.rounds import as_evidence, of_given

        unused = place < 0  # nothing was learned from these, so the model of all rows may judge
        probabilities = cleaned.probabilities[place]
        if unused.any():
            probabilities[unused] = self.predict_proba(X[unused])
        posterior = noise.posterior(probabilities, cleaned.transition, given)
        self.quality_ = of_given(posterior, given)
        evidence = np.where(unused, as_evidence(self.quality_), cleaned.evidence[place])
        self.weights_ = expit(cleaned.learned.slope * evidence + cleaned.learned.offset)
        suspect = np.flatnonzero(self.quality_ < 0.5)
        self.issues_ = suspect[np.argsort(self.quality_[suspect], kind="stable")]
        posterior[np.arange(len(given)), given] = -1
        best = given.copy()
        best[suspect] = posterior[suspect].argmax(1)
        self.suggested_ = self.classes_[best]

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of shape (n_samples, n_classes), or (n_samples,) for two classes."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the true label, of shape (n_samples, n_classes)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable true label."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        return self.classes_[best]
