"""The criterion "prototypes": the expected loss of a memory that is drawn, one row per slot."""

import itertools

import numpy as np
import pytest

from untuned import coreset
from untuned.coreset import baselines
from untuned.coreset.selectors import slots
from untuned.coreset.selectors.candidates import Candidates
from untuned.coreset.selectors.kernels import tangent_kernel
from untuned.solvers import DTFBO, STFBO

METHODS = {"d-tfbo": DTFBO(5.0, 5.0, 5.0, inner_steps=5, linear_steps=3), "s-tfbo": STFBO(5, 5, 5)}


def view(counts=(7, 4), seed=0, share=None):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    X = rng.normal(size=(len(y), 5)) + 2 * np.eye(len(counts), 5)[y]
    share = np.full(len(y), 1 / len(y)) if share is None else share
    return Candidates(X, y, np.arange(len(counts)), share, None, rng)


def a_point(dealt, seed=1):
    return dealt.project(np.random.default_rng(seed).uniform(size=dealt.rows.shape))


def centred_kernel(c, rows):
    """In units of the spread, of one class, from the definition."""
    K = tangent_kernel(c.flat[rows])
    C = np.eye(len(rows)) - 1 / len(rows)
    K = C @ K @ C
    return K / np.trace(K) * len(rows)


def loss_of(c, chosen):
    """Sum over classes of |sum of the chosen rows|^2."""
    total = 0.0
    for m in c.members():
        K = centred_kernel(c, m)
        at = np.flatnonzero(np.isin(m, chosen))
        total += K[np.ix_(at, at)].sum()
    return total


def test_f_is_the_expected_loss_of_the_memory_that_is_drawn():
    """Against all draws, one by one."""
    c = view()
    dealt = slots.deal(c, 5)
    x = a_point(dealt)
    expected = 0.0
    for places in itertools.product(*(np.flatnonzero(row) for row in dealt.filled)):
        at = np.arange(len(places)), np.array(places)
        expected += np.prod(x[at]) * loss_of(c, dealt.rows[at])
    assert slots.Outer(dealt)(x, dealt.sums(x)) == pytest.approx(expected, rel=1e-4)


def test_it_starts_at_uniform_sampling_of_equal_numbers():
    c = view((12, 6))
    dealt = slots.deal(c, 6)
    weights = dealt.over_rows(dealt.start(c.share), len(c))
    assert weights.sum() == pytest.approx(1)
    for place, count in enumerate((12, 6)):
        np.testing.assert_allclose(weights[c.label == place], 0.5 / count)


def test_derivatives_by_finite_differences():
    c = view()
    dealt = slots.deal(c, 5)
    x, rng = a_point(dealt), np.random.default_rng(2)
    y = rng.normal(size=dealt.ends[-1])
    dx, dy = rng.normal(size=x.shape) * dealt.filled, rng.normal(size=y.shape)
    step = 1e-6
    for function in (slots.Outer(dealt), slots.Inner(dealt)):
        _, in_x, in_y = function.value_and_grads(x, y)
        slope = function(x + step * dx, y + step * dy) - function(x - step * dx, y - step * dy)
        assert np.vdot(in_x, dx) + in_y @ dy == pytest.approx(slope / (2 * step), rel=1e-6)
    g = slots.Inner(dealt)
    in_x, in_y = g.products(x, y)(dy, "xy")
    np.testing.assert_array_equal(in_y, dy)
    slope = dy @ (g.grad_y(x + step * dx, y) - g.grad_y(x - step * dx, y)) / (2 * step)
    assert np.vdot(in_x, dx) == pytest.approx(slope, rel=1e-6)
    np.testing.assert_allclose(g.grad_y(x, dealt.sums(x)), 0)


def test_projection_is_the_nearest_point():
    dealt = slots.deal(view((9, 5)), 7)
    away = np.random.default_rng(0).normal(size=dealt.rows.shape)
    x = dealt.project(away)
    np.testing.assert_allclose(x.sum(axis=1), 1)
    assert x.min() >= 0
    assert (x[~dealt.filled] == 0).all()
    other = a_point(dealt)  # the angle at a nearest point is not acute
    assert np.vdot((away - x) * dealt.filled, other - x) <= 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_falls_and_the_pick_is_at_most_the_expected_one(method):
    c = view((40, 30), seed=3)
    f = slots.Outer(slots.deal(view((40, 30), seed=3), 10))
    values, x = [], None
    for steps in (1, 100):
        x = slots.solved(f.slots, c, METHODS[method], steps)
        values.append(f(x, f.slots.sums(x)))
    start = f.slots.start(c.share)
    assert values[1] < 0.9 * f(start, f.slots.sums(start))
    assert values[1] < values[0]
    rows, _ = slots.pick(f.slots, f.slots.over_rows(x, len(c)))
    assert loss_of(c, rows) <= values[1] * (1 + 1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_selection_by_prototypes_is_balanced_and_meets_the_means(method):
    c = view((60, 9), seed=4)
    options = {"method": method, "criterion": "prototypes", "seed": 1}
    chosen = coreset.select(None, c.X, c.label, 12, **options)
    assert len(set(chosen.indices.tolist())) == 12
    assert np.bincount(c.label[chosen.indices]).tolist() == [6, 6]
    rng = np.random.default_rng(0)
    by_chance = [
        loss_of(c, np.concatenate([rng.permutation(m)[:6] for m in c.members()])) for _ in range(50)
    ]
    assert loss_of(c, chosen.indices) < np.min(by_chance)
    again = coreset.select(None, c.X, c.label, 12, **options)
    np.testing.assert_array_equal(chosen.indices, again.indices)
    weights = coreset.distribution(None, c.X, c.label, 12, **options)
    assert weights.sum() == pytest.approx(1)


def test_a_small_class_gives_all_it_has():
    assert baselines.equal_quotas([2, 9, 9], 12) == [2, 5, 5]
    assert baselines.equal_quotas([4, 4], 3) == [2, 1]
    assert baselines.equal_quotas([1, 1], 9) == [1, 1]


def test_rows_that_are_all_the_same_can_be_chosen():
    X, y = np.ones((8, 3)), np.arange(8) % 2
    chosen = coreset.select(None, X, y, 4, method="d-tfbo", criterion="prototypes")
    assert np.bincount(y[chosen.indices]).tolist() == [2, 2]


def test_rows_that_count_for_nothing_do_not_move_the_mean():
    c = view((20, 20), seed=5)
    only = np.where(c.X[:, 4] > np.median(c.X[:, 4]), 1.0, 0.0)
    chosen = coreset.select(
        None, c.X, c.label, 8, method="d-tfbo", criterion="prototypes", weights=only
    )
    every = coreset.select(None, c.X, c.label, 8, method="d-tfbo", criterion="prototypes")
    assert c.X[chosen.indices, 4].mean() > c.X[every.indices, 4].mean()


def test_an_unknown_criterion_is_refused():
    c = view()
    with pytest.raises(
        ValueError, match=r"no criterion 'means'; .* all names are loss, prototypes"
    ):
        coreset.select(None, c.X, c.label, 4, method="d-tfbo", criterion="means")
