"""Lasso and elastic net that find their own penalty strengths."""

from __future__ import annotations

from untuned.estimators.penalties.ridge import BilevelRidge


class BilevelLasso(BilevelRidge):
    """Lasso that finds its own penalty strengths by cross-validation.

    Minimizes 1/2 sum (y - X w - b)^2 + sum_j s_j |w_j| with the strengths s that predict unseen
    rows best. A feature that matters may have a weak strength and one that does not a strong one,
    so what is kept is not shrunk as much as by one strength for all. The search starts from one
    strength, goes on to strengths that fall with the coefficients it found (the adaptive lasso),
    and from there follows gradients; each part has to predict rows held back better than the last.

    Parameters
    ----------
    penalty, cv, method, max_steps, max_seconds, random_state, verbose
        As in `BilevelRidge`; with cv=None 5 folds.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), or (n_targets, n_features) where y has columns
        Many of them are zero.
    regularization_ : ndarray of shape (n_groups,)
        The strengths, of standardised features and a target of spread 1: n_samples times `alpha`
        of `Lasso`.
    intercept_, groups_, result_, n_iter_, path_, n_features_in_, feature_names_in_
        As in `BilevelRidge`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from untuned.estimators import BilevelLasso
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BilevelLasso(penalty="all", cv=3, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.5
    True
    """

    norm = "l1"


class BilevelElasticNet(BilevelRidge):
    """Elastic net that finds its own penalty strengths, and its own mixture, by cross-validation.

    Minimizes 1/2 sum (y - X w - b)^2 + sum_j s_j (rho |w_j| + (1 - rho) w_j^2 / 2) with the
    strengths s and the rho that predict unseen rows best.

    Parameters
    ----------
    penalty, cv, method, max_steps, max_seconds, random_state, verbose
        As in `BilevelRidge`; with cv=None 5 folds.

    Attributes
    ----------
    l1_ratio_ : float
        rho, in the units of `l1_ratio` of `ElasticNet`.
    coef_, intercept_, regularization_, groups_, result_, n_iter_
        As in `BilevelLasso`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from untuned.estimators import BilevelElasticNet
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BilevelElasticNet(penalty="all", cv=3, random_state=0).fit(X, y)
    >>> 0 < model.l1_ratio_ <= 1
    True
    """

    norm = "elasticnet"
