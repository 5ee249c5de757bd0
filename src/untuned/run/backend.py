"""Where a run's steps and derivatives are evaluated, and on which sample of rows it may look.

* **JAX compiles whole chunks of steps** of a method that makes one gradient step at a time.
* **JAX compiles derivatives alone, and Python runs the loops**, for methods that say so (`auto` on
  all rows: few steps of many loops, whose compilation takes longer than all else), and for methods
  that solve for y and v inside a step where one evaluation takes so long that Python in between
  does not matter: then they keep a limit of time. What is compiled of `reusable` functions serves
  all later runs, so these stay compiled unless an evaluation takes longer still.
* **NumPy evaluates what JAX has traced**, for `auto` on all rows, as long as NumPy has all of the
  operations, results are not too large, and one thread suffices. It is as quick as compiled
  programs there, and nothing is compiled.
* **On torch** `auto` on all rows keeps products with the rows (ops/torch_rows), unless these are
  few.

The choice depends on counted operations and not on a clock, so a run can be repeated bit for bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from untuned import ops as array_libraries
from untuned.ops import Ops, Tree
from untuned.ops.cache import name_of
from untuned.problem.build import Problem
from untuned.problem.derivatives import Oracles
from untuned.solvers.base import Solver
from untuned.solvers.numerics import preconditioner

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


def chosen(problem: Problem, solver: Solver, seed: int) -> Problem:
    """The same problem, evaluated where that is best for this method, with a sample of its rows."""
    if problem.ops.name == "jax" and not any(side is not None for side in problem.on_disk):
        problem = _on_jax(problem, solver)
    if not solver.on_host:
        return problem
    if problem.ops.name == "torch":
        problem = _with_rows_kept(problem)
    return _with_sample(problem, seed)


def _on_jax(problem: Problem, solver: Solver) -> Problem:
    """With loops in Python, if this is a run for it."""
    from untuned.ops import jax_on_host

    o = problem.oracles
    fits = jax_on_host.fits(problem.x0, problem.y0, *problem.data[:2])
    if not solver.on_host:
        is_reusable = name_of(o.outer_function, o.inner_function) is not None
        least = SAVES_NOTHING if is_reusable else WORTH_A_CALL
        if not fits or not _is_slow(problem, solver, jax_on_host.operations, least):
            return problem
    effort = "full" if not solver.on_host or _bytes(problem) > LARGE else "least"
    if not fits:
        ops: Any = jax_on_host.OnDevices(effort)
        return dataclasses.replace(
            problem, oracles=Oracles(ops, o.outer_function, o.inner_function, o.project)
        )
    ops = jax_on_host.OnHost(effort, in_numpy=solver.on_host)
    return dataclasses.replace(
        problem,
        oracles=Oracles(ops, o.outer_function, o.inner_function, ops.on_jax(o.project)),
        x0=ops.tree_map(ops.to_numpy, problem.x0),
        y0=ops.tree_map(ops.to_numpy, problem.y0),
    )


def _with_sample(problem: Problem, seed: int) -> Problem:
    """With a few random rows of the inner side, by which a Hessian on all rows is corrected."""
    ops, rows = problem.ops, problem.data.inner
    if rows is None:
        return problem
    count = preconditioner.sample_size(ops.size(problem.y0), problem.rows[0])
    if not count:
        return problem
    order = np.random.default_rng([seed, 0]).permutation(problem.rows[0])
    sample = ops.take(rows, order[:count])
    # g may need all rows, as where x has a weight for each and the rows have no numbers. Of
    # several processes, the rows of this one alone say nothing.
    if not problem.grouped:
        library = array_libraries.get(ops.name)
        try:
            library.output_of(problem.oracles.inner_function, problem.x0, problem.y0, sample)
        except (RuntimeError, ValueError, IndexError, TypeError):
            return problem
    return dataclasses.replace(problem, data=problem.data._replace(sample=sample))


def _with_rows_kept(problem: Problem) -> Problem:
    """On torch, products with rows that stay are made once (ops/torch_rows)."""
    if problem.grouped:
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
