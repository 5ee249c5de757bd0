"""Which runs on JAX have their loops on the host, with derivatives alone compiled, or in NumPy; and
which on torch keep what they know of the rows.

`auto` on all rows, since it makes few steps of many loops inside loops: compiling those takes
longer than all else. Of other methods those that solve for y and v inside a step, once an
evaluation takes so long that Python between two of them does not matter: so that they keep a limit
of time. Where functions are `reusable`, what is compiled serves all later runs, and pays: of those
only where an evaluation takes so long that compiled loops would save nothing.
In NumPy: what `auto` evaluates, as long as NumPy has all the operations, one thread is enough for
their products or all there is, and results are not too many. It is as quick as compiled programs
there, and nothing is compiled; on larger data XLA's threads are of use.
On torch `auto` on all rows keeps what it knows of the rows (ops/torch_rows), unless they are few.
Which it is depends on counted operations and not on a clock, so a run can be repeated bit for bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

from untuned.ops import Ops, Tree
from untuned.ops.cache import name_of
from untuned.problem.build import Problem
from untuned.problem.derivatives import Oracles
from untuned.solvers.base import Solver

# Operations of one g, of which there are a few to the nanosecond: enough that Python between two
# evaluations costs little. And of a whole step, where that is known: a good part of a second.
WORTH_A_CALL, LONG_STEP = 2e5, 1e9
FEW = 8  # evaluations of a step that need not be cut
SAVES_NOTHING = 1e7  # operations of one g beside which Python is lost
# Bytes of data from which on quicker programs are worth the time to compile them: without the
# optimizer an evaluation takes about 0.2 ms a megabyte longer, and programs are there 0.6 s sooner;
# the shortest runs make some three hundred evaluations (docs/lab/clock.md).
LARGE = 2**23
# Multiplications of a Hessian, from which on it saves more than what Python adds on torch.
WORTH_KEEPING = 2**20


def moved(problem: Problem, solver: Solver) -> Problem:
    """The same problem, on the host if this is a run for it."""
    if any(side is not None for side in problem.on_disk):
        return problem
    if problem.ops.name == "torch":
        return _with_rows_kept(problem, solver)
    if problem.ops.name != "jax":
        return problem
    from untuned.ops import jax_on_host

    variables = (problem.x0, problem.y0)
    if not jax_on_host.fits(*variables, *problem.data[:2]):
        return problem
    o = problem.oracles
    is_reusable = name_of(o.outer_function, o.inner_function) is not None
    is_auto = solver.wants_stages and problem.full_batch
    if is_reusable or not is_auto:
        least = SAVES_NOTHING if is_reusable else WORTH_A_CALL
        if not _is_slow(problem, solver, jax_on_host.operations, least):
            return problem
    effort = "full" if not is_auto or _bytes(problem) > LARGE else "least"
    ops: Any = jax_on_host.OnHost(effort, in_numpy=is_auto and not is_reusable)
    return dataclasses.replace(
        problem,
        oracles=Oracles(ops, o.outer_function, o.inner_function, ops.on_jax(o.project)),
        x0=ops.tree_map(ops.to_numpy, problem.x0),
        y0=ops.tree_map(ops.to_numpy, problem.y0),
    )


def _with_rows_kept(problem: Problem, solver: Solver) -> Problem:
    """On torch, products with rows that stay are made once (ops/torch_rows)."""
    if problem.grouped or not (solver.wants_stages and problem.full_batch):
        return problem
    numbers = max((leaf.numel() for leaf in problem.ops.flatten(problem.data.inner)[0]), default=0)
    if numbers * problem.ops.size(problem.y0) < WORTH_KEEPING:
        return problem
    from untuned.ops.torch_rows.operations import OnRows

    o, ops = problem.oracles, OnRows()
    oracles = Oracles(cast(Ops, ops), o.outer_function, o.inner_function, o.project)
    return dataclasses.replace(problem, oracles=oracles)


def evaluates_in_numpy(problem: Problem) -> bool:
    """Whether f and g are JAX's, and NumPy evaluates what it can of them."""
    return bool(getattr(problem.ops, "in_numpy", False))


def is_short(solver: Solver) -> bool:
    """Whether a step is known to take few evaluations."""
    return None not in solver.cost and sum(solver.cost) <= FEW


def _is_slow(
    problem: Problem, solver: Solver, operations: Callable[..., float], least: float
) -> bool:
    rows: tuple[Tree, ...] = ()
    if problem.data.inner is not None:
        rows = (problem.ops.head(problem.data.inner, problem.batch_sizes[0]),)
    if is_short(solver):
        return False
    evaluations = math.inf if None in solver.cost else sum(solver.cost)
    of_one = operations(problem.oracles.inner_function, problem.x0, problem.y0, *rows)
    return of_one >= least and of_one * evaluations >= LONG_STEP


def _bytes(problem: Problem) -> int:
    leaves = problem.ops.flatten(problem.data[:2])[0]
    return sum(leaf.nbytes for leaf in leaves)
