"""Wrong labels that are numbers: how far unseen predictions are off, in units of their own spread.

A label is taken to be right or wrong at random. Right ones lie around the prediction of models that
have not seen the row, in a t distribution whose scale s(x) is predicted as well; wrong ones may be
anything that labels are, and so are as dense at y as all labels, p(y). With the share w of wrong
labels, quality is Bayes' rule:

    quality = (1 - w) t((y - f(x)) / s(x)) / s(x) / ((1 - w) t(...) / s(x) + w p(y)).

w, the tails of t and one factor of all s(x) are found together by their likelihood: errors of wrong
labels are among those from which s(x) was learned, so that it is too large where many are wrong.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.sparse import issparse

from untuned.estimators.cleaning import labelled_rows

FOLDS = 3
ROUNDS = 2  # of training; the second believes labels as far as the first did
RATES = np.geomspace(1e-3, 0.5, 40)  # of wrong labels: most are right, and none would be no order
ABOUT_AS_LIKELY = 2.0  # logarithm of a likelihood; about a 95 % interval for one number
TAILS = (3.0, 5.0, 10.0, 30.0)  # degrees of freedom that are tried
SCALES = np.geomspace(0.4, 1.3, 12)  # factors of the spread that are tried
MOST_ROWS, MOST_PLACES = 4096, 1024  # that say enough about three numbers, and about a density
SMALLEST_SPREAD = 0.1  # of the median spread: no row is predicted without error
FEWEST = 10


class Rated(NamedTuple):
    """What was found out about each number."""

    quality: np.ndarray  # probability that it is right
    predicted: np.ndarray  # by models that have not seen the row
    spread: np.ndarray  # of right labels around the prediction
    noise_rate: float
    seen_share: float  # of numbers swapped between rows, those that would be suspects
    weights: dict[str, float]  # of each model in the prediction
    coef: np.ndarray  # of a ridge regression on the labels believed
    intercept: float
    is_cut: bool  # whether the limit of time left out models or a round

    @property
    def issues(self) -> np.ndarray:
        """Rows whose number is more likely wrong than right, the worst first."""
        suspect = np.flatnonzero(self.quality < 0.5)
        return suspect[np.argsort(self.quality[suspect], kind="stable")]


def rate(
    X: Any, y: np.ndarray, X_trusted: Any = None, y_trusted: Any = None, seed: int = 0,
    max_seconds: float | None = None,
) -> Rated:  # fmt: skip
    """How probably each of the numbers y of the rows X is right.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
    y : numbers of shape (n_samples,)
    X_trusted, y_trusted : rows whose numbers are right, or None; they are learned from, and not
        rated.
    seed : int
        For the folds and the trees.
    max_seconds : float or None
        The ridge regression is always fitted. Trees, and the second round, are left out where they
        would take longer.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((300, 3))
    >>> y = X @ [1.0, 2.0, 3.0]
    >>> y[7] += 20.0
    >>> rate(X, y).issues.tolist()
    [7]
    """
    if len(y) < FEWEST:
        raise ValueError(f"There are {len(y)} numbers; expected at least {FEWEST} to judge by.")
    began = time.perf_counter()
    deadline = np.inf if max_seconds is None else began + max_seconds
    is_cut = False
    place, scale = np.median(y), stats.iqr(y) or float(np.std(y))
    trusted = 0 if y_trusted is None else len(y_trusted)
    values = (np.r_[y, y_trusted] if trusted else y) - place
    values = values / scale
    rows = labelled_rows.below(X, X_trusted) if trusted else X
    is_trusted = np.arange(len(values)) >= len(y)
    noisy = ~is_trusted
    fold = np.random.default_rng(seed).permutation(len(values)) % FOLDS
    weight = np.ones(len(values))
    for number in range(ROUNDS):
        now = time.perf_counter()
        if number and now + (now - began) > deadline:  # each round takes as long
            is_cut = True
            break
        guesses: dict[str, np.ndarray] = {}
        for name, model in _models(rows, seed).items():
            until = deadline if guesses else np.inf
            guess = _unseen(model, rows, values, weight, fold, until)
            is_cut |= not len(guess)
            guesses |= {name: guess} if len(guess) else {}
        shares = _shares(np.stack(list(guesses.values()), axis=1), values, weight)
        predicted = np.stack(list(guesses.values()), axis=1) @ shares
        spread = _spread(rows, values - predicted, weight, fold, predicted, seed)
        found = _labelling(values[noisy], predicted[noisy], spread[noisy], seed)
        quality = found.quality(values, predicted, spread)
        weight = np.where(is_trusted, 1.0, quality)
    believed = _ridge(rows).fit(rows, values, sample_weight=np.maximum(weight, 1e-6))
    weights = dict(zip(guesses, shares.tolist(), strict=True))
    swapped = np.random.default_rng(seed).permutation(values)
    seen = float((found.quality(swapped, predicted, spread) < 0.5).mean())
    spread = scale * found.scale * spread
    return Rated(
        quality[noisy], place + scale * predicted[noisy], spread[noisy], found.rate, seen, weights,
        scale * believed.coef_, place + scale * float(believed.intercept_), is_cut,
    )  # fmt: skip


def _models(X: Any, seed: int) -> dict[str, Any]:
    """Models of different kinds; boosting by absolute errors is misled least by numbers far off."""
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

    if issparse(X):  # trees would need many splits to see a word
        return {"linear": _ridge(X)}
    return {
        "linear": _ridge(X),
        "boosted trees": HistGradientBoostingRegressor(
            loss="absolute_error", max_iter=60, early_stopping=False, random_state=seed
        ),
        "random trees": ExtraTreesRegressor(60, min_samples_leaf=3, random_state=seed),
    }


def _ridge(X: Any) -> Any:
    from sklearn.linear_model import Ridge, RidgeCV

    if issparse(X) or X.shape[1] > X.shape[0]:
        return Ridge(1.0, solver="lsqr" if not issparse(X) else "sparse_cg")
    return RidgeCV(np.logspace(-3, 4, 8))


def _unseen(
    model: Any, X: Any, y: np.ndarray, weight: np.ndarray, fold: np.ndarray,
    deadline: float = np.inf,
) -> np.ndarray:  # fmt: skip
    """Predictions for each fold by the model trained on the others; none where it would be late."""
    from sklearn.base import clone

    found, began = np.empty(len(y)), time.perf_counter()
    for each in range(FOLDS):
        now = time.perf_counter()
        ahead = (FOLDS - 1) * (now - began) if each == 1 else 0.0
        if now + ahead > deadline:
            return found[:0]
        held, train = fold == each, (fold != each) & (weight > 0.01)
        fitted = clone(model).fit(X[train], y[train], sample_weight=weight[train])
        found[held] = fitted.predict(X[held])
    return found


def _shares(guesses: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Shares of the models that bring the sum of absolute errors down, by a few reweighted fits."""
    from scipy.optimize import nnls

    shares = np.full(guesses.shape[1], 1 / guesses.shape[1])
    for _ in range(10):
        error = np.abs(y - guesses @ shares)
        root = np.sqrt(weight / np.maximum(error, np.median(error) / 10 + 1e-12))
        found, _ = nnls(guesses * root[:, None], y * root)
        if not found.sum() > 0:
            break
        shares = found / found.sum()
    return shares


