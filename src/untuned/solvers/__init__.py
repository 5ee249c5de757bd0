"""The methods: `names()` lists them, `get(name)` gives the class of one."""

from typing import TYPE_CHECKING, Any

from untuned.solvers.base import METHODS, Info, Solver, get, names

if TYPE_CHECKING:
    from untuned.solvers.aid import AID
    from untuned.solvers.amigo import AmIGO
    from untuned.solvers.auto import Auto
    from untuned.solvers.bsa import BSA
    from untuned.solvers.dtfbo import DTFBO
    from untuned.solvers.f2sa import F2SA
    from untuned.solvers.fsla import FSLA
    from untuned.solvers.itd import ITD
    from untuned.solvers.mrbo import MRBO
    from untuned.solvers.saba import SABA
    from untuned.solvers.soba import SOBA
    from untuned.solvers.stfbo import STFBO
    from untuned.solvers.stocbio import StocBiO
    from untuned.solvers.sustain import SUSTAIN
    from untuned.solvers.ttsa import TTSA
    from untuned.solvers.vrbo import VRBO

__all__ = [
    "AID",
    "BSA",
    "DTFBO",
    "F2SA",
    "FSLA",
    "ITD",
    "MRBO",
    "SABA",
    "SOBA",
    "STFBO",
    "SUSTAIN",
    "TTSA",
    "VRBO",
    "AmIGO",
    "Auto",
    "Info",
    "Solver",
    "StocBiO",
    "get",
    "names",
]


def __getattr__(attribute: str) -> Any:
    """Find a method's class by its own name, so that a new method is one line in `METHODS`."""
    for name, place in METHODS.items():
        if place.endswith(":" + attribute):
            return get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
