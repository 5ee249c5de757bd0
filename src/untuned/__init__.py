"""Bilevel optimization without step sizes: min over x of f(x, y*(x)), y*(x) = argmin_y g(x, y)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from untuned import solvers
from untuned.data.batches import Batch
from untuned.problem.derivatives import oracles
from untuned.run import minimize
from untuned.run.result import History, Result, Snapshot
from untuned.util.wording import NO_TORCH

if TYPE_CHECKING:
    from untuned import theory
    from untuned.data.disk.parquet import parquet
    from untuned.diagnostics import check_hypergradient, check_problem
    from untuned.networks.reweighter import Reweighter
    from untuned.ops.module import from_module
    from untuned.solution.argmin import argmin
    from untuned.solution.hypergradient import Hypergradient, hypergradient
    from untuned.solution.quadratic import quadratic_program

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


# Names that cost an import of their own, looked up only when used, and where they are.
_ELSEWHERE = {
    "Hypergradient": "solution.hypergradient",
    "Reweighter": "networks.reweighter",
    "argmin": "solution.argmin",
    "check_hypergradient": "diagnostics",
    "check_problem": "diagnostics",
    "from_module": "ops.module",
    "hypergradient": "solution.hypergradient",
    "parquet": "data.disk.parquet",
    "quadratic_program": "solution.quadratic",
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        try:
            return getattr(import_module(f"untuned.{_ELSEWHERE[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(f"untuned.{name} {NO_TORCH}", name="torch") from None
    if name == "theory":
        return import_module("untuned.theory")
    if name == "__version__":
        from importlib.metadata import version

        return version("untuned")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
