"""Bilevel optimization without step sizes: min over x of f(x, y*(x)), y*(x) = argmin_y g(x, y)."""

from typing import TYPE_CHECKING, Any

from untuned import solvers, theory
from untuned.data.batches import Batch
from untuned.data.disk.parquet import parquet
from untuned.diagnostics import check_hypergradient, check_problem
from untuned.problem.derivatives import oracles
from untuned.run import minimize
from untuned.run.result import History, Result, Snapshot
from untuned.solution.argmin import argmin
from untuned.solution.hypergradient import Hypergradient, hypergradient
from untuned.solution.quadratic import quadratic_program

if TYPE_CHECKING:
    from untuned.networks.reweighter import Reweighter
    from untuned.ops.module import from_module

__all__ = [
    "Batch",
    "History",
    "Hypergradient",
    "Result",
    "Reweighter",
    "Snapshot",
    "argmin",
    "check_hypergradient",
    "check_problem",
    "from_module",
    "hypergradient",
    "minimize",
    "oracles",
    "parquet",
    "quadratic_program",
    "solvers",
    "theory",
]


def __getattr__(name: str) -> Any:
    """Names that cost an import of their own, looked up only when used."""
    if name == "from_module":
        from untuned.ops.module import from_module

        return from_module
    if name == "Reweighter":
        from untuned.networks.reweighter import Reweighter

        return Reweighter
    if name == "__version__":
        from importlib.metadata import version

        return version("untuned")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
