"""`untuned.argmin` with its derivatives: 10,000 regressions of 20 variables in one call beside
closed forms and loops, quadratic programs beside qpth and cvxpylayers, and the examples of the
field beside jaxopt 0.8.5.

    python benchmarks/argmin.py [--quick] [--peers PYTHON] [--resume FILE] [--only PART ...]

Peers are in an environment of their own, which PYTHON (or UNTUNED_PEERS) names; this package is
imported there from its source, so that both sides take turns in one process. FILE keeps each part
that is done, and a later call goes on from there.
"""

from __future__ import annotations

import argparse
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

from common import Row, table

ROWS, VARIABLES, LOOPED = 40, 20, 30
HERE = Path(__file__).parent
EXAMPLES = (
    "ridge", "logistic", "lasso", "svm", "equilibrium", "coding", "distillation", "sinusoids",
    "total_variation", "experts",
)  # fmt: skip


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


def many(library: str, quick: bool) -> list[Row]:
    """Thousands of regressions in one call, beside their closed form and loops."""
    count, rounds = (1000, 2) if quick else (10_000, 3)
    times = (on_jax if library == "JAX" else on_torch)(count, rounds)
    rows = []
    for what in ("x", "x and data"):
        ours, closed = times[f"ridge, {what}"], times[f"closed, {what}"]
        name = f"{library} {count} ridge / closed form, gradient in {what}"
        rows.append(Row(name, 2.0, ours / closed, detail=f"{ours:.3f} s"))
    for kind in ("ridge", "logistic"):
        whole = times[f"{kind}, x and data"]
        for loop, target in (("loop", 0.05), ("loop of a compiled function", None)):
            if f"{kind}, {loop}" in times:
                ratio = whole / times[f"{kind}, {loop}"]
                name = f"{library} {count} {kind} / {loop}"
                rows.append(Row(name, target, ratio, detail=f"{whole:.3f} s"))
    return rows


def beside(peers: str, script: str, *given: str) -> dict[str, Any]:
    """What a script that needs peers prints."""
    paths = [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [peers, str(HERE / script), *given], stdout=subprocess.PIPE, text=True, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def example(peers: str, part: str, quick: bool) -> list[Row]:
    """Ours beside the quickest of jaxopt's solvers, both within 1e-6 of the gradient; and ours as
    exact as it comes beside the quickest within 1e-10, and within 1e-6."""
    found = beside(peers, "argmin_examples.py", part, "3" if quick else "15")
    seconds = found["seconds"]
    exact = f"{found['difference']:.0e} from finite differences"
    rows = []
    for ours, accuracy, target in (
        ("ours, 1e-06", "1e-06", 1.0),
        ("ours", "1e-10", 1.0),
        ("ours", "1e-06", None),
    ):
        theirs = {
            name: taken
            for name, taken in seconds.items()
            if name.endswith(accuracy) and not name.startswith("ours")
        }
        taken = seconds.get(ours, seconds["ours"])
        best = min(theirs, key=theirs.__getitem__, default="none there")
        name = f"{part}: {ours} / jaxopt's {best}"
        ratio = taken / theirs.get(best, float("nan"))
        rows.append(Row(name, target, ratio, detail=f"{1e3 * taken:.3g} ms, {exact}"))
    return rows


def programs(peers: str, quick: bool) -> list[Row]:
    """Quadratic programs on torch, value and gradient in all six arrays."""
    rows = []
    for count, size in ((50, 20),) if quick else ((500, 20), (10, 100)):
        found = beside(peers, "argmin_programs.py", str(count), str(size), "2" if quick else "5")
        for name in ("qpth", "cvxpylayers"):
            if name in found:
                rows.append(Row(f"{count} programs of {size} variables / {name}", 1.0,
                                found["ours"] / found[name],
                                detail=f"{found['ours']:.3f} s; theirs {found[f'{name} error']:.0e}"
                                " from ours"))  # fmt: skip
    return rows


def main() -> None:
    """The command line: part by part."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer problems and rounds")
    parser.add_argument("--json", action="store_true", help="rows as JSON, for run_all.py")
    parser.add_argument("--peers", default=os.environ.get("UNTUNED_PEERS"), help="a Python")
    parser.add_argument("--resume", type=Path, help="a file that keeps what is done")
    parser.add_argument("--only", nargs="*", help="names of parts")
    options = parser.parse_args()
    parts: dict[str, Callable[[], list[Row]]] = {
        library: partial(many, library, options.quick) for library in ("JAX", "torch")
    }
    if options.peers:
        parts["programs"] = partial(programs, options.peers, options.quick)
        parts |= {part: partial(example, options.peers, part, options.quick) for part in EXAMPLES}
    else:
        print("no peers: give --peers PYTHON, one that has jaxopt and the others", file=sys.stderr)
    kept = options.resume
    done: dict[str, list] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for name in options.only or parts:
        if name not in done:
            done[name] = parts[name]()
            if kept:
                kept.write_text(json.dumps(done))
    rows = [Row(*row) for name in parts for row in done.get(name, ())]
    print(json.dumps(rows) if options.json else table(rows))


if __name__ == "__main__":
    main()
