"""What all tests share."""

import os
import signal

# One thread to each test process: more would only wait for each other on these small problems.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests are short runs of many functions: an optimizing compiler would take most of their time.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
)

import matplotlib
import pytest

matplotlib.use("Agg")
# A shell starts what it runs in the background with Ctrl-C ignored, which tests of Ctrl-C are not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["jax", "torch"])
def library(request):
    """Each array library in turn."""
    return request.param


@pytest.fixture(params=["d-tfbo", "s-tfbo"])
def method(request):
    """Each of the paper's two methods in turn."""
    return request.param
