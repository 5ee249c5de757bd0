"""Every example runs, small, with its controls."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

ROOT = Path(__file__).parent.parent
needs_mnist = pytest.mark.real_data("mnist")


@pytest.mark.real_data("mnist")
@pytest.mark.parametrize(("script", "task"), [("wrong_labels", "mnist"), ("imbalance", "tail-50")])
def test_it_runs_small(script, task, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script, task, "--small", "--seeds", "0", "--epochs", "1"])
    importlib.import_module(script).main()
    printed = capsys.readouterr().out
    forms = ("form='rows'", "form='loss'", "form='batch'")
    others = ("order=1", "same at the rates of auto", "Reweighter at the rates of auto")
    for name in ("plain, early", "noisy and trusted", *forms, *others, "minimize, auto"):
        assert name in printed, name


def carried_out(name):
    """The code of a notebook, run from top to bottom; what it defines."""
    cells = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    pyplot.close("all")
    return names


@pytest.mark.long
def test_the_story_of_wrong_labels_is_true():
    told = carried_out("wrong_labels")
    suspects, wrong = told["suspects"], told["wrong"]
    assert wrong[suspects].mean() > 0.95
    assert wrong[suspects].sum() > 0.9 * wrong.sum()
    assert told["accuracy"](told["X"], told["cleaner"].suggested_) > told["as_they_are"] + 0.02


@pytest.mark.long
def test_the_story_of_penalties_is_true():
    told = carried_out("penalties")
    one, each = (told[name].score(told["X_test"], told["y_test"]) for name in ("one", "each"))
    assert each > one + 0.02
    assert told["result"].status == "converged"
    assert np.median(told["penalty"][10:]) > 1000 * np.median(told["penalty"][:10])


@pytest.mark.long
def test_problems_with_an_argmin_inside(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["argmin_layers", "--small"])
    importlib.import_module("argmin_layers").main()
    numbers = [
        [float(number) for number in re.findall(r" (\d[\d.e-]*\d)", line)]
        for line in capsys.readouterr().out.splitlines()
    ]
    (by_gradient, by_grid), (_, from_libsvm), (first, last) = numbers
    assert by_gradient <= by_grid + 1e-6
    assert from_libsvm < 1e-6
    assert last < first


@pytest.mark.long
def test_learned_regularizers(capsys, monkeypatch):
    """Total variation by gradient is what a search finds; a field of experts says less of noise."""
    monkeypatch.setattr(sys, "argv", ["argmin_images", "--small"])
    importlib.import_module("argmin_images").main()
    noisy, ours, search, experts = (
        float(line.rsplit(":")[1]) for line in capsys.readouterr().out.splitlines()
    )
    assert noisy + 3 < ours < search + 1e-3
    assert search - ours < 0.3
    assert experts > noisy + 3


@pytest.mark.long
def test_a_dictionary_learned_through_its_codes(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sparse_coding", "--small"])
    importlib.import_module("sparse_coding").main()
    random, learned, _ = (
        float(line.rsplit(":")[1]) for line in capsys.readouterr().out.splitlines()
    )
    assert learned < 0.9 * random


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "task", "named"),
    [
        pytest.param("distillation", "softmax", "ten learned images", marks=needs_mnist),
        pytest.param("distillation", "lenet", "ten learned images", marks=needs_mnist),
        pytest.param("weight_decay", "mnist", "one decay per layer", marks=needs_mnist),
        ("sinusoids", "maml", "one network for all tasks"),
    ],
)
def test_others_run_small(script, task, named, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script, task, "--small", "--seeds", "0"])
    importlib.import_module(script).main()
    assert named in capsys.readouterr().out


@pytest.mark.long
def test_a_learned_start_is_better_on_new_sinusoids():
    """x is a network: steps as long as its weights would destroy it at once."""
    sinusoids = importlib.import_module("sinusoids")
    x, _ = sinusoids.learned(0, 60, 250)
    learned, random = (sinusoids.error(start, 60, 200) for start in (x, sinusoids.network(0)))
    assert learned < 0.9 * random


def test_trusted_rows_are_of_all_classes():
    loops = importlib.import_module("loops")
    labels, rows = np.repeat(np.arange(3), (40, 9, 11)), np.arange(5, 60)[::-1]
    picked = loops.of_each_class(labels, rows, 15)
    assert np.bincount(labels[picked]).tolist() == [5, 5, 5]
    assert set(picked) <= set(rows)


def test_decays_are_judged_at_the_best_temperature():
    """As SciPy finds it, for scores that say too much and too little."""
    judged = importlib.import_module("weight_decay").loss_when_calibrated
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 200)
    scores = random.standard_normal((200, 4)) + 2 * np.eye(4)[labels]
    for size in (0.1, 1.0, 20.0):
        given = torch.tensor(size * scores)
        at = lambda times: float(cross_entropy(given * times, torch.tensor(labels)))  # noqa: B023
        best = minimize_scalar(at, bounds=(0.01, 30), method="bounded").fun
        assert float(judged(given, torch.tensor(labels))) == pytest.approx(best, rel=1e-6)
