"""Linear models that find their own penalty strengths: one per feature, class, group, or in all.

What they share, and the one for classes; the one for numbers is in ridge.py.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from untuned.estimators.penalties import folds, groups, standardisation
from untuned.util import interrupts, limits, threads
from untuned.util.wording import brief, unknown

NORMS = ("l2", "l1", "elasticnet")


class BilevelLinear(BaseEstimator):
    """What the two estimators share: parameters, the search, and outputs."""

    _column = "class"
    norm: Any = "l2"

    def __init__(
        self, *, penalty: Any = "feature", cv: Any = None, method: Any = "auto",
        max_steps: int = 100, max_seconds: float | None = None, random_state: Any = None,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        self.penalty = penalty
        self.cv = cv
        self.method = method
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _search(
        self, loss: str, X: Any, target: np.ndarray, strata: np.ndarray, names: Any,
        weight: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Coefficients (columns, features) in the units of X, and the intercepts."""
        from untuned.estimators.penalties import condensed, scaling, search

        settings = self._settings()
        columns = target.shape[1]
        feature_names = getattr(self, "feature_names_in_", None)
        chosen = groups.make(self.penalty, X.shape[1], columns, feature_names, names, self._column)
        random = np.random.default_rng(settings.seed)
        table = standardisation.make(X, weight)
        rows = search.Rows(loss, table, target.astype(table.X.dtype), weight)
        pack = loss == "squared" and condensed.applies(len(weight), X.shape[1], columns)
        part: Any = slice(None)
        if self.cv is None and not pack:
            part = folds.sample(strata, weight, X.shape[1], random)
        some, strata = rows, strata[part]
        if not isinstance(part, slice):
            some = search.Rows(loss, table.rows(part), rows.target[part], weight[part])
        many = len(chosen.names) > 1
        plans = self._plans(some, X, strata, random, many, pack)
        found: Any
        if self._norm() == "l2":
            scales = of_part = scaling.make(*rows)
            if some is not rows:
                of_part = scaling.make(*some)
            found = search.search(some, plans, chosen.member, len(chosen.names), of_part, settings)
            coef, intercept = search.fit(rows, scales, found.strengths[chosen.member], found.near)
        else:
            from untuned.estimators.penalties import sparse_search

            mixed = self._norm() == "elasticnet"
            found = sparse_search.search(
                some, plans, chosen.member, len(chosen.names), mixed, settings
            )
            coef, intercept = sparse_search.fit(rows, chosen.member, found)
            if mixed:
                self.l1_ratio_ = found.share
        self.regularization_ = found.strengths
        self.groups_ = np.array(chosen.names, dtype=object)
        self.result_, self.n_iter_ = found.result, found.steps
        coef = (coef / table.scale[:, None]).T
        return coef, intercept - coef @ table.mean

    def _plans(
        self, rows: Any, X: Any, strata: np.ndarray, random: np.random.Generator, many: bool,
        pack: bool,
    ) -> folds.Plans:  # fmt: skip
        """Which rows choose the strengths and which judge them."""
        from untuned.estimators.penalties import leave_one_out

        weight = rows.weight
        pairs = folds.splits(self.cv, X, strata, random)
        each = self.cv is None and rows.loss == "squared" and self._norm() == "l2"
        one = None
        if not (each and leave_one_out.applies(rows.table, weight)):
            one = folds.plan(pairs, strata, weight, many=False)
        if not many or not folds.can_tell_apart(weight):
            return folds.Plans(one)
        if self.cv is not None or pack or len(strata) <= folds.FEW_ROWS:
            return folds.Plans(one, folds.plan(pairs, strata, weight, many=True), None, pack)
        split = folds.splits(folds.SHARE, X, strata, random)
        plan = folds.plan(split, strata, weight, many=True)
        return folds.Plans(one, plan, folds.elsewhere(pairs, strata, weight, plan))

    def _norm(self) -> str:
        """Which penalty it is."""
        if not isinstance(self.norm, str) or self.norm not in NORMS:
            raise unknown("norm", self.norm, NORMS)
        return self.norm

    def _weights(self, sample_weight: Any, X: Any) -> np.ndarray:
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.sum() > 0:
            raise ValueError("sample_weight is zero for every row; expected some positive weights.")
        return weight

    def _settings(self) -> Any:
        from untuned.estimators.penalties.search import Settings

        if not isinstance(self.verbose, bool | np.bool_ | numbers.Integral):
            raise ValueError(
                f"verbose={brief(self.verbose)} is not usable; expected True for a live bar, or "
                "False."
            )
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return Settings(
            self.method, self.max_steps, self.max_seconds, int(seed), bool(self.verbose)
        )

    @threads.by_rows
    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_


class WithNorm(BilevelLinear):
    """What estimators share whose user says which penalty it is."""

    def __init__(
        self, *, penalty: Any = "feature", norm: str = "l2", cv: Any = None, method: Any = "auto",
        max_steps: int = 100, max_seconds: float | None = None, random_state: Any = None,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            penalty=penalty, cv=cv, method=method, max_steps=max_steps, max_seconds=max_seconds,
            random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.norm = norm


class BilevelLogisticRegression(ClassifierMixin, WithNorm):
    """Logistic regression that finds its own penalty strengths by cross-validation.

    Minimizes the sum of the rows' log-losses plus 1/2 sum_j s_j w_j^2 over w, where the strengths s
    are those with the least log-loss on rows that w has not seen. There may be one strength per
    feature, since they follow gradients instead of a grid. How many rows would be needed to trust
    so many is looked after: strengths are judged on rows that neither w nor s have seen, and
    are all equal where more than one does not pay, or rows are fewer than 100.

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
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        limits.check(X, "X")
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        codes, self.classes_ = encoder.transform(y), encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {self.classes_[0]!r}; expected labels of at least two."
            )
        binary = len(self.classes_) == 2
        if binary:
            target, names = (2.0 * codes - 1)[:, None], self.classes_[1:]
        else:
            target, names = np.eye(len(self.classes_), dtype=np.float32)[codes], self.classes_
        loss = "logistic" if binary else "softmax"
        weight = self._weights(sample_weight, X)
        found = self._search(loss, X, target, codes, names, weight)
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
