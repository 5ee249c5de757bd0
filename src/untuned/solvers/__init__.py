"""The methods: `names()` lists them, `get(name)` gives the class of one."""

import importlib
from typing import TYPE_CHECKING, Any

from untuned.solvers.base import Info, Solver
from untuned.util.wording import unknown

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


# name -> "module:class"; modules are imported when a method is asked for.
METHODS = {
    "abo": "untuned.solvers.adaptive.abo:ABO",
    "aid": "untuned.solvers.tuned.aid:AID",
    "amigo": "untuned.solvers.tuned.amigo:AmIGO",
    "auto": "untuned.solvers.auto.method:Auto",
    "bisls": "untuned.solvers.adaptive.bisls:BiSLS",
    "bisps": "untuned.solvers.adaptive.bisps:BiSPS",
    "bsa": "untuned.solvers.tuned.bsa:BSA",
    "d-tfbo": "untuned.solvers.dtfbo:DTFBO",
    "f2sa": "untuned.solvers.tuned.f2sa:F2SA",
    "f2sa-2": "untuned.solvers.tuned.f2sa2:F2SA2",
    "fsla": "untuned.solvers.tuned.fsla:FSLA",
    "itd": "untuned.solvers.tuned.itd:ITD",
    "maid": "untuned.solvers.adaptive.maid:MAID",
    "mrbo": "untuned.solvers.tuned.mrbo:MRBO",
    "s-tfbo": "untuned.solvers.stfbo:STFBO",
    "saba": "untuned.solvers.tuned.saba:SABA",
    "soba": "untuned.solvers.tuned.soba:SOBA",
    "stocbio": "untuned.solvers.tuned.stocbio:StocBiO",
    "sustain": "untuned.solvers.tuned.sustain:SUSTAIN",
    "ttsa": "untuned.solvers.tuned.ttsa:TTSA",
    "vrbo": "untuned.solvers.tuned.vrbo:VRBO",
}


def names() -> list[str]:
    """The names of all methods."""
    return sorted(METHODS)


def get(name: str) -> Any:
    """The class of a method; call it, with or without hyperparameters, to have a solver."""
    if not isinstance(name, str) or name not in METHODS:
        raise unknown("method", name, METHODS)
    module, _, attribute = METHODS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def __getattr__(attribute: str) -> Any:
    """Find a method's class by its own name, so that a new method is one line in `METHODS`."""
    for name, place in METHODS.items():
        if place.endswith(":" + attribute):
            return get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
