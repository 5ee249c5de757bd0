"""Which runs a comparison and a search consist of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from untuned import solvers
from untuned.util.wording import brief, unknown
from untuned_paper.comparison import grids
from untuned_paper.comparison.pool import REFERENCE
from untuned_paper.comparison.records import ComparedRun
from untuned_paper.problems import registry

PAPER_PROBLEMS = ("covtype", "mnist-0.1")
BATCH_SIZE = 64


class ComparisonPlan(NamedTuple):
    """What all runs of a comparison share."""

    problems: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: int | None
    max_seconds: float
    search_seconds: float  # of one run of a grid
    reference_iterations: int

    @property
    def reduced(self) -> str:
        """What a quick plan leaves out, in words."""
        if self.rows is None:
            return ""
        return (
            f"Quick: at most {self.rows:,} rows of each data set and {len(self.seeds)} seed"
            f"{'s' * (len(self.seeds) > 1)}, so these are not the paper's problems at full size."
        )


def plan(
    quick: bool,
    seed: int,
    max_seconds: float | None,
    method: Iterable[str] | None,
    problem: Iterable[str] | None,
) -> ComparisonPlan:
    """A plan from what the user asked for; names are checked before anything runs."""
    methods, chosen = tuple(method or solvers.names()), tuple(problem or PAPER_PROBLEMS)
    for name in methods:
        solvers.get(name)
    for name in chosen:
        if name not in registry.names():
            raise unknown("problem", name, registry.names())
    if max_seconds is not None and not 0 < max_seconds < math.inf:
        raise ValueError(
            f"--max-seconds {brief(max_seconds)} is not usable; expected a number above zero, the "
            "seconds each run may take."
        )
    if quick:
        usual = ComparisonPlan(chosen, methods, (seed,), 2_000, 0.6, 0.2, 20)
    else:
        usual = ComparisonPlan(chosen, methods, (seed, seed + 1, seed + 2), None, 60.0, 5.0, 60)
    if max_seconds is None:
        return usual
    return usual._replace(max_seconds=max_seconds, search_seconds=max_seconds)


def comparison(plan: ComparisonPlan) -> list[ComparedRun]:
    """The runs of figures 1 and 2, and the search for the least Phi of each problem."""
    references = [
        ComparedRun(
            problem,
            REFERENCE,
            f"iterations={plan.reference_iterations}",
            0,
            plan.rows,
            0,
            0.0,
            False,
        )
        for problem in plan.problems
    ]
    return references + [
        ComparedRun(problem, method, setting, seed, plan.rows, BATCH_SIZE, plan.max_seconds, True)
        for problem in plan.problems
        for seed in plan.seeds
        for method in plan.methods
        for setting in grids.settings(method, problem)
    ]


def search(plan: ComparisonPlan) -> list[ComparedRun]:
    """The runs of all grids, one seed each."""
    return [
        ComparedRun(
            problem,
            method,
            setting,
            plan.seeds[0],
            plan.rows,
            BATCH_SIZE,
            plan.search_seconds,
            False,
        )
        for problem in plan.problems
        for method in plan.methods
        for setting in grids.grid(method, problem)
    ]
