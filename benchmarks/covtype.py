"""Covtype on JAX: one regularization strength per feature, and its bare derivative evaluations.

    f(x, y) = mean over validation rows of log(1 + exp(-t <d, y>))
    g(x, y) = the same over training rows + 1/2 sum_k exp(x_k) y_k^2

with t = 1 for class 2 and -1 for the rest, as the paper states the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import untuned
from common import Problem, experiment, one_core

NUDGE = 1e-9  # how far the bare evaluations move their point: enough to not be dead code


@dataclass(frozen=True)
class Compiled:
    """A compiled function and its arguments; a call runs it and waits for the result."""

    function: Any
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        return jax.block_until_ready(self.function(*self.arguments))

    @property
    def buffer_bytes(self) -> int:
        """What XLA allocates for a call beside the arguments."""
        analysis = self.function.memory_analysis()
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes)


def _compile(function: Any, *arguments: Any) -> Compiled:
    return Compiled(jax.jit(function).lower(*arguments).compile(), arguments)


def problem() -> Problem:
    """The problem with its 371,847 training and 92,962 validation rows on the device."""
    with one_core():
        jax.devices()  # JAX starts as many threads as it sees cores
    covtype = experiment("covtype").problem()
    on_device = {name: _on_device(covtype[name]) for name in Problem._fields[2:]}
    return Problem(covtype["outer"], covtype["inner"], **on_device)


def _on_device(tree: Any) -> Any:
    # Waits: who measures time or memory next must not find a copy under way.
    return jax.block_until_ready(jax.device_put(tree))


def steps_of(solver: Any, problem: Problem, count: int) -> Compiled:
    """Full-batch steps of a method, stepped by hand in one compiled loop."""
    oracles = untuned.oracles(problem.outer, problem.inner, like=(problem.x0, problem.y0))

    def run(state: Any, batch: untuned.Batch) -> Any:
        return lax.fori_loop(0, count, lambda _, s: solver.step(oracles, s, batch)[0], state)

    state = solver.init(oracles, problem.x0, problem.y0)
    return _compile(run, state, untuned.Batch(problem.inner_data, problem.outer_data))


def bare_evaluations(problem: Problem, steps: int, batch_size: int | None) -> Compiled:
    """A compiled loop that evaluates all derivatives a step of S-TFBO needs, and nothing else.

    A while_loop, as a run of `untuned` is: with several threads XLA makes a scan slower.
    """

    def evaluate(point: Any, inner_rows: Any, outer_rows: Any) -> Any:
        x, y, v, total = point
        value, (f_x, f_y) = jax.value_and_grad(problem.outer, argnums=(0, 1))(x, y, outer_rows)
        g_y, pull = jax.vjp(lambda x, y: jax.grad(problem.inner, argnums=1)(x, y, inner_rows), x, y)
        cross, hvp = pull(v)
        moves = (f_x - cross, g_y, hvp - f_y)
        moved = (part - NUDGE * move for part, move in zip((x, y, v), moves, strict=True))
        return (*moved, total + value)

    # Data and count are arguments: the compiler would fold constants, and unroll known loops.
    def run(point: Any, data: Any, indices: Any, count: Any) -> Any:
        def body(carry: Any) -> Any:
            point, k = carry
            rows = data if indices is None else map(partial(take, k), data, indices)
            return evaluate(point, *rows), k + 1

        return lax.while_loop(lambda carry: carry[1] < count, body, (point, jnp.int32(0)))

    data = (problem.inner_data, problem.outer_data)
    indices = None if batch_size is None else _random_rows(data, steps, batch_size)
    # Away from zero, as in a run: no product is to be cheaper than others.
    point = (problem.x0, problem.y0 + 0.1, problem.y0 + 0.1, jnp.float32(0))
    return _compile(run, point, data, indices, np.int32(steps))


def take(k: Any, data: Any, indices: jax.Array) -> Any:
    """The rows of the k-th batch."""
    return jax.tree.map(lambda leaf: leaf.at[indices[k]].get(mode="promise_in_bounds"), data)


def _random_rows(data: Any, steps: int, batch_size: int) -> Any:
    random = np.random.default_rng(0)
    return tuple(
        jnp.asarray(random.integers(len(rows.labels), size=(steps, batch_size))) for rows in data
    )


def bare_products(problem: Problem, count: int, mode: str) -> Compiled:
    """A compiled loop of full-batch Hessian-vector products at one point, by "jvp" or "vjp"."""

    def run(x: jax.Array, y: jax.Array, v: jax.Array, rows: Any) -> jax.Array:
        def gradient(y: jax.Array) -> jax.Array:
            return jax.grad(problem.inner, argnums=1)(x, y, rows)

        def body(_: Any, v: jax.Array) -> jax.Array:
            if mode == "jvp":
                product = jax.jvp(gradient, (y,), (v,))[1]
            else:
                (product,) = jax.vjp(gradient, y)[1](v)
            return v - NUDGE * product

        return lax.fori_loop(0, count, body, v)

    start = problem.y0 + 0.1
    return _compile(run, problem.x0, start, start, problem.inner_data)
