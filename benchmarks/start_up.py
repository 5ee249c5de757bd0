"""How soon there is something: `import untuned`, and a first result in a fresh process."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial

import numpy as np

from common import Row, alternate, main

IMPORT = """
import time
start = time.perf_counter()
import untuned
seconds = time.perf_counter() - start
import sys
print(seconds, sum(name in sys.modules for name in ("jax", "torch")))
"""

# One penalty per feature for logistic regression on 569 x 30 numbers, as a user would write it.
FIRST_RESULT = """
import jax, jax.numpy as jnp, numpy as np, sys, time, untuned
from sklearn.datasets import load_breast_cancer
X, labels = load_breast_cancer(return_X_y=True)
X = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
t = np.where(labels == 1, 1, -1).astype(np.float32)
loss = lambda x, y, rows: jnp.mean(jax.nn.softplus(-rows[1] * (rows[0] @ y)))
penalized = lambda x, y, rows: loss(x, y, rows) + 0.5 * jnp.sum(jnp.exp(x) * y * y)
result = untuned.minimize(
    loss, penalized, np.full(30, -2, np.float32), np.zeros(30, np.float32), method=sys.argv[1],
    outer_data=(X[1::2], t[1::2]), inner_data=(X[::2], t[::2]),
)
print(time.time(), result.seconds, result.compile_seconds)
"""


def fresh(script: str, *arguments: str) -> list[float]:
    """The numbers a script prints in a new process."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"A fresh process failed: {done.stderr}")
    return [float(word) for word in done.stdout.split()]


def import_seconds() -> float:
    """The time of the import itself; loading an array library would be an error."""
    seconds, libraries = fresh(IMPORT)
    if libraries:
        raise RuntimeError("`import untuned` loaded jax or torch.")
    return seconds


def first_result_seconds(method: str) -> float:
    """From the start of the process to the result, all imports and compilation in it."""
    start = time.time()
    return fresh(FIRST_RESULT, method)[0] - start


def measure(quick: bool) -> list[Row]:
    """Medians over fresh processes."""
    sides = {method: partial(first_result_seconds, method) for method in ("d-tfbo", "s-tfbo")}
    times = alternate({"import": import_seconds, **sides}, rounds=3 if quick else 9, warm_up=1)
    return [
        _row("import untuned, without jax and torch", 0.3, times["import"]),
        *(
            _row(f"first result of {method}, 569 x 30, fresh process", 4.0, times[method])
            for method in sides
        ),
    ]


def _row(name: str, target: float, seconds: np.ndarray) -> Row:
    detail = f"{seconds.min():.3f} to {seconds.max():.3f} s"
    return Row(name, target, float(np.median(seconds)), " s", detail)


if __name__ == "__main__":
    main(measure)
