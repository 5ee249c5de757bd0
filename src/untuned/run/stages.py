"""Which rows a run works on: a sample first, eight times as many next, all at last.

A method that solves for y and v pays for every row at every product, and the first steps need no
such exactness. So where data are large it works on nested random samples, each stage from where the
last one ended. A stage is over when the loss on rows outside of its sample hardly falls any more
(or the method ends by itself): more would only fit the sample.

Ten rows for each variable are enough for a sample. Where that leaves none, as with a weight for
every row, one sample is made on trial: the method also sees other rows, and ends the stage as soon
as these say that the sample is wrong by more than a step can gain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned import ops as array_libraries
from untuned.data.batches import Data
from untuned.ops import Ops, Tree
from untuned.problem import mean_check
from untuned.problem.build import Problem
from untuned.solvers.base import size
from untuned.solvers.numerics import preconditioner

GROWTH = 8
ROWS_PER_VARIABLE, FEWEST_ROWS = 10, 1000  # of a sample: fewer say little about that many variables
LARGE = 2**25  # bytes of data below which a sample saves less time than compiling for it takes


def plan(problem: Problem, solver: Any, seed: int) -> list[float]:
    """The shares of the rows to work on, the last being 1."""
    shares = [1.0]
    ops, data = problem.ops, problem.data
    if not solver.wants_stages or data.inner is None or data.outer is None:
        return shares
    if sum(_bytes(ops, side) for side in data[:2]) < LARGE:
        return shares
    fewest = _enough(problem)
    while min(problem.rows) * shares[0] / GROWTH >= fewest:
        shares.insert(0, shares[0] / GROWTH)
    on_trial = len(shares) == 1
    if on_trial and min(problem.rows[0] / GROWTH, problem.rows[1] / 2) >= FEWEST_ROWS:
        shares.insert(0, 1 / GROWTH)
    if len(shares) > 1 and not _losses_are_means(problem, seed):
        return [1.0]
    return shares


def rows(problem: Problem, solver: Any, seed: int, share: float) -> Data:
    """The data of a stage: a share of each side's rows, and the extra rows a method asks for."""
    ops, data = problem.ops, problem.data
    if not solver.wants_stages:
        return data
    pilot = None
    if data.inner is not None:
        all_rows = round(share * problem.rows[0])
        count = preconditioner.pilot_rows(size(ops, problem.y0), all_rows)
        pilot = ops.take(data.inner, _order(problem, seed, 0)[:count]) if count else None
        pilot = pilot if pilot is None or _takes(problem, pilot) else None
    if share == 1:
        return data._replace(pilot=pilot)
    inner, outer = (max(FEWEST_ROWS, round(share * count)) for count in problem.rows)
    inner_order, outer_order = (_order(problem, seed, side) for side in (0, 1))
    sample = Data(
        inner=ops.take(data.inner, inner_order[:inner]),
        outer=ops.take(data.outer, outer_order[:outer]),
        pilot=pilot,
        held_out=ops.take(data.outer, outer_order[outer : 2 * outer]),
    )
    if inner >= _enough(problem):
        return sample
    unseen = ops.take(data.inner, inner_order[inner : 2 * inner])
    return sample._replace(whole=data.inner, unseen=unseen)


def _enough(problem: Problem) -> int:
    """The rows that a sample needs in order not to be on trial."""
    variables = size(problem.ops, (problem.x0, problem.y0))
    return max(FEWEST_ROWS, ROWS_PER_VARIABLE * variables)


def _order(problem: Problem, seed: int, side: int) -> np.ndarray:
    return np.random.default_rng([seed, side]).permutation(problem.rows[side])


def _takes(problem: Problem, sample: Tree) -> bool:
    """Whether g can be given some of the rows: it may know how many there are, as where x has a
    weight for each row and they are not told apart by a number among the data."""
    if problem.grouped:
        return True  # where rows of this process alone say nothing
    library = array_libraries.get(problem.ops.name)
    try:
        library.output_of(problem.oracles.inner_function, problem.x0, problem.y0, sample)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    return True


def _bytes(ops: Ops, tree: Tree) -> int:
    return sum(leaf.nbytes for leaf in ops.flatten(tree)[0])


def _losses_are_means(problem: Problem, seed: int) -> bool:
    """Whether f and g are means over rows, as sampling needs; a sum grows with the sample."""
    o, point = problem.oracles, (problem.x0, problem.y0)
    try:
        return all(
            mean_check.gap(
                problem.ops, function, *point, problem.data[side],
                _order(problem, seed, side)[: 2 * (FEWEST_ROWS // 2)],
            ) <= mean_check.SAME
            for side, function in ((0, o.inner_value), (1, o.outer_value))
        )  # fmt: skip
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False  # some of the rows are no input for them
