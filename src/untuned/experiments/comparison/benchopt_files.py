"""Where the benchopt benchmark lies: in the wheel beside this file, in a checkout at its root."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent


def benchmark_folder() -> Path:
    """The folder that `benchopt run` is given."""
    installed = HERE / "benchmark_bilevel"
    checkout = HERE.parents[3] / "benchmarks" / "bilevel"
    for folder in (installed, checkout):
        if (folder / "objective.py").is_file():
            return folder
    raise ValueError(
        f"The benchopt benchmark is neither in {installed} nor in {checkout}; install untuned "
        "again from its wheel, or run in a whole checkout."
    )


def require_benchopt() -> None:
    """Refuse to start without benchopt, in one sentence."""
    if find_spec("benchopt") is None:
        raise ValueError(
            "The comparison runs on benchopt, which is not installed; install it with "
            "pip install 'untuned[benchmark]'."
        )
