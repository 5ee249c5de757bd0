"""The methods: `names()` lists them, `get(name)` gives the class of one."""

from typing import TYPE_CHECKING, Any

from untuned.solvers.base import Info, Solver
from untuned.solvers.registry import METHODS, get, names

if TYPE_CHECKING:
    from untuned.solvers.adaptive.abo import ABO
    from untuned.solvers.adaptive.bisls import BiSLS
    from untuned.solvers.adaptive.bisps import BiSPS
    from untuned.solvers.adaptive.maid import MAID
    from untuned.solvers.auto.method import Auto
    from untuned.solvers.dtfbo import DTFBO
    from untuned.solvers.stfbo import STFBO
    from untuned.solvers.tuned.aid import AID
    from untuned.solvers.tuned.amigo import AmIGO
    from untuned.solvers.tuned.bsa import BSA
    from untuned.solvers.tuned.f2sa import F2SA
    from untuned.solvers.tuned.f2sa2 import F2SA2
    from untuned.solvers.tuned.fsla import FSLA
    from untuned.solvers.tuned.itd import ITD
    from untuned.solvers.tuned.mrbo import MRBO
    from untuned.solvers.tuned.saba import SABA
    from untuned.solvers.tuned.soba import SOBA
    from untuned.solvers.tuned.stocbio import StocBiO
    from untuned.solvers.tuned.sustain import SUSTAIN
    from untuned.solvers.tuned.ttsa import TTSA
    from untuned.solvers.tuned.vrbo import VRBO

__all__ = [
    "ABO",
    "AID",
    "BSA",
    "DTFBO",
    "F2SA",
    "F2SA2",
    "FSLA",
    "ITD",
    "MAID",
    "MRBO",
    "SABA",
    "SOBA",
    "STFBO",
    "SUSTAIN",
    "TTSA",
    "VRBO",
    "AmIGO",
    "Auto",
    "BiSLS",
    "BiSPS",
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
