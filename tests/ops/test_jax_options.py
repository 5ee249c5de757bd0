"""Options that the XLA installed does not have are left out."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from untuned.ops import jax_options


@pytest.fixture
def other_xla(monkeypatch):
    """Every effort has one option that no XLA knows, beside those of today."""
    unknown = {effort: {"xla_gone": True} | each for effort, each in jax_options.EFFORTS.items()}
    monkeypatch.setattr(jax_options, "EFFORTS", unknown)
    jax_options.of_effort.cache_clear()
    yield
    jax_options.of_effort.cache_clear()


@pytest.mark.parametrize("method", ["auto", "s-tfbo"])
def test_a_run_does_without_options_that_are_gone(other_xla, method):
    inner = lambda x, y: jnp.sum((y - x) ** 2)
    outer = lambda x, y: jnp.sum((y - 1.0) ** 2)
    start = np.zeros(2, np.float32)
    result = untuned.minimize(outer, inner, start, start, method=method, max_steps=3)
    assert result.steps == 3 or result.status == "converged"


def test_known_options_are_kept(other_xla):
    assert jax_options.of_effort("least")["xla_backend_optimization_level"] == 0
    assert "xla_gone" not in jax_options.of_effort("least")
