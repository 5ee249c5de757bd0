"""A step of every tuned method on JAX against the same method in a bare scan, on Covtype.

Batches of 64 come from all of its rows. "Full batch" is 20,000 training and 5,000 validation rows,
so that a step of the costliest method lasts less than a second. Loops are of ten, but in VRBO's
full-batch steps of three with a period of four, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import bare_methods
import covtype
from bare_methods import GAMMA, RHO
from common import Problem, Row, beside, main
from untuned import solvers
from untuned.data.streams import uniforms

INNER_ROWS, OUTER_ROWS, BATCH = 20_000, 5_000, 64
TARGET = 1.10
SHORT = {"inner_steps": 3, "linear_steps": 3, "period": 4}  # of VRBO, on all rows
BARE_NAMES = {"inner_steps": "T", "linear_steps": "n", "period": "period"}
# Steps per round: about 50 ms of work, and a whole period of VRBO.
STEPS_MINIBATCH = {"saba": 2048, "soba": 2048, "fsla": 1024, "ttsa": 512, "vrbo": 50}
STEPS_FULL = {"saba": 24, "soba": 24, "fsla": 12, "ttsa": 8, "vrbo": 4}
FEWER = {None: 3, BATCH: 192}  # of all other methods


def measure(quick: bool) -> list[Row]:
    """The ratios of all methods, at batch 64 and on all rows."""
    whole = covtype.problem()
    part = whole._replace(
        inner_data=_first(whole.inner_data, INNER_ROWS),
        outer_data=_first(whole.outer_data, OUTER_ROWS),
    )
    kinds = ((whole, BATCH, STEPS_MINIBATCH), (part, None, STEPS_FULL))
    return [
        _ratio(problem, name, size, steps.get(name, FEWER[size]), rounds=7 if quick else 21)
        for problem, size, steps in kinds
        for name in bare_methods.METHODS
    ]


def _first(rows: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[:count], rows)


def _ratio(problem: Problem, name: str, size: int | None, steps: int, rounds: int) -> Row:
    options = SHORT if name == "vrbo" and size is None else {}
    method = solvers.get(name)(step_size=RHO, outer_ratio=RHO / GAMMA, **options)
    bare_step = partial(
        bare_methods.METHODS[name], **{BARE_NAMES[key]: value for key, value in options.items()}
    )
    bare = _bare_run(problem, bare_step, method, size, steps)
    times = beside(problem, method, {"bare": bare}, steps, rounds, batch_size=size)
    ours, base = times["ours"], times["bare"]
    low, middle, high = np.quantile(ours / base, [0.25, 0.5, 0.75])
    cpu = times["ours CPU"].min() / times["bare CPU"].min()
    # Of minima: other processes only ever add time, and on a shared machine they add much.
    detail = (
        f"median {middle:.2f}, quartiles {low:.2f} to {high:.2f}; processor time {cpu:.2f}; "
        f"least {1e6 * ours.min():.0f} / {1e6 * base.min():.0f} us"
    )
    label = f"JAX {name} step / bare scan, Covtype, batch {size or 'full'}"
    return Row(label, TARGET, float(ours.min() / base.min()), detail=detail)


def _bare_run(
    problem: Problem, step: Callable, method: Any, size: int | None, steps: int
) -> Callable[[], Any]:
    """Rounds of the bare scan; its random lengths are those of our run's rounds."""
    d = bare_methods.Derivatives(problem.outer, problem.inner)
    data = (problem.inner_data, problem.outer_data)
    random = np.random.default_rng(0)
    counts = tuple(len(rows.labels) for rows in data)
    draws = (method.inner_draws, method.outer_draws)
    slots = tuple(1 if size is None else -(-rows // size) for rows in counts)
    indices = None
    if size is not None:
        indices = tuple(
            jnp.asarray(random.integers(rows, size=(steps, count, size)))
            for rows, count in zip(counts, draws, strict=True)
        )
    visited = tuple(jnp.asarray(random.integers(n, size=steps), jnp.int32) for n in slots)

    def run(state: dict, data: tuple, indices: Any, visited: tuple, lengths: Any) -> dict:
        def body(state: dict, now: tuple) -> tuple[dict, None]:
            indices, slots, p = now

            def of(side: int) -> Callable:
                if indices is None:
                    return lambda k: data[side]
                return lambda k: covtype.take(k, data[side], indices[side])

            rows = bare_methods.Rows(of(0), of(1), p, data, slots)
            return step(d, state, rows), None

        return lax.scan(body, state, (indices, visited, lengths), length=steps)[0]

    state = _start(problem, slots)
    lengths = [
        jnp.asarray(uniforms(0, k * steps, steps) * getattr(method, "linear_steps", 1), jnp.int32)
        for k in range(200)
    ]
    compiled = jax.jit(run).lower(state, data, indices, visited, lengths[0]).compile()
    rounds = iter(lengths)
    return lambda: jax.block_until_ready(compiled(state, data, indices, visited, next(rounds)))


def _start(problem: Problem, slots: tuple[int, ...]) -> dict:
    x, y = jnp.asarray(problem.x0), jnp.asarray(problem.y0)
    v = y + 0.1  # away from zero, as in a run

    def memory(count: int, *like: Any) -> tuple:
        written = tuple(jnp.zeros((count, *leaf.shape), leaf.dtype) for leaf in like)
        return written, like, jnp.int32(0), like

    return {
        "x": x, "y": v, "v": v, "x_before": x, "y_before": v, "u": v, "d": x,
        "f": jnp.float32(0), "t": jnp.int32(0),
        "inner": memory(slots[0], y, x, y), "outer": memory(slots[1], x, y),
    }  # fmt: skip


if __name__ == "__main__":
    main(measure)
