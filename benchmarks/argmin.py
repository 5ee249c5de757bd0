"""Many small problems in one call of `untuned.argmin`, with their derivatives: 10,000 ridge and
logistic regressions of 20 variables, beside closed forms, loops over problems, and jaxopt.

jaxopt 0.8.5 runs in an environment of its own: UNTUNED_JAXOPT names a Python that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import Row, main

ROWS, VARIABLES, LOOPED = 40, 20, 30
PEER = os.environ.get("UNTUNED_JAXOPT", "/work/scratch/peers-argmin/bin/python")


def regressions(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets and logarithms of strengths."""
    rng = np.random.default_rng(0)
    features, targets = (
        rng.standard_normal((count, ROWS, VARIABLES)),
        rng.standard_normal((count, ROWS)),
    )
    return features, targets, rng.uniform(-3, 1, count)


def processor_seconds(run: Callable[[], Any], rounds: int) -> float:
    """Of the quickest of some calls after one that does not count."""
    run()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def on_jax(count: int, rounds: int) -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    import untuned

    jax.config.update("jax_enable_x64", True)

    def ridge(x: Any, y: Any, data: Any) -> Any:
        return ((data[0] @ y - data[1]) ** 2).sum() + jnp.exp(x) * (y**2).sum()

    def logistic(x: Any, y: Any, data: Any) -> Any:
        margins = jnp.sign(data[1]) * (data[0] @ y)
        return jnp.logaddexp(0, -margins).sum() + jnp.exp(x) * (y**2).sum()

    def closed(x: Any, data: Any) -> Any:
        features, targets = data
        matrix = features.T @ features + jnp.exp(x) * jnp.eye(VARIABLES)
        return jnp.linalg.solve(matrix, features.T @ targets)

    def solved(inner: Callable) -> Callable:
        return lambda x, data: untuned.argmin(inner, x, jnp.zeros(VARIABLES), data=data)

    features, targets, strengths = (jnp.asarray(part) for part in regressions(count))
    times = {}
    for name, y in (("ridge", solved(ridge)), ("logistic", solved(logistic)), ("closed", closed)):
        loss = lambda x, data, y=y: (y(x, data) ** 2).sum()
        for what, arguments in (("x", 0), ("x and data", (0, 1))):
            one = jax.value_and_grad(loss, arguments)
            stack = jax.jit(jax.vmap(one))
            run = lambda stack=stack: jax.block_until_ready(stack(strengths, (features, targets)))
            times[f"{name}, {what}"] = processor_seconds(run, rounds)
        compiled = jax.jit(jax.value_and_grad(loss))

        def loop(step: Callable, some: int) -> None:
            for k in range(some):
                jax.block_until_ready(step(strengths[k], (features[k], targets[k])))

        share = count / LOOPED
        times[f"{name}, loop of a compiled function"] = share * processor_seconds(
            partial(loop, compiled, LOOPED), rounds
        )
        if name != "closed":
            plain = jax.value_and_grad(loss)
            times[f"{name}, loop"] = (
                share * 10 * processor_seconds(partial(loop, plain, LOOPED // 10), 1)
            )
    return times


def on_torch(count: int, rounds: int) -> dict[str, float]:
    import torch

    import untuned

    torch.set_num_threads(1)
    zeros = torch.zeros(VARIABLES, dtype=torch.float64)

    def ridge(x: Any, y: Any, data: Any) -> Any:
        return ((data[0] @ y - data[1]) ** 2).sum() + torch.exp(x) * (y**2).sum()

    def logistic(x: Any, y: Any, data: Any) -> Any:
        margins = torch.sign(data[1]) * (data[0] @ y)
        return torch.nn.functional.softplus(-margins).sum() + torch.exp(x) * (y**2).sum()

    def closed(x: Any, features: Any, targets: Any) -> Any:
        matrix = features.mT @ features + x.exp()[..., None, None] * torch.eye(VARIABLES)
        return torch.linalg.solve(matrix, features.mT @ targets[..., None])

    def solved(inner: Callable) -> Callable:
        return lambda x, *data: untuned.argmin(inner, x, zeros, data=data)

    features, targets, strengths = (torch.tensor(part) for part in regressions(count))
    times = {}

    def differentiated(y: Callable, tracked: int, *given: Any) -> None:
        given = tuple(
            part.clone().requires_grad_() if k < tracked else part for k, part in enumerate(given)
        )
        y(*given).square().sum().backward()

    for name, y in (("ridge", solved(ridge)), ("logistic", solved(logistic)), ("closed", closed)):
        stack = y if name == "closed" else torch.func.vmap(y)
        for what, tracked in (("x", 1), ("x and data", 3)):
            run = partial(differentiated, stack, tracked, strengths, features, targets)
            times[f"{name}, {what}"] = processor_seconds(run, rounds)

        def loop(y: Callable = y) -> None:
            for k in range(LOOPED):
                differentiated(y, 3, strengths[k], features[k], targets[k])

        times[f"{name}, loop"] = count / LOOPED * processor_seconds(loop, 1)
    return times


def peer(count: int, rounds: int) -> dict[str, float]:
    """jaxopt's solvers on the same problems, and how far their gradients are from ours."""
    script = Path(__file__).with_name("argmin_peer.py")
    if not Path(PEER).exists():
        print(f"no jaxopt at {PEER}: set UNTUNED_JAXOPT to a Python that has it", file=sys.stderr)
        return {}
    done = subprocess.run(
        [PEER, str(script), str(count), str(rounds)], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(quick: bool) -> list[Row]:
    """Ratios of processor time, forward and backward, one thread."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    count, rounds = (1000, 2) if quick else (10_000, 3)
    rows = []
    for library, times in (("JAX", on_jax(count, rounds)), ("torch", on_torch(count, rounds))):
        for what in ("x", "x and data"):
            rows.append(
                Row(
                    f"{library} {count} ridge / closed form, gradient in {what}", 2.0,
                    times[f"ridge, {what}"] / times[f"closed, {what}"],
                    detail=f"{times[f'ridge, {what}']:.3f} s",
                )
            )  # fmt: skip
        for kind in ("ridge", "logistic"):
            whole = times[f"{kind}, x and data"]
            for loop in ("loop", "loop of a compiled function"):
                if f"{kind}, {loop}" in times:
                    rows.append(
                        Row(
                            f"{library} {count} {kind} / {loop}", 0.05 if loop == "loop" else None,
                            whole / times[f"{kind}, {loop}"], detail=f"{whole:.3f} s",
                        )
                    )  # fmt: skip
        if library == "JAX":
            theirs = peer(count, rounds)
            for kind in ("ridge", "logistic"):
                ours = times[f"{kind}, x"]
                for name, seconds in theirs.items():
                    if name.startswith(f"{kind} ") and not name.endswith("error"):
                        error = theirs[f"{name} error"]
                        detail = f"{seconds:.3f} s, relative error of its gradient {error:.1e}"
                        rows.append(Row(f"JAX {count} {kind} / jaxopt {name[len(kind) + 1:]}",
                                        1.0 if error <= 1e-6 else None, ours / seconds,
                                        detail=detail))  # fmt: skip
    return rows


if __name__ == "__main__":
    main(measure)
