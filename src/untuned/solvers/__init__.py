"""The methods: `names()` lists them, `get(name)` gives the class of one."""

from typing import TYPE_CHECKING, Any

from untuned.solvers.base import METHODS, Info, Solver, get, names

if TYPE_CHECKING:
    from untuned.solvers.dtfbo import DTFBO
    from untuned.solvers.stfbo import STFBO

__all__ = ["DTFBO", "STFBO", "Info", "Solver", "get", "names"]


def __getattr__(attribute: str) -> Any:
    """Find a method's class by its own name, so that a new method is one line in `METHODS`."""
    for name, place in METHODS.items():
        if place.endswith(":" + attribute):
            return get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
