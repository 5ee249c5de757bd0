"""One run of jaxopt on an example: implicit differentiation, Adam with a rate outside.

python jaxopt_peer.py distillation TASK.npz OUTER_RATE STEPS FOUND.npz
python jaxopt_peer.py sinusoids TASK.npz OUTER_RATE STEPS FOUND.npz

In an environment of its own. What is found is saved, and judged as our own is.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np

PENALTY, NEAR = 1e-3, 0.1
MEAN, SQUARES = 0.9, 0.999


def distillation(data: Any) -> tuple[Any, Any]:
    """The outer loss as a function of ten images, and their start."""
    X, labels = jnp.asarray(data["features"]).reshape(-1, 784), jnp.asarray(data["labels"])

    def inner(y: Any, images: Any) -> Any:
        scores = images @ y[0] + y[1]
        size = (y[0] ** 2).sum() + (y[1] ** 2).sum()
        return -jnp.diag(jax.nn.log_softmax(scores)).mean() + PENALTY / 2 * size

    solver = jaxopt.LBFGS(inner, maxiter=200, tol=1e-4, implicit_diff=True)

    def outer(images: Any) -> Any:
        y = solver.run((jnp.zeros((784, 10)), jnp.zeros(10)), images).params
        scores = jax.nn.log_softmax(X @ y[0] + y[1])
        return -scores[jnp.arange(len(labels)), labels].mean()

    return outer, jnp.asarray(data["start"]).reshape(10, 784)


def sinusoids(data: Any) -> tuple[Any, Any]:
    """The outer loss as a function of the start of all tasks, and where that starts."""
    start = {name[2:]: jnp.asarray(data[name]) for name in data if name.startswith("x_")}
    sides = [tuple(jnp.asarray(data[f"{side}_{k}"]) for k in "01") for side in ("given", "judging")]

    def loss(y: Any, points: Any) -> Any:
        hidden, values = points
        for k in range(3):
            hidden = hidden @ y[f"W{k}"] + y[f"b{k}"]
            hidden = jax.nn.relu(hidden) if k < 2 else hidden
        return ((hidden - values) ** 2).mean()

    def inner(y: Any, x: Any, points: Any) -> Any:
        apart = sum(((y[name] - x[name]) ** 2).sum() for name in y)
        return loss(y, points) + NEAR / 2 * apart

    solver = jaxopt.GradientDescent(
        inner, maxiter=50, implicit_diff=True,
        implicit_diff_solve=lambda *a, **k: jaxopt.linear_solve.solve_cg(*a, maxiter=10, **k),
    )  # fmt: skip

    def outer(x: Any) -> Any:
        one = lambda given, judging: loss(solver.run(x, x, given).params, judging)
        return jax.vmap(one)(*sides).mean()

    return outer, start


def main(example: str, file: str, rate: float, steps: int, found: str) -> None:
    """Adam on the outer loss; prints what it ended with and the processor seconds."""
    outer, x = {"distillation": distillation, "sinusoids": sinusoids}[example](dict(np.load(file)))
    slope = jax.jit(jax.value_and_grad(outer))
    slope(x)  # compiled before the clock starts
    m = jax.tree.map(jnp.zeros_like, x)
    s, value, began = m, jnp.nan, time.process_time()
    for step in range(1, steps + 1):
        value, g = slope(x)
        m = jax.tree.map(lambda m, g: MEAN * m + (1 - MEAN) * g, m, g)
        s = jax.tree.map(lambda s, g: SQUARES * s + (1 - SQUARES) * g * g, s, g)
        scale = rate * (1 - SQUARES**step) ** 0.5 / (1 - MEAN**step)
        x = jax.tree.map(lambda x, m, s, a=scale: x - a * m / (jnp.sqrt(s) + 1e-8), x, m, s)
    seconds = time.process_time() - began
    np.savez(found, **(x if isinstance(x, dict) else {"x": x}))
    print(f"<!-- outer rate {rate:g}: f {float(value):.4f}, {seconds:.1f} s -->", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
