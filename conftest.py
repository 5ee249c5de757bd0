"""What all tests share."""

import multiprocessing.process
import os
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

# One thread to each test process: more would only wait for each other on these small problems.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests are short runs of many functions: an optimizing compiler would take most of their time.
# Versions after 0.10 do not know the second flag, and end the process where they read it.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10."),
)

# A test must not find what another one has compiled, nor write into the user's folders.
os.environ.setdefault("UNTUNED_CACHE", "0")

import matplotlib
import matplotlib.font_manager  # starts a process where its list of fonts is not yet written
import pytest

matplotlib.use("Agg")
# Processes that tests start find the paper's package as pytest does, installed or not.
PATHS = (str(Path(__file__).parent / "paper" / "src"), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PATHS))
# A shell starts what it runs in the background with Ctrl-C ignored, which tests of Ctrl-C are not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATA = os.environ.get("UNTUNED_DATA")


@pytest.hookimpl(tryfirst=True)  # before the markers asked for are looked at
def pytest_collection_modifyitems(items):
    """Examples in docstrings take as long as what they show."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("long")


def pytest_runtest_setup(item):
    """Skip what a test's markers ask for and this machine does not have."""
    for marker in item.iter_markers("real_data"):
        for name in marker.args:
            if not (DATA and (Path(DATA) / f"{name}.npz").is_file()):
                pytest.skip(f"{name}.npz is not in the folder UNTUNED_DATA")
    here = shutil.which("chromium") and shutil.which("chromedriver")
    if item.get_closest_marker("browser") and not here:
        pytest.skip("there is no Chromium with its driver here")


@pytest.fixture(autouse=True)
def _what_markers_promise(request):
    """Only marked tests start processes or see real data: `make quick` leaves them all out."""

    def refuse(*_, **__):
        pytest.fail("this test starts a process; mark it with @pytest.mark.process")

    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("real_data"):
            patch.delenv("UNTUNED_DATA", raising=False)
        if not any(map(request.node.get_closest_marker, ("process", "browser"))):
            patch.setattr(subprocess.Popen, "__init__", refuse)
            patch.setattr(multiprocessing.process.BaseProcess, "start", refuse)
        yield


@pytest.fixture(params=["jax", "torch"])
def library(request):
    """Each array library in turn."""
    return request.param


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window; a test that uses it has the marker `browser`."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(params=["d-tfbo", "s-tfbo"])
def method(request):
    """Each of the paper's two methods in turn."""
    return request.param


@pytest.fixture
def untuned(tmp_path, monkeypatch, capsys):
    """The command line in this process, with estimators that fit in no time."""
    import standins
    from untuned import cli

    standins.install(monkeypatch)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["untuned", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run
