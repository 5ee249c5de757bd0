"""Verdicts of a second round: the share of wrong labels is that of the whole table."""

import numpy as np
import pytest

from untuned.commands.verdicts import rerated, worth_asking


def table(rate, rows=200_000, seed=0):
    """Labels wrong at a rate, and evidence about each whose odds are known."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(rows) < rate
    evidence = rng.standard_normal(rows) + 2 * np.where(wrong, -1, 1)  # log-odds: 4 times it
    odds = np.exp(4 * evidence) * (1 - rate) / rate
    return wrong, evidence, odds / (1 + odds)


def test_looking_at_the_worst_first_hides_no_others():
    wrong, evidence, quality = table(0.2)
    seen = quality < np.quantile(quality, 0.12)
    rest = ~seen
    # A cleaner that sees only the rest takes their own, lower share of wrong labels for the rate.
    low = wrong[rest].mean()
    assert low < 0.12
    odds = np.exp(4 * evidence[rest]) * (1 - low) / low
    fooled = odds / (1 + odds)
    found, rate = rerated(fooled, int(wrong[seen].sum()), int(seen.sum()))
    assert rate == pytest.approx(0.2, abs=0.02)
    assert np.abs(found - quality[rest]).max() < 0.06
    assert np.abs(fooled - quality[rest]).max() > 0.1


def test_without_anything_known_quality_stays_where_it_agrees_with_itself():
    _, _, quality = table(0.1)
    found, rate = rerated(quality, 0, 0)
    np.testing.assert_allclose(found, quality, atol=0.01)
    assert rate == pytest.approx(0.1, abs=0.01)


def test_certain_qualities_are_no_trouble():
    found, rate = rerated(np.array([0.0, 1.0, 1.0, 1.0]), 3, 4)
    assert np.isfinite(found).all()
    assert 0 < rate <= 0.5


def test_whom_a_second_round_asks():
    heard = {"linear": 0.0, "neighbours": 1.0, "trees": 2.5, "boosting": 3.0, "yours": 9.0}
    assert worth_asking(heard) == ["linear", "neighbours", "trees"]
    assert worth_asking({}) == []
