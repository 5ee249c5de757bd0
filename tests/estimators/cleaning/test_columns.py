"""Axes, and what a ridge on them means."""

import numpy as np
import pytest

from untuned.estimators.cleaning import columns as prepared


@pytest.mark.parametrize(("rows", "columns"), [(40, 7), (20, 50)])
def test_features_do_not_vary_together_and_a_ridge_stays_what_it_is(rows, columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns)) @ rng.normal(size=(columns, columns)) + 3
    X[:, 2] = 5.0  # says nothing
    weight = rng.uniform(0.5, 2, rows)
    white = prepared.fit(lambda start: X[start : start + 16], weight, ridge=0.03)
    new, share = white.apply(X), weight / weight.sum()
    assert new.shape == (rows, min(rows, columns) - 1)  # the mean, or the column, takes one
    assert share @ new == pytest.approx(0, abs=1e-9)
    variance = 1 - 0.3 * white.penalty  # v / (v + floor), with a floor of 0.3
    np.testing.assert_allclose((share[:, None] * new).T @ new, np.diag(variance), atol=1e-8)
    coef, _ = white.coefficients(np.eye(new.shape[1]), np.zeros(new.shape[1]))
    on_standard = coef * np.sqrt(share @ (X - share @ X) ** 2)[:, None]
    np.testing.assert_allclose(on_standard.T @ on_standard, np.diag(white.penalty), atol=1e-8)
