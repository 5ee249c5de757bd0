"""Every example runs, small, with its controls."""

import importlib
import sys

import pytest


@pytest.mark.real_data("mnist")
@pytest.mark.parametrize(("script", "task"), [("wrong_labels", "mnist"), ("imbalance", "tail-50")])
def test_it_runs_small(script, task, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script, task, "--small", "--seeds", "0", "--epochs", "1"])
    importlib.import_module(script).main()
    printed = capsys.readouterr().out
    names = ("plain, early", "noisy and trusted", "Reweighter |", "form='loss'", "order=1", "auto")
    for name in names:
        assert name in printed, name
