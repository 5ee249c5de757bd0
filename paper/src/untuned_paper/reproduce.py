"""`untuned reproduce NAME`: what can be reproduced, by name.

A recipe is a function (out, quick, seed, max_seconds, ...) -> str that writes into the folder `out`
and returns the summary to print. Further parameters are options of the command line.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from untuned.util.wording import unknown

# name -> "module:function"; modules are imported when a recipe is asked for.
RECIPES = {
    "all": "untuned_paper.everything:reproduce",
    "figure1": "untuned_paper.comparison.figures:figure1",
    "figure2": "untuned_paper.comparison.figures:figure2",
    "table1": "untuned_paper.continual.table1:reproduce",
    "table2": "untuned_paper.continual.table2:reproduce",
    "theory": "untuned_paper.theory.study:reproduce",
    "tuning": "untuned_paper.comparison.tuning:tuning",
}


def run(
    name: str, out: Path, quick: bool, seed: int, max_seconds: float | None, **options: Any
) -> str:
    """Run one recipe; `options` left at None were not given."""
    if name not in RECIPES:
        raise unknown("figure", name, RECIPES)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; expected a folder, so give another name.")
    module, _, attribute = RECIPES[name].partition(":")
    recipe = getattr(importlib.import_module(module), attribute)
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in inspect.signature(recipe).parameters:
            raise ValueError(f"reproduce {name} takes no --{option}; leave it out.")
    return recipe(out, quick, seed, max_seconds, **given)
