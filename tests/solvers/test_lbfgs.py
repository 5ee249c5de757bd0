"""Limited-memory BFGS where numbers leave the range of their dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest

from untuned import ops as array_libraries
from untuned.solvers.numerics import lbfgs

OPS = array_libraries.get("numpy")


@pytest.mark.parametrize("project", [None, lambda x: np.clip(x, -1.0, 1.0)])
@pytest.mark.parametrize("size", [1e-24, 1e-23, 1e-20, 1e-10])
@pytest.mark.parametrize("step", [1e-10, 1.0, 1e10])
def test_pairs_whose_squares_are_zero_in_float32_divide_nothing(step, size, project):
    s, z = (number * np.array([1.0, 0.5], np.float32) for number in (step, size))
    memory = lbfgs.remember(OPS, lbfgs.empty(OPS, s), s.astype("f"), z.astype("f"))
    x, h = np.zeros(2, np.float32), z.astype("f")
    p, norm, along = lbfgs.step_along(OPS, project, memory, x, h, 0.1)
    assert np.isfinite(p).all()
    assert math.isfinite(norm)
    assert along > 0
    assert OPS.dot(p, h) <= 0
