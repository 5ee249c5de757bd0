"""What a search says of its way: losses and their error, coefficients, features as they enter."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso, Ridge

from untuned.estimators import (
    BilevelElasticNet,
    BilevelGamma,
    BilevelLasso,
    BilevelLogisticRegression,
    BilevelPoisson,
    BilevelRidge,
)
from untuned.estimators.penalties import path as paths


def planted(rows=120, features=6, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features)) * [1, 10, 1, 1, 1, 1]
    return X, 2 * X[:, 0] - 0.1 * X[:, 1] + random.normal(size=rows)


def by_hand(X, y, model, folds):
    """The mean squared error of the rows of each fold, halved, of models of the others."""
    Z, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    losses, coef = np.zeros(len(y)), []
    for train, test in folds:
        fitted = model(len(train)).fit(Z[train], t[train])
        losses[test] = (t[test] - fitted.predict(Z[test])) ** 2 / 2
        coef.append(fitted.coef_)
    return losses.mean(), losses.std() / len(y) ** 0.5, np.mean(coef, axis=0)


@pytest.mark.long
@pytest.mark.parametrize("rows", [60, 120])  # as they are, and condensed
def test_the_path_of_a_lasso_is_that_of_scikit_learn(rows):
    X, y = planted(rows)
    order = np.random.default_rng(0).permutation(rows).reshape(3, -1)
    folds = [(np.setdiff1d(np.arange(rows), part), part) for part in order]
    model = BilevelLasso(penalty="all", cv=folds).fit(X, y)
    path = model.path_
    assert (np.diff(path.strengths) < 0).all()
    for k in (0, 5, len(path.strengths) - 1):
        lasso = lambda count, k=k: Lasso(alpha=path.strengths[k] / count, tol=1e-10)
        mean, error, coef = by_hand(X, y, lasso, folds)
        # Strengths are written with three digits.
        assert path.loss[k] == pytest.approx(mean, rel=5e-3)
        assert path.error[k] == pytest.approx(error, rel=1e-2)
        np.testing.assert_allclose(path.coef[k], coef, atol=5e-3)
    assert set(path.order()[:2]) == {0, 1}
    assert path.entered()[0] == path.strengths[np.flatnonzero(path.coef[:, 0])[0]]


def test_the_path_of_a_ridge_leaves_out_each_row():
    X, y = planted(30)
    path = BilevelRidge(penalty="all").fit(X, y).path_
    folds = [(np.delete(np.arange(30), k), [k]) for k in range(30)]
    k = path.best()
    mean, error, _ = by_hand(X, y, lambda count: Ridge(alpha=path.strengths[k]), folds)
    assert path.loss[k] == pytest.approx(mean, rel=1e-2)
    assert path.error[k] == pytest.approx(error, rel=1e-2)
    assert path.loss[0] > path.loss[k] < path.loss[0]
    assert len(path.strengths) >= 15


def test_order_of_features_by_hand():
    coef = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, -3, 0], [1, 2, -4, 0]], float)
    path = paths.Path(np.array([8.0, 4, 2, 1]), np.array([4.0, 3, 1, 2]), np.ones(4), coef, coef)
    assert path.entered().tolist() == [1, 4, 2, 0]
    assert path.order().tolist() == [1, 2, 0, 3]
    # Squared penalties leave nothing at zero but what never moves.
    path = path._replace(coef=np.array([[0.1, 0, 1], [0.2, 0, 2], [1, 0, 9], [2, 0, 9]], float))
    assert path.entered().tolist() == [2, 0, 8]


MODELS = [
    BilevelLogisticRegression(cv=3, random_state=0),
    BilevelLogisticRegression(cv=3, random_state=0, norm="l1"),
    BilevelRidge(random_state=0),
    BilevelLasso(penalty="all", cv=3, random_state=0),
    BilevelElasticNet(cv=3, random_state=0),
    BilevelPoisson(cv=3, random_state=0),
    BilevelGamma(cv=3, random_state=0, norm="l1"),
]


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__} {m.norm}")
def test_every_estimator_has_its_picture(model):
    from matplotlib import pyplot as plt

    X, y = planted()
    frame = pd.DataFrame(X, columns=["_a", "b$1$", "c", "d", "e" * 99, "f"])
    if isinstance(model, BilevelLogisticRegression):
        y = np.digitize(y, [-1, 1])
    elif isinstance(model, BilevelPoisson | BilevelGamma):
        y = np.ceil(np.exp(y / 2))
    fitted = pickle.loads(pickle.dumps(model.fit(frame, y)))
    path, figure = fitted.path_, fitted.plot()
    figure.canvas.draw()
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == [
        "Coefficients along one strength",
        "Loss of rows held back, and its standard error",
        "Strengths as they were found",
        "Features in the order in which they enter",
    ]
    assert len(figure.axes[0].lines) == 6 + 1  # and the line where it is best
    shown = [text.get_text() for text in figure.axes[3].get_yticklabels()]
    assert len(shown) == np.count_nonzero(path.entered())
    plt.close(figure)
    assert len(path.strengths) >= 10
    scale = 1.0 if not isinstance(model, BilevelPoisson) else np.mean(y)
    np.testing.assert_allclose(path.found[-1] * scale, fitted.regularization_, rtol=1e-5)
    # Both sides of the best strength are there, unless it is at the end of what was tried.
    assert path.best() > 0
    assert path.loss[0] > path.loss[path.best()]
    assert (path.error > 0).all()
