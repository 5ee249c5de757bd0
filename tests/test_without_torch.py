"""PyTorch is an extra: what needs it says so, and what does not need it works without."""

import subprocess
import sys

import numpy as np
import pytest

import untuned
from untuned import coreset
from untuned.commands import saved_model


@pytest.fixture
def without_torch(monkeypatch):
    """As where torch is not installed; modules of ours that have it already are forgotten."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("networks.reweighter", "ops.module", "coreset.selectors.simplex"):
        monkeypatch.delitem(sys.modules, f"untuned.{name}", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize("name", ["Reweighter", "from_module"])
def test_names_that_need_torch_say_so(without_torch, name):
    with pytest.raises(ModuleNotFoundError, match=f"untuned.{name} needs PyTorch, which is not"):
        getattr(untuned, name)


def test_selectors_that_need_torch_say_so(without_torch):
    X, y = np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    with pytest.raises(ModuleNotFoundError, match="method='bcsr' needs PyTorch"):
        coreset.select(None, X, y, 4, method="bcsr")
    assert len(coreset.select(None, X, y, 4).indices) == 4


def test_the_command_line_says_so(untuned, monkeypatch):
    def torchless(*arguments, **options):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("untuned.commands.methods.show", torchless)
    code, _, err = untuned("methods")
    assert code == 2
    assert err.startswith("untuned: This needs PyTorch, which is not installed; ")


SAVE = """
import sys
from pathlib import Path

from sklearn.linear_model import Ridge

from untuned.commands import saved_model

saved_model.save(Path(sys.argv[1]), None, Ridge())
assert "torch" not in sys.modules
import torch

assert torch.ones(1).item() == 1
"""


@pytest.mark.process
def test_saving_a_model_takes_no_time_for_torch(tmp_path):
    """Which skops would import, where it is installed; it can be imported afterwards."""
    subprocess.run([sys.executable, "-c", SAVE, str(tmp_path)], check=True)
    assert (tmp_path / saved_model.FILE).exists()
