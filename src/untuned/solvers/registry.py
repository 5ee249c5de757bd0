"""The methods by name."""

from __future__ import annotations

import importlib
from typing import Any

from untuned.util.wording import unknown

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
