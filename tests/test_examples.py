"""Every example runs, small, with its controls."""

import importlib
import re
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


@pytest.mark.long
def test_problems_with_an_argmin_inside(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["argmin_layers", "--small"])
    importlib.import_module("argmin_layers").main()
    numbers = [
        [float(number) for number in re.findall(r" (\d[\d.e-]*\d)", line)]
        for line in capsys.readouterr().out.splitlines()
    ]
    (by_gradient, by_grid), (_, from_libsvm), (first, last), (noisy, ours, search) = numbers
    assert by_gradient <= by_grid + 1e-6
    assert from_libsvm < 1e-6
    assert last < first
    assert noisy + 0.5 < ours
    assert ours == pytest.approx(search, abs=0.02)
