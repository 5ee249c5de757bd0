"""`LabelCleaner`: which labels are wrong, and a classifier that is not misled by them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from untuned.estimators.cleaning import labelled_rows, noise
from untuned.estimators.cleaning.labelled_rows import Table
from untuned.util import interrupts, limits, threads

if TYPE_CHECKING:
    from untuned.estimators.cleaning.two_rounds import Fitted


class LabelCleaner(ClassifierMixin, BaseEstimator):
    """Find wrong labels, and learn a classifier that is not misled by them.

    Base models of several kinds, the judges, give out-of-fold probabilities. The weight of each
    model, how often labels are wrong and which class is taken for which are learned from how well
    they predict given labels, and from trusted rows where there are any. The models then learn
    again from what the labels probably should be.

    Parameters
    ----------
    judge : "auto", "linear", classifier, or list of these, default="auto"
        The base models. "auto" takes linear models and trees, and drops those that do not help;
        linear models alone where X is sparse. A classifier is one of scikit-learn's kind,
        with `predict_proba`. In a list, "linear", "neighbours", "trees" and "boosting" may stand
        beside classifiers.
    folds : int or "auto", default="auto"
        Each row is predicted by models that have not seen it, nor the other rows of its fold.
        More folds take longer, and help where rows are few: "auto" takes up to 8 below 2,000 rows,
        as long as that adds no more than about a second, and else 4.
    method : str or solver, default="auto"
        How the ridge of linear models is searched for: "auto" is a search by secants, anything else
        a method of `untuned.minimize`.
    max_steps : int, default=4
        Steps of the search for the ridge of linear models, in each round.
    max_seconds : float or None, default=None
        Time for the whole fit. A model that is not trained by then is left out; the first one is
        trained in any case.
    random_state : int, RandomState instance or None, default=None
        For the folds and for models that draw at random.
    verbose : bool, default=False
        Whether to show a live bar.

    Attributes
    ----------
    quality_ : ndarray of shape (n_samples,)
        Probability that the given label is right, from models that have not seen it.
    issues_ : ndarray of int
        Rows worth a look, the worst first: as many as make the expected F1 largest, the balance of
        wrong labels found and right ones looked at in vain. Where wrong labels are easy to tell,
        these are the rows of quality below 0.5; where they are not, more.
    suggested_ : ndarray of shape (n_samples,)
        The given label, or the most probable other one where the quality is below 0.5.
    alternative_ : ndarray of shape (n_samples,)
        The most probable label other than the given one.
    weights_ : ndarray of shape (n_samples,)
        How much the given label counted in training, in [0, 1]; the rest went to other classes.
    judges_ : dict
        The base models, and the weight of each in the end; 0 if it did not help.
    disputed_ : ndarray of int
        Rows that models take for another class, given labels left aside; the lowest quality first.
        People err where classes look alike. Nothing tells such errors from classes that overlap,
        so they are here, and mostly not in `issues_`.
    noise_rate_ : float
        Estimated share of wrong labels.
    noise_range_ : tuple of two floats
        The smallest share that explains the labels about as well, and that of `disputed_`.
    sure_share_ : float
        Share of rows that models take for one class with a probability of 0.9 or more, given labels
        left aside. Below a half, overlapping classes and wrong labels look alike: `noise_rate_` may
        then be far off, and trusted rows help.
    transition_ : ndarray of shape (n_classes, n_classes)
        Estimated probability of each given label (columns) for each true one (rows).
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Of the linear model, whatever its weight; not there if there is none.
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
    regularization_ : ndarray of shape (1,)
        The ridge that the linear model learned.
    result_ : untuned.Result
        The search for the weights of the models.
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
        judge: Any = "auto",
        folds: int | str = "auto",
        *,
        method: Any = "auto",
        max_steps: int = 4,
        max_seconds: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.judge = judge
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
    @threads.by_rows
    def fit(
        self,
        X: Any,
        y: Any,
        X_trusted: Any = None,
        y_trusted: Any = None,
        pred_probs: Any = None,
        sample_weight: Any = None,
    ) -> LabelCleaner:
        """Learn which of the labels y of the rows X are wrong.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_samples, n_features)
            Or None, where `pred_probs` is given. A sparse matrix is never made dense.
        y : labels of shape (n_samples,), some of them wrong
        X_trusted, y_trusted : rows and labels that are known to be right, or None. A few for
            each class help; with None, the noisy rows alone are used.
        pred_probs : array of shape (n_samples, n_classes), or None
            Probabilities of one's own model for rows it was not trained on, columns in the order of
            sorted classes: one more base model, or the only one if X is None.
        sample_weight : array of shape (n_samples,), or None
            Of the rows of X. A row of weight 0 has a quality, and is not learned from.
        """
        from untuned import solvers
        from untuned.estimators.cleaning import two_rounds
        from untuned.estimators.cleaning.cross_fit import Settings
        from untuned.run import check_settings

        began = time.monotonic()
        labelled_rows.check_settings(self.folds, self.max_seconds)
        check_settings(
            solvers.get(self.method)() if isinstance(self.method, str) else self.method,
            self.max_steps, None, None, 0, None, None,
        )  # fmt: skip
        seconds = np.inf if self.max_seconds is None else float(self.max_seconds)
        settings = Settings(self.method, self.max_steps, bool(self.verbose), began, seconds)
        asked = two_rounds.models_named(self.judge)
        X, given, weight = self._checked(X, y, pred_probs, sample_weight)
        P = pred_probs
        if P is not None:
            P = labelled_rows.check_probabilities(P, len(given), self.classes_)
            labelled_rows.check_unseen(P, given)
        random = check_random_state(self.random_state)
        classes = len(self.classes_)
        if X is None:
            if X_trusted is not None or y_trusted is not None:
                raise ValueError(
                    "X_trusted came without X; give X as well, or probabilities alone."
                )
            place = np.arange(len(given))
            seed = random.randint(2**31 - 1)
            fitted = two_rounds.fit_probabilities(P, given, weight, classes, seed, settings)
        else:
            table = self._table(X, given, weight, X_trusted, y_trusted)
            merged = labelled_rows.merge(table)
            labelled_rows.check_rows_differ(merged)
            task = two_rounds.task_of(table, merged, classes, self.folds, random, settings)
            place = merged.place[: len(given)]
            del table  # its rows may be a copy, and the task has its own
            yours = None if P is None else labelled_rows.means(P, place, len(merged.first))
            automatic = isinstance(self.judge, str) and self.judge == "auto"
            fitted = two_rounds.fit(task, asked, automatic, yours)
        self._keep(fitted)
        self._rate(fitted, X, given, place)
        rate = self.noise_rate_ = float(np.average(1 - self.quality_, weights=weight))
        disputed = float(weight[self.disputed_].sum() / weight.sum())
        self.noise_range_ = min(fitted.least_rate, rate), max(disputed, rate)
        sure = fitted.probabilities[place].max(axis=1) >= noise.DECIDED
        self.sure_share_ = float(np.average(sure, weights=weight))
        return self

    def _checked(
        self, X: Any, y: Any, pred_probs: Any, sample_weight: Any
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """X, numbers of the classes of y, and weights."""
        labelled_rows.check_labels_present(y, "y")
        if X is None and pred_probs is not None:
            y = column_or_1d(y, warn=True)
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
        else:
            X, y = validate_data(self, X, y, accept_sparse="csr", ensure_min_samples=2)
            limits.check(X, "X")
        check_classification_targets(y)
        weight = labelled_rows.checked_weights(sample_weight, y if X is None else X)
        self.classes_, given = np.unique(y, return_inverse=True)
        labelled_rows.check_classes(self.classes_, given, weight)
        return X, given, weight

    def _table(
        self, X: Any, given: np.ndarray, weight: np.ndarray, X_trusted: Any, y_trusted: Any
    ) -> Table:
        X = labelled_rows.in_float32(X)
        trusted = np.zeros(len(given), bool)
        if X_trusted is None and y_trusted is None:
            return Table(X, given, weight, trusted)
        names = getattr(self, "feature_names_in_", None)
        features, true = labelled_rows.trusted_rows(
            X_trusted, y_trusted, names, X.shape[1], self.classes_
        )
        return Table(
            labelled_rows.below(X, labelled_rows.in_float32(features)),
            np.r_[given, true],
            np.r_[weight, np.ones(len(true))],
            np.r_[trusted, np.ones(len(true), bool)],
        )

    def _keep(self, fitted: Fitted) -> None:
        self._fitted = fitted
        self.judges_ = dict(fitted.weights)
        self.transition_, self.result_ = fitted.transition, fitted.pool.result
        for name in ("coef_", "intercept_", "regularization_"):
            self.__dict__.pop(name, None)
        if fitted.linear is not None:
            coef, intercept = fitted.linear.coefficients()
            coef = coef.T
            if len(self.classes_) == 2:
                coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
            self.coef_, self.intercept_ = coef, intercept
            self.regularization_ = np.array([fitted.linear.ridge])

    def _rate(self, fitted: Fitted, X: Any, given: np.ndarray, place: np.ndarray) -> None:
        """Quality, issues and suggestions for the rows as they came."""
        unused = place < 0  # nothing was learned from these, so the models of all rows predict them
        probabilities = fitted.probabilities[place]
        if unused.any():
            probabilities[unused] = self.predict_proba(X[unused])
        posterior = noise.posterior(probabilities, fitted.transition, given)
        own = np.arange(len(given)), given
        self.quality_ = posterior[own]
        self.weights_ = np.where(unused, self.quality_, fitted.believed[place])
        self.issues_ = noise.suspects(self.quality_)
        worst = np.argsort(self.quality_, kind="stable")
        self.disputed_ = worst[(probabilities.argmax(axis=1) != given)[worst]]
        posterior[own] = -1
        other = posterior.argmax(1)
        self.alternative_ = self.classes_[other]
        self.suggested_ = self.classes_[np.where(self.quality_ < 0.5, other, given)]

    @threads.by_rows
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of shape (n_samples, n_classes), or log-odds (n_samples,) for two classes."""
        check_is_fitted(self)
        if not hasattr(self, "n_features_in_"):
            raise ValueError(
                "This LabelCleaner was fitted with probabilities and no X, so it cannot judge new "
                "rows; fit it with X, or ask your own model."
            )
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        scores = self._fitted.scores(labelled_rows.in_float32(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the true label, of shape (n_samples, n_classes)."""
        from untuned.closed_form.losses import softmax

        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, 1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable true label."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        return self.classes_[best]
