"""What linear models share that find their own penalty strengths: parameters, search, outputs."""

from __future__ import annotations

import numbers
from functools import cache, partial
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
        weight: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Coefficients (columns, features) in the units of X, and the intercepts."""
        from untuned.estimators.penalties.objectives import condensed, scaling
        from untuned.estimators.penalties.selection import fitting, search
        from untuned.estimators.penalties.selection.judging import Rows

        settings = self._settings()
        # Weights that add up to one, say, are not those of a single row.
        unit = min(1.0, weight.sum() / np.count_nonzero(weight))
        weight = weight / unit
        columns = target.shape[1]
        feature_names = getattr(self, "feature_names_in_", None)
        chosen = groups.make(self.penalty, X.shape[1], columns, feature_names, names, self._column)
        X = standardisation.in_order(X)
        drawn = folds.draw(X, standardisation.moments(X, weight)[1], target, weight, settings.seed)

        near = None
        wide = X.shape[1] > scaling.MOST_TURNED and self._norm() == "l2"
        wide = wide and standardisation.stays_sparse(X)

        def rows_of(together: bool) -> Rows:
            table = standardisation.make(X, weight, together, later=wide)
            return Rows(loss, table, target.astype(table.shift.dtype, copy=False), weight)

        if wide:
            # Who made a sparse X may have scaled it well: rare words are small in TF-IDF.
            split = folds.splits(folds.SHARE, X, strata, drawn)
            plan = folds.plan(split, strata, weight, many=False, drawn=drawn)
            units = [partial(rows_of, together) for together in (False, True)]
            rows, near = search.better_units(units, plan, settings.limit)
        else:
            rows = rows_of(together=False)
        table = rows.table
        pack = loss == "squared" and condensed.applies(len(weight), X.shape[1], columns)
        part: Any = slice(None)
        if self.cv is None and not pack:
            part = folds.sample(strata, weight, X.shape[1], drawn)
            drawn = drawn.some(part)
        some, strata = rows, strata[part]
        if not isinstance(part, slice):
            some = Rows(loss, table.rows(part), rows.target[part], weight[part])
        many = len(chosen.names) > 1
        plans = self._plans(some, X, strata, drawn, many, pack)
        found: Any
        if self._norm() == "l2":
            scales = of_part = cache(partial(scaling.make, *rows))
            if some is not rows:
                of_part = cache(partial(scaling.make, *some))
            found = search.search(
                some, plans, chosen.member, len(chosen.names), of_part, settings, near
            )
            coef, intercept = found.near
            if not (found.exact and some is rows):
                coef, intercept = fitting.fit(
                    rows.divided(), scales, found.strengths, chosen.member, found.near
                )
        else:
            from untuned.estimators.penalties.selection import sparse_search

            mixed = self._norm() == "elasticnet"
            found = sparse_search.search(
                some, plans, chosen.member, len(chosen.names), mixed, weight.sum(), settings
            )
            coef, intercept = sparse_search.fit(rows, chosen.member, found)
            if mixed:
                self.l1_ratio_ = float(found.share)
        self.regularization_ = found.strengths * unit
        self.groups_ = np.array(chosen.names, dtype=object)
        self.result_, self.n_iter_ = found.result, found.steps
        self.path_ = found.path.in_units(unit)
        coef = (coef / table.scale[:, None]).T
        return coef, intercept - coef @ table.mean

    def _plans(
        self, rows: Any, X: Any, strata: np.ndarray, drawn: folds.Draw, many: bool,
        pack: bool,
    ) -> folds.Plans:  # fmt: skip
        """Which rows choose the strengths and which judge them."""
        from untuned.estimators.penalties.selection import leave_one_out

        weight = rows.weight
        many = many and folds.can_tell_apart(weight)
        each = self.cv is None and rows.loss == "squared" and self._norm() == "l2"
        each = each and leave_one_out.applies(rows.table, weight)
        if each and not many:
            return folds.Plans(None)
        pairs = folds.splits(self.cv, X, strata, drawn)
        one = None if each else folds.plan(pairs, strata, weight, many=False, drawn=drawn)
        if not many:
            return folds.Plans(one)
        wide = X.shape[1] > folds.WIDE
        few = len(strata) <= folds.FEW_ROWS and not (wide and standardisation.stays_sparse(X))
        if self.cv is not None or pack or few:
            return folds.Plans(one, folds.plan(pairs, strata, weight, True, drawn), None, pack)
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

    def _settings(self) -> Any:
        from untuned import solvers
        from untuned.estimators.penalties.selection.outcome import Limit
        from untuned.estimators.penalties.selection.search import Settings
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
            self.method, self.max_steps, Limit(self.max_seconds), int(seed), bool(self.verbose)
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
