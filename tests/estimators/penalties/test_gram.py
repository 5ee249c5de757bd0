"""Products of features for L1 penalties, on columns that lose digits, against float64."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet

from untuned.estimators.penalties import gram, l1
from untuned.estimators.penalties import standardisation as tables
from untuned.estimators.penalties.l1 import Design, Penalty

ROWS, FEATURES = 300, 8


def columns(kind):
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, FEATURES))
    y = X[:, 0] - X[:, 1] + random.normal(size=ROWS)
    if kind == "centre":
        return 2000 + 6 * X, y
    if kind == "scale":
        return X * np.geomspace(1e-6, 1e6, FEATURES), y
    return np.column_stack([X[:, 0] + e * X[:, 1] for e in np.geomspace(1e-4, 1, FEATURES)]), y


@pytest.mark.parametrize("given", [np.float32, np.float64])
@pytest.mark.parametrize("kept", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("kind", ["centre", "scale", "collinear"])
def test_products_and_rows_find_the_minimum_in_float64(kind, form, kept, given, monkeypatch):
    monkeypatch.setattr(tables, "SMALL", 2**20 if kept == np.float64 else 0)
    monkeypatch.setattr(tables, "stays_sparse", sparse.issparse)
    X, y = columns(kind)
    X, y = X.astype(given), (y - y.mean())[:, None] / y.std()
    weight = np.random.default_rng(1).uniform(0.5, 2, ROWS)
    train = np.arange(ROWS)[:, None] % 3 != np.arange(3)
    table = tables.make(form(X), tables.moments(form(X), weight))
    design = Design("squared", table, y.astype(table.shift.dtype))
    # The judge's rows are in float64, each fold centred before any product.
    share = weight / weight.sum()
    Z = X.astype(np.float64) - share @ X.astype(np.float64)
    Z /= (share @ Z**2) ** 0.5
    digits = 1e-6 if table.X.dtype == np.float32 else 1e-9
    for model, mask in zip(gram.make(design, weight, train), train.T, strict=True):
        total = weight @ mask
        a = weight * mask / total
        C, t = Z - a @ Z, y[:, 0] - a @ y[:, 0]
        np.testing.assert_allclose(model.G, C.T @ (a[:, None] * C), atol=digits)
        np.testing.assert_allclose(model.q[:, 0], C.T @ (a * t), atol=digits)
        for first, second in ((3.0, 1.0), (0.1, 0.1)):
            none = np.zeros((FEATURES, 1)), np.zeros(1)
            penalty = Penalty(none[0] + first, none[0] + second)
            each = Penalty(penalty.l1 / total, penalty.l2 / total)
            found = model.solve(each, none[0])
            plain = l1.solve(design, a, total, penalty, none)
            judge = ElasticNet(
                alpha=(first + second) / total, l1_ratio=first / (first + second), tol=1e-14,
                max_iter=10**6,
            ).fit(Z, y[:, 0], a * total)  # fmt: skip

            def value(w, C=C, t=t, a=a, each=each):
                penalties = abs(each.l1[:, 0] * w).sum() + 0.5 * (each.l2[:, 0] * w**2).sum()
                return 0.5 * a @ (t - C @ w) ** 2 + penalties

            least = value(judge.coef_)
            for fit in (found, plain):
                assert value(fit.coef[:, 0]) == pytest.approx(least, rel=digits**1.5)
                if kind != "collinear":  # there many coefficients are as good as the best
                    np.testing.assert_allclose(fit.coef[:, 0], judge.coef_, atol=digits)
