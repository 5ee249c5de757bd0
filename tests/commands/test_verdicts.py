"""Verdicts of a second round: what people decided helps, and hides nothing."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

from untuned.commands import verdicts
from untuned.commands.job import Job
from untuned.commands.verdicts import worth_training
from untuned.estimators.cleaning import noise
from untuned.tables.decisions import Decisions

JOB = Job("clean", Path("none"), "label", Path("none"), "auto", 0, None, False)


@pytest.fixture(scope="module")
def rounds():
    """Clouds with one label in four wrong; people decide on the worse half of the suspects, and
    err in one case of twenty."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 600)
    X = (2.2 * np.eye(3, 5)[true] + rng.normal(size=(600, 5))).astype(np.float32)
    wrong = rng.random(600) < 0.25
    given = np.where(wrong, (true + rng.integers(1, 3, 600)) % 3, true)
    first = verdicts.of_classes(JOB, X, given, None, None, None, ("linear",))
    seen = first.issues[: len(first.issues) // 2]
    answer = np.where(np.arange(len(seen)) % 20 == 7, (true[seen] + 1) % 3, true[seen])
    decided = Decisions(pd.DataFrame(), seen, answer, np.zeros(0, int), ("linear",))
    second = verdicts.with_decisions(JOB, X, given, (None, None), None, decided)
    return wrong, decided, first, second


def test_looking_at_the_worst_first_hides_no_others(rounds):
    """The rows that are left have few wrong labels; the labelling had as many as before."""
    wrong, decided, first, second = rounds
    rest = np.delete(np.arange(len(wrong)), decided.settled)
    assert wrong[rest].mean() < 0.17
    assert first.noise_rate == pytest.approx(wrong.mean(), abs=0.05)
    assert second.noise_rate == pytest.approx(wrong.mean(), abs=0.05)
    assert len(second.issues) > 0.7 * (len(first.issues) - len(decided.settled))
    before = average_precision_score(wrong[rest], -first.quality[rest])
    assert average_precision_score(wrong[rest], -second.quality[rest]) > before - 0.01


def test_suspects_are_as_many_as_are_worth_a_look_among_the_others(rounds):
    """Most wrong labels were decided on, so a doubt is worth less there than in the whole table."""
    _, decided, _, second = rounds
    rest = np.delete(np.arange(len(second.quality)), decided.settled)
    assert second.issues.tolist() == rest[noise.suspects(second.quality[rest])].tolist()


def test_what_was_decided_stands(rounds):
    _, decided, _, second = rounds
    assert not np.isin(second.issues, decided.settled).any()
    assert (second.quality[decided.settled] == 1).all()
    assert (second.suggested[decided.settled] == decided.values).all()


def test_whom_a_second_round_asks():
    weights = {"linear": 0.0, "neighbours": 1.0, "trees": 2.5, "boosting": 3.0, "yours": 9.0}
    assert worth_training(weights) == ["linear", "neighbours", "trees"]
    assert worth_training({}) == []


def test_where_base_models_are_sure_of_few_rows_the_share_is_doubted():
    """Classes that say nothing of the rows, against classes that are far apart."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    noise = rng.normal(size=(200, 3)).astype(np.float32)
    vague = verdicts.of_classes(JOB, noise, y, None, None, None, ("linear",))
    assert "sure of" in vague.doubt
    assert "--trusted" in vague.doubt
    clear = verdicts.of_classes(JOB, noise + 9 * y[:, None], y, None, None, None, ("linear",))
    assert clear.doubt == ""
    checked = verdicts.of_classes(JOB, noise, y, noise[:20], y[:20], None, ("linear",))
    assert checked.doubt == ""


def test_where_predictions_are_coarse_the_share_of_wrong_numbers_is_doubted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    vague = verdicts.of_numbers(JOB, X, rng.normal(size=200), None, None)
    assert "swapped between rows" in vague.doubt
    assert verdicts.of_numbers(JOB, X, X @ [3.0, 1.0], None, None).doubt == ""