def _spread(
    X: Any, error: np.ndarray, weight: np.ndarray, fold: np.ndarray, predicted: np.ndarray,
    seed: int,
) -> np.ndarray:  # fmt: skip
    """The spread of right labels around the prediction: of all, and by where a row lies."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    size = np.abs(error)
    whole = np.median(size[weight > 0.5]) / stats.norm.ppf(0.75)
    if whole == 0:  # most predictions are exact
        whole = max(float(size.mean()), 1e-9)
    where = predicted[:, None] if issparse(X) else np.column_stack([X, predicted])
    model = HistGradientBoostingRegressor(
        loss="absolute_error", max_iter=30, max_leaf_nodes=8, min_samples_leaf=40,
        early_stopping=False, random_state=seed,
    )  # fmt: skip
    logs = np.log(np.maximum(size, 1e-3 * whole))
    local = np.exp(_unseen(model, where, logs, weight, fold)) / stats.norm.ppf(0.75)
    return np.maximum(local, SMALLEST_SPREAD * whole)


class Labelling(NamedTuple):
    """How labels come to lie where they do."""

    rate: float  # of wrong ones
    tails: float  # degrees of freedom of the errors of right ones
    scale: float  # of these errors, in spreads
    places: np.ndarray  # where the density of labels is known
    density: np.ndarray

    def right(self, y: np.ndarray, predicted: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """The density of right labels; its median error is met whatever the tails."""
        unit = self.scale * spread * stats.norm.ppf(0.75) / stats.t.ppf(0.75, self.tails)
        return stats.t.pdf((y - predicted) / unit, self.tails) / unit

    def wrong(self, y: np.ndarray) -> np.ndarray:
        """The density of wrong ones."""
        return np.interp(y, self.places, self.density)

    def quality(self, y: np.ndarray, predicted: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Bayes' rule."""
        right = (1 - self.rate) * self.right(y, predicted, spread)
        return right / (right + self.rate * self.wrong(y) + np.finfo(float).tiny)


def _labelling(y: np.ndarray, predicted: np.ndarray, spread: np.ndarray, seed: int) -> Labelling:
    """The one with the fewest wrong labels among those that are about as likely as the likeliest.

    Where predictions are coarse, right labels lie as wrong ones do, and any share of wrong ones is
    about as likely as any other.
    """
    some = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    y, predicted, spread = y[some], predicted[some], spread[some]
    places, density = _density(y)
    rates, likeliest = RATES[:, None], np.full(len(RATES), -np.inf)
    found: list[Any] = [None] * len(RATES)
    for tails in TAILS:
        for scale in SCALES:
            tried = Labelling(0.0, tails, float(scale), places, density)
            total = (1 - rates) * tried.right(y, predicted, spread) + rates * tried.wrong(y)
            likely = np.log(total + np.finfo(float).tiny).sum(axis=1)
            for better in np.flatnonzero(likely > likeliest):
                found[better] = tried._replace(rate=float(RATES[better]))
            likeliest = np.maximum(likely, likeliest)
    return found[int(np.argmax(likeliest > likeliest.max() - ABOUT_AS_LIKELY))]


def _density(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places, and the density of labels there, by normal kernels of Silverman's width."""
    places = np.unique(np.quantile(y, np.linspace(0, 1, MOST_PLACES)))
    widest = float(np.std(y))
    width = 0.9 * min(widest, stats.iqr(y) / 1.34 or widest) * len(y) ** -0.2
    kernels = stats.norm.pdf((places[:, None] - y) / width) / width
    return places, kernels.mean(axis=1)
