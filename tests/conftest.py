"""What all tests share."""

import os

# One thread to each test process: more would only wait for each other on these small problems.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib
import pytest

matplotlib.use("Agg")


@pytest.fixture(params=["jax", "torch"])
def library(request):
    """Each array library in turn."""
    return request.param


@pytest.fixture(params=["d-tfbo", "s-tfbo"])
def method(request):
    """Each of the paper's two methods in turn."""
    return request.param
