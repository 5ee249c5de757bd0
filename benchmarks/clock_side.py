"""One side of `benchmarks/clock.py`, alone in its process: reads a problem, solves it, says when
it was where. The clock is that of the processor, from the start of the process, imports in it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

APART = 1.1  # two points of a side, in time


class LateError(Exception):
    """The time of a side that keeps no limit itself is up."""


class Track:
    """The points of a run and when they were reached."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.points: list[tuple[float, float, list[float]]] = []
        self.lost = 0.0  # time that went to keeping points

    def now(self) -> float:
        """Seconds of the processor since the process began."""
        return time.process_time() - self.lost

    def add(self, x: Any) -> None:
        """Keep x, if the last one is some time ago."""
        before = time.process_time()
        if not self.points or self.now() > APART ** (1 / 5) * self.points[-1][0]:
            self.points.append((self.now(), time.time(), np.asarray(x, float).tolist()))
        self.lost += time.process_time() - before

    def add_in_time(self, x: Any) -> None:
        """Keep x, if there is time left."""
        self.add(x)
        if self.now() > self.seconds:
            raise LateError

    def end(self, x: Any) -> None:
        """Keep the last x."""
        self.points.append((self.now(), time.time(), np.asarray(x, float).tolist()))


def jax_functions(kind: str) -> tuple[Any, Any]:
    """f and g as a user writes them on JAX."""
    import jax
    import jax.numpy as jnp

    def outer(x: Any, y: Any, rows: Any) -> Any:
        z = rows[0] @ y
        if kind == "squares":
            return jnp.mean((z - rows[1]) ** 2) / 2
        if kind == "logistic":
            return jnp.mean(jax.nn.softplus(-rows[1] * z))
        picked = jnp.take_along_axis(z, rows[1][:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(z, axis=1) - picked)

    def inner(x: Any, y: Any, rows: Any) -> Any:
        squares = y * y if y.ndim == 1 else jnp.sum(y * y, 1)
        return outer(x, y, rows) + 0.5 * jnp.sum(jnp.exp(x) * squares)

    return outer, inner


def torch_functions(kind: str) -> tuple[Any, Any]:
    """f and g as a user writes them on torch."""
    import torch

    def outer(x: Any, y: Any, rows: Any) -> Any:
        z = rows[0] @ y
        if kind == "squares":
            return ((z - rows[1]) ** 2).mean() / 2
        if kind == "logistic":
            return torch.nn.functional.softplus(-rows[1] * z).mean()
        return torch.nn.functional.cross_entropy(z, rows[1])

    def inner(x: Any, y: Any, rows: Any) -> Any:
        squares = y * y if y.ndim == 1 else (y * y).sum(1)
        return outer(x, y, rows) + 0.5 * (x.exp() * squares).sum()

    return outer, inner


def main() -> None:
    """`clock_side.py SIDE FILE OPTIONS`; OPTIONS are JSON."""
    side, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    began = time.time()
    with np.load(path) as data:
        kind = str(data["kind"])
        train, validation = (data["X"], data["t"]), (data["X_val"], data["t_val"])
        x0, y0 = data["x0"], data["y0"]
    track, more = Track(options["seconds"]), {}
    if side == "expert":
        import expert

        try:
            track.end(expert.run(kind, train, validation, x0, y0, track.add_in_time))
        except LateError:
            track.end(track.points[-1][2])
    else:
        library, name = side.split()
        convert: Any = np.asarray
        if library == "torch":
            import torch

            torch.set_num_threads(1)
            convert = torch.from_numpy
        import untuned

        functions = jax_functions(kind) if library == "jax" else torch_functions(kind)

        def run(method: Any, callback: Any, **settings: Any) -> Any:
            return untuned.minimize(
                *functions, convert(x0), convert(y0), method=method,
                outer_data=tuple(map(convert, validation)), inner_data=tuple(map(convert, train)),
                callback=callback, **settings,
            )  # fmt: skip

        def run_tuned(*steps: float, keep: bool) -> Any:
            """For so many seconds of the processor, as the machine may be busy."""
            began = track.now()

            def callback(snapshot: Any) -> bool:
                if keep:
                    track.add(snapshot.x)
                return track.now() - began > options["seconds"]

            method = untuned.solvers.get(name)(*steps)
            return run(method, callback, batch_size=64, max_steps=10**9, eval_every=64)

        if "grid" in options:
            ends = [run_tuned(*steps, keep=False).x.tolist() for steps in options["grid"]]
            print(json.dumps({"ends": ends, "spent": track.now()}))
            return
        if "step_size" in options:
            result = run_tuned(options["step_size"], options["outer_ratio"], keep=True)
        else:
            watch = lambda snapshot: track.add(snapshot.x)
            result = run(name, watch, max_seconds=options["seconds"])
        track.end(result.x)
        more = {
            "run": result.seconds, "compiling": result.compile_seconds, "steps": result.steps,
            "status": result.status, "counts": result.counts,
        }  # fmt: skip
    print(json.dumps({"points": track.points, "began": began} | more))


if __name__ == "__main__":
    main()
