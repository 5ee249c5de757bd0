"""The parts of coreset selection: against closed forms, finite differences, brute force."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import untuned
from untuned.coreset import baselines, bilevel, logistic
from untuned.coreset.exchange import Exchange
from untuned.coreset.topk import normal_draws, smoothed_top_k


def rows_of(X, label, size, times=None):
    return logistic.Rows(
        X=X,
        label=label.astype(np.int32),
        share=np.full(len(X), 1 / len(X), X.dtype),
        times=np.full(len(X), size, X.dtype) if times is None else times,
        number=np.arange(len(X), dtype=np.int32),
    )


def table(seed, rows, features, classes):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    label = np.argmax(X[:, :classes] + 0.7 * rng.standard_normal((rows, classes)), axis=1)
    return X, label


def test_top_k_is_its_definition():
    with jax.enable_x64(True):
        weights = np.random.default_rng(0).dirichlet(np.ones(9))
        z = np.asarray(normal_draws(64, 9, jnp.float64))
        by_hand = -np.mean(np.sort(weights + 0.05 * z, axis=1)[:, -4:].sum(axis=1))
        value = smoothed_top_k(jnp.asarray(weights), 4, delta=0.05)
        assert float(value) == pytest.approx(by_hand, rel=1e-12)
        assert np.std(z) == pytest.approx(1, abs=0.1)


@pytest.mark.long
def test_gradient_of_top_k_agrees_with_differences():
    with jax.enable_x64(True):
        weights = jnp.asarray(np.random.default_rng(1).dirichlet(np.ones(8)))
        gradient = np.asarray(jax.grad(smoothed_top_k)(weights, 3, 0.1))
        h = 1e-9  # piecewise linear: exact unless two entries change places within h
        finite = [
            float(smoothed_top_k(weights + h * e, 3, 0.1) - smoothed_top_k(weights - h * e, 3, 0.1))
            / (2 * h)
            for e in jnp.eye(8)
        ]
        np.testing.assert_allclose(gradient, finite, atol=1e-5)
        assert gradient.sum() == pytest.approx(-3)
        assert len(set(gradient.round(3))) > 3  # it tells entries apart


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.7, 0.3), (0.52, 0.48)])
def test_top_1_of_two_has_a_closed_form(a, b):
    """E max(a + d z1, b + d z2) = a Phi(t) + b Phi(-t) + d sqrt2 phi(t) with the t below."""
    d = 0.1
    t = (a - b) / (d * np.sqrt(2))
    value, gradient = jax.value_and_grad(smoothed_top_k)(jnp.array([a, b]), 1, d, 100_000)
    expected = a * norm.cdf(t) + b * norm.cdf(-t) + d * np.sqrt(2) * norm.pdf(t)
    assert float(value) == pytest.approx(-expected, abs=2e-3)
    np.testing.assert_allclose(gradient, [-norm.cdf(t), -norm.cdf(-t)], atol=6e-3)


def judged(fits, X, label):
    """The loss of each model at its best sharpening, in the mean."""
    losses = []
    for fit in fits:
        z = fit.decision_function(X)
        z = np.stack([np.zeros(len(X)), z], axis=1) if z.ndim == 1 else z
        given = (np.arange(len(X)), label)
        losses.append(min(-log_softmax(t * z, axis=1)[given].mean() for t in (1, 2, 4, 8)))
    return np.mean(losses)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.long
def test_models_are_those_of_scikit_learn(classes):
    """At scikit-learn's weighted fits, one for each ridge, the gradient of g is zero."""
    X, label = table(2, 60, 4, classes)
    weights = np.random.default_rng(0).uniform(0, 1, 60)
    y = logistic.models(4, classes)
    fits = [
        LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000).fit(X, label, weights)
        for ridge in logistic.RIDGES
    ]
    y = {
        "coef": np.stack([fit.coef_.T for fit in fits], axis=1),
        "intercept": np.stack([fit.intercept_ for fit in fits]),
    }
    with jax.enable_x64(True):
        rows = rows_of(X, label, 1)
        gradient = jax.grad(logistic.on_coreset, argnums=1)(jnp.asarray(weights), y, rows)
        assert np.abs(gradient["coef"]).max() < 1e-5
        assert np.abs(gradient["intercept"]).max() < 2 * logistic.OF_INTERCEPT
        value = logistic.on_all_rows(weights, y, rows)
        assert float(value) == pytest.approx(judged(fits, X, label), rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.long
def test_hypergradient(classes, size):
    X, label = table(3, 40, 3, classes)
    rows = rows_of(X, label, 5)
    outer = logistic.on_all_rows
    if size:

        def outer(x, y, rows):
            return logistic.regularized(x, y, rows, size=size)

    weights = np.random.default_rng(1).dirichlet(np.ones(40))
    y0 = {k: v.astype(float) for k, v in logistic.models(3, classes).items()}
    report = untuned.check_hypergradient(
        outer, logistic.on_coreset, weights, y0, outer_data=rows, inner_data=rows
    )
    # Top-K is not smooth between draws, so differences see kinks there.
    assert report.relative_error < (0.05 if size else 1e-4)


def loss_on_all(X, label, chosen):
    fits = [
        LogisticRegression(C=1 / ridge, max_iter=1000).fit(X[chosen], label[chosen])
        for ridge in logistic.RIDGES
    ]
    return judged(fits, X, label)


@pytest.mark.long
def test_exchange_against_all_subsets():
    """Of all coresets of 4 rows out of 10, it ends in the best tenth."""
    X, label = table(4, 10, 2, 2)
    X = X.astype(np.float32)
    subsets = [list(s) for s in combinations(range(10), 4) if 0 < label[list(s)].sum() < 4]
    losses = np.array([loss_on_all(X, label, s) for s in subsets])
    start = np.array([0, 1, *np.flatnonzero(label == label[0])[2:4]])
    found = bilevel.select(X, label, 2, [start], max_steps=300, seed=0)
    ours = loss_on_all(X, label, np.sort(found.rows))
    assert np.mean(losses < ours - 1e-6) < 0.1
    assert float(found.result.state.value) == pytest.approx(ours, rel=1e-2)
    assert found.result.status == "converged"


@pytest.mark.long
def test_exchange_counts_what_it_evaluates():
    X, label = table(5, 200, 4, 2)
    found = bilevel.select(X.astype(np.float32), label, 2, [np.arange(20)], max_steps=30, seed=0)
    history = found.result.history
    assert list(history["step"]) == list(range(1, 31))
    assert np.all(np.diff(history["outer"]) <= 0)
    falls = 1 + np.sum(np.diff(history["outer"]) < 0)
    assert found.result.counts["cross"] == falls
    assert found.result.counts["outer_grad"] == 30


@pytest.mark.long
def test_weights_lower_the_loss_of_the_weighted_model():
    X, label = table(6, 250, 5, 3)
    X = X.astype(np.float32)
    found = bilevel.select(X, label, 3, [np.arange(15)], max_steps=3, seed=0)
    assert found.weights.min() >= 0
    assert found.weights.max() <= 1

    def loss(weights):
        fit = LogisticRegression(max_iter=1000).fit(X[found.rows], label[found.rows], weights)
        return -fit.predict_log_proba(X)[np.arange(250), label].mean()

    assert loss(found.weights) < 0.99 * loss(None)


@pytest.mark.parametrize("method", ["s-tfbo", "auto as written"])
@pytest.mark.long
def test_other_methods_solve_the_problem_as_written(method):
    """lambda on the simplex, far from uniform, and the largest entries chosen."""
    X, label = table(7, 200, 4, 2)
    method = untuned.solvers.get("auto")() if method.startswith("auto") else method
    found = bilevel.select(
        X.astype(np.float32), label, 2, [np.arange(10)], method, max_steps=40, seed=0
    )
    x = np.asarray(found.result.x)
    assert x.sum() == pytest.approx(1, abs=1e-5)
    assert x.min() >= 0
    largest = set(np.argsort(-x)[:10].tolist())
    assert len(largest & set(found.rows.tolist())) >= 9
    assert 200 * x.max() > 2


def test_a_missing_class_replaces_the_row_that_helps_least():
    label = np.array([0, 0, 0, 1, 2, 2])
    gains = np.array([-1.0, 5.0, 0.0, 9.0, -2.0, -3.0])
    chosen = bilevel.with_every_class(np.array([0, 1, 3]), label, np.array([0, 1, 2]), gains)
    assert sorted(chosen.tolist()) == [0, 3, 5]


def test_uniform_is_uniform():
    rng = np.random.default_rng(0)
    counts = np.zeros(20)
    for _ in range(2000):
        chosen, weights = baselines.uniform(20, 5, rng)
        counts[chosen] += 1
        assert len(set(chosen)) == 5
        assert np.all(weights == 1)
    assert counts.min() > 400
    assert counts.max() < 600


def test_k_means_takes_rows_near_centres():
    rng = np.random.default_rng(0)
    centres = 20 * rng.standard_normal((6, 3))
    sizes = [5, 10, 20, 40, 80, 160]
    blob = np.repeat(np.arange(6), sizes)
    X = centres[blob] + 0.1 * rng.standard_normal((len(blob), 3))
    chosen, weights = baselines.k_means(X, 6, rng)
    assert blob[chosen].tolist() == [5, 4, 3, 2, 1, 0]
    np.testing.assert_allclose(weights, np.array(sizes[::-1]) / 160)


def test_nearest_rows_by_brute_force():
    rng = np.random.default_rng(0)
    X, points = rng.standard_normal((50, 4)), rng.standard_normal((30, 4))
    distances = ((points[:, None] - X[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(baselines.nearest_rows(X, points), distances.argmin(axis=1))


def test_herding_by_hand():
    X = np.random.default_rng(0).standard_normal((30, 4))
    chosen = []
    for k in range(1, 8):
        means = [
            np.inf
            if i in chosen
            else np.linalg.norm(X.mean(axis=0) - (X[chosen].sum(axis=0) + X[i]) / k)
            for i in range(30)
        ]
        chosen.append(int(np.argmin(means)))
    assert baselines.herd(X, 7).tolist() == chosen


def test_herding_lets_classes_take_turns():
    X, label = table(0, 100, 3, 3)
    chosen, weights = baselines.herding(X, label, 12, np.random.default_rng(0))
    assert set(label[chosen[:3]].tolist()) == {0, 1, 2}
    assert len(set(chosen.tolist())) == 12
    assert np.all(weights == 1)


@pytest.mark.parametrize(
    ("counts", "size", "quotas"),
    [
        ([50, 30, 20], 10, [5, 3, 2]),
        ([98, 1, 1], 10, [8, 1, 1]),
        ([90, 0, 10], 10, [9, 0, 1]),
        ([3, 3, 94], 99, [3, 3, 93]),
    ],
)
def test_quotas(counts, size, quotas):
    rng = np.random.default_rng(0)
    assert baselines.class_quotas(np.array(counts), size, rng).tolist() == quotas


def test_fewer_rows_than_classes_take_some_classes():
    quotas = baselines.class_quotas(np.array([5, 5, 5, 5]), 2, np.random.default_rng(0))
    assert sorted(quotas.tolist()) == [0, 0, 1, 1]


def test_slots_are_coarse():
    assert [bilevel.padded(k) for k in (1, 16, 17, 1024, 1025)] == [16, 16, 32, 1024, 2048]
    assert hash(Exchange(16)) == hash(Exchange(16))
