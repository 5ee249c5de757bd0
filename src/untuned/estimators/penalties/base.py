"""What linear models share that find their own penalty strengths: parameters, search, outputs."""

from __future__ import annotations

import numbers
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from untuned.estimators.penalties import folds, groups, standardisation
from untuned.util import threads
from untuned.util.wording import brief, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORMS = ("l2", "l1", "elasticnet")


class BilevelLinear(BaseEstimator):
    """What the estimators share: parameters, the search, and outputs."""

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
        weight: np.ndarray, began: float,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Coefficients (columns, features) in the units of X, and the intercepts."""
        from untuned.estimators.penalties import l1_search, objective, penalties, search
        from untuned.estimators.penalties.validation import Rows

        settings, norm = self._settings(began), self._norm()
        columns = target.shape[1]
        feature_names = getattr(self, "feature_names_in_", None)
        chosen = groups.make(self.penalty, X.shape[1], columns, feature_names, names, self._column)
        X, cv = standardisation.in_order(X), self.cv
        used = np.flatnonzero(weight)
        if len(used) < len(weight):  # rows without a weight are as good as absent
            cv = folds.among(cv, X, strata, used)
            X, target, strata, weight = X[used], target[used], strata[used], weight[used]
        # Weights that add up to one, say, are not those of a single row.
        unit = min(1.0, weight.mean())
        weight = weight / unit
        moments = standardisation.moments(X, weight)
        drawn = folds.draw(X, moments.spread, target, settings.seed)

        def rows_of(together: bool) -> Rows:
            table = standardisation.make(X, moments, together, later=wide)
            return Rows(loss, table, target.astype(table.shift.dtype, copy=False), weight)

        near = None
        wide = norm == "l2" and X.shape[1] > folds.WIDE and standardisation.stays_sparse(X)
        if wide:
            # Who made a sparse X may have scaled it well: rare words are small in TF-IDF.
            split = folds.splits(folds.SHARE, X, strata, drawn)
            plan = folds.plan(split, strata, weight, many=False, drawn=drawn)
            units = [partial(rows_of, together) for together in (False, True)]
            rows, near = search.better_units(units, plan, settings.limit)
        else:
            rows = rows_of(together=False)
        table, some = rows.table, rows
        if cv is None:
            part = folds.sample(strata, X.shape[1], drawn)
            if len(part) < len(weight):
                some, strata, drawn = rows.some(part), strata[part], drawn.some(part)
        plans = self._plans(some, X, cv, strata, drawn, len(chosen.names) > 1)
        found: Any
        if norm == "l2":
            found = search.search(some, plans, chosen.member, len(chosen.names), settings, near)
            if found.model is not None and some is rows:
                coef, intercept = found.model
            else:
                s = penalties.each(found.penalties, chosen.member)
                coef, intercept = objective.fit(rows.divided(), s)
        else:
            mixed = norm == "elasticnet"
            found = l1_search.search(
                some, plans, chosen.member, len(chosen.names), mixed, weight.sum(), settings
            )
            coef, intercept = l1_search.fit(rows, chosen.member, found)
            if mixed:
                self.l1_ratio_ = float(found.share)
        self.regularization_ = found.penalties * unit
        self.groups_ = np.array(chosen.names, dtype=object)
        self.result_, self.n_iter_ = found.result, found.steps
        self.path_ = found.path.in_units(unit)
        coef = (coef / table.scale[:, None]).T
        return coef, intercept - coef @ table.mean

    def _plans(
        self, rows: Any, X: Any, cv: Any, strata: np.ndarray, drawn: folds.Draw, many: bool
    ) -> folds.Plans:
        """Which rows train, which choose the penalties, and which have a say in neither."""
        from untuned.estimators.penalties import leave_one_out

        weight = rows.weight
        many = many and folds.can_tell_apart(weight)
        each = cv is None and rows.loss == "squared" and self._norm() == "l2"
        each = each and leave_one_out.applies(rows.table, weight)
        if each and not many:
            return folds.Plans(None)
        pairs = folds.splits(cv, X, strata, drawn)
        one = None if each else folds.plan(pairs, strata, weight, many=False, drawn=drawn)
        if not many:
            return folds.Plans(one)
        wide = X.shape[1] > folds.WIDE
        few = len(strata) <= folds.FEW_ROWS and not (wide and standardisation.stays_sparse(X))
        if cv is not None or few:
            return folds.Plans(one, folds.plan(pairs, strata, weight, True, drawn))
        split = folds.splits(folds.SHARE, X, strata, drawn)
        plan = folds.plan(split, strata, weight, many=True, drawn=drawn)
        if wide:  # one model instead of many at once, as they are large
            plan = folds.of_half(plan)
        return folds.Plans(one, plan, folds.elsewhere(pairs, strata, weight, plan, drawn))

    def plot(self) -> Figure:
        """What the search saw along one strength for all, and the strengths it found.

        Four panels: the coefficients of standardised features at each strength; the mean loss of
        the rows held back, with its standard error; each strength after every step; and the
        features in the order in which they enter the model as the penalty grows weaker.

        Returns
        -------
        figure : matplotlib.figure.Figure

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from untuned.estimators import BilevelLasso
        >>> model = BilevelLasso(cv=3, random_state=0).fit(*load_diabetes(return_X_y=True))
        >>> figure = model.plot()
        >>> figure.savefig("path.png")  # doctest: +SKIP
        """
        from untuned.estimators.penalties import picture

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return picture.figure(self.path_, [str(n) for n in names], [str(g) for g in self.groups_])

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

    def _settings(self, began: float) -> Any:
        from untuned import solvers
        from untuned.estimators.penalties.outcome import Limit
        from untuned.estimators.penalties.search import Settings
        from untuned.run import check_settings

        if not isinstance(self.verbose, bool | np.bool_ | numbers.Integral):
            raise ValueError(
                f"verbose={brief(self.verbose)} is not usable; expected True for a live bar, or "
                "False."
            )
        solver = solvers.get(self.method)() if isinstance(self.method, str) else self.method
        check_settings(solver, self.max_steps, self.max_seconds, None, 0, None, None)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return Settings(
            self.method,
            self.max_steps,
            Limit(self.max_seconds, began),
            int(seed),
            bool(self.verbose),
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
