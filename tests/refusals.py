"""What the tests of bad input share: a right problem, and what a refusal must look like."""

import contextlib
import math
import os
import re
from datetime import timedelta

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

import untuned
from untuned.ops import jax as jax_ops
from untuned.ops import torch as torch_ops

# What is refused before an array is looked at needs one library; what looks at arrays needs both,
# and NumPy too where x0 and y0 are meant, whose kind of array a run gives back.
LIBRARIES = ("numpy", "jax", "torch")
COMPILED = ("jax", "torch")  # NumPy arrays run on JAX, so a whole run need not be made twice
nan, inf = math.nan, math.inf

every_library = pytest.mark.parametrize("library", LIBRARIES)
both_libraries = pytest.mark.parametrize("library", COMPILED)
both_variables = pytest.mark.parametrize("name", ["x0", "y0"])
both_sides = pytest.mark.parametrize("side", ["inner_data", "outer_data"])
both_functions = pytest.mark.parametrize("role", ["outer", "inner"])


MANY = float(os.environ.get("UNTUNED_FUZZ", "1"))  # times the examples of the default suite


def examples(count):
    """Settings of a property test with `count` examples by default."""
    # A page or a command takes a second: to look for the smallest example would take an hour.
    return settings(
        phases=[Phase.generate],
        max_examples=round(count * MANY),
        derandomize=MANY == 1,
        deadline=timedelta(seconds=120),  # a hang is a failure
        suppress_health_check=list(HealthCheck),
        database=None,
    )


def array(library, values, dtype="float32"):
    values = np.asarray(values, dtype)
    if library == "torch":
        return torch.from_numpy(values.copy())
    if library == "jax":
        with jax.enable_x64(True):  # or float64 would silently become float32
            return jnp.asarray(values)
    return values


def f(x, y, batch=None):
    return ((y - (1.0 if batch is None else batch.mean(0))) ** 2).sum()


def g(x, y, batch=None):
    return ((y - x) ** 2).sum() + (0.0 if batch is None else ((y - batch) ** 2).mean())


def minimize(library, **changes):
    """A run that is right but for `changes`."""
    start = {name: array(library, [0.0, 0.0]) for name in ("x0", "y0")}
    return untuned.minimize(**{"outer": f, "inner": g, "max_steps": 3} | start | changes)


def rows(library, count=6, dtype="float32"):
    values = np.random.default_rng(count).standard_normal((count, 2))
    return array(library, values, dtype)


def assert_one_sentence(text):
    assert "\n" not in text, text
    assert text.endswith("."), text
    assert len(text) < 400, text
    assert not re.search(r"[.!?] [A-Z]", text), f"more than one sentence: {text}"


@contextlib.contextmanager
def refused(*parts, may_compile=False):
    """Expect a ValueError of one sentence with these parts in this order, and no compilation."""

    def compile(*args, effort="full"):
        pytest.fail("a function was compiled before the input was refused")

    match = ".*".join(re.escape(part) for part in parts)
    with pytest.MonkeyPatch.context() as patch:
        if not may_compile:
            patch.setattr(jax_ops, "compile", compile)
            patch.setattr(torch_ops, "compile", compile)
        with pytest.raises(ValueError, match=match) as caught:
            yield caught
    assert_one_sentence(str(caught.value))
