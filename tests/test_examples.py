"""Every example runs, small, with its controls."""

import importlib
import sys

import pytest

from untuned.experiments import datasets


@pytest.mark.parametrize(("script", "task"), [("wrong_labels", "mnist"), ("imbalance", "tail-50")])
def test_it_runs_small(script, task, capsys, monkeypatch):
    try:
        datasets.load("mnist")
    except ValueError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(sys, "argv", [script, task, "--small", "--seeds", "0", "--epochs", "1"])
    importlib.import_module(script).main()
    printed = capsys.readouterr().out
    names = ("plain, early", "noisy and trusted", "Reweighter |", "form='loss'", "order=1", "auto")
    for name in names:
        assert name in printed, name
