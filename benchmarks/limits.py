"""How far beyond a limit of time a run goes, and beyond Ctrl-C: every method on both libraries.

A call of g takes 20 ms, and steps have hundreds of evaluations where a method has loops at all, so
that limits fall into them. The clock that runs see is that of the processor, put forward by 20 ms
for each call: on a busy machine the other one would show who else is busy. Time beyond is that of
the whole call without compilation, so set-up and the last look at f and g are in it. Calls of g
after Ctrl-C are counted. An evaluation of the derivatives calls g one to three times. Prints
Markdown; `no` where more than 5 % and more than three evaluations, nine calls of g, are beyond.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import signal
import time
from typing import Any

import numpy as np

import untuned

NAP = 0.02  # seconds, of a call of g, on the clock that runs see
PRESSED = 20  # calls of g, after which Ctrl-C is pressed
SHARE, EVALUATIONS, CALLS = 0.05, 3, 3  # allowed beyond; calls of g of an evaluation, at most
LONG = {"inner_steps": 200, "linear_steps": 200, "step_size": 1e-4, "eps0": 1e-9}


class Naps:
    """What g does; presses Ctrl-C on the way where that is asked for."""

    calls = 0  # of all

    def __init__(self, pressed: int | None):
        self.count = 0
        self._pressed = pressed

    def __call__(self, _: Any) -> Any:
        """Put the clock forward."""
        self.count += 1
        Naps.calls += 1
        if self.count == self._pressed:
            os.kill(os.getpid(), signal.SIGINT)
        return np.float32(1)

    @staticmethod
    def clock() -> float:
        """Seconds of the processor and of all calls."""
        return time.process_time() + NAP * Naps.calls


def problem(library: str, naps: Naps) -> tuple:
    """f, g, x0 and y0; fourth powers take Newton's method many steps."""
    if library == "torch":
        import torch

        array: Any = torch.as_tensor
        one: Any = lambda y: float(naps(None))
    else:
        import jax
        import jax.numpy as jnp

        array, number = np.asarray, jax.ShapeDtypeStruct((), jnp.float32)
        # Of y, or XLA would take one nap for a whole loop.
        one = lambda y: jax.pure_callback(naps, number, jax.lax.stop_gradient(y.sum()))
    scale = array(np.logspace(-1, 1, 6, dtype=np.float32))
    f = lambda x, y: ((y - 1.0) ** 2).sum()
    g = lambda x, y: (scale * (y * one(y) - x) ** 4 + 0.01 * y**2).sum()
    return f, g, array(np.zeros(6, np.float32)), array(np.full(6, 3, np.float32))


def method(name: str) -> Any:
    """The method, with steps of hundreds of evaluations where it has loops."""
    if name == "d-tfbo":
        return untuned.solvers.DTFBO(c_y=1e-9, c_v=1e-9)
    kind: Any = untuned.solvers.get(name)
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{key: value for key, value in LONG.items() if key in known})


def measured(library: str, name: str, limit: float) -> list[str]:
    """The cells of a line."""
    naps = Naps(None)
    f, g, x0, y0 = problem(library, naps)
    began = time.perf_counter()
    done = untuned.minimize(
        f, g, x0, y0, method=method(name), max_seconds=limit, eval_every=1, max_steps=10**6
    )
    beyond = time.perf_counter() - began - done.compile_seconds - limit
    pressed = Naps(PRESSED)
    f, g, x0, y0 = problem(library, pressed)
    stopped = untuned.minimize(
        f, g, x0, y0, method=method(name), max_seconds=60, eval_every=1, max_steps=10**6
    )
    calls = pressed.count - PRESSED
    allowed = max(SHARE * limit, EVALUATIONS * CALLS * NAP)
    kept = beyond <= allowed and calls <= EVALUATIONS * CALLS
    return [
        name, library, done.status, f"{100 * beyond / limit:.1f} %", f"{beyond / NAP:.1f}",
        stopped.status, str(calls), "yes" if kept else "no",
    ]  # fmt: skip


def main() -> None:
    """All methods, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", action="append", choices=untuned.solvers.names())
    parser.add_argument("--seconds", type=float, default=1.0, help="the limit")
    options = parser.parse_args()
    time.perf_counter = Naps.clock
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    print("| method | library | ends with | beyond the limit | in calls of g | Ctrl-C ends with "
          "| calls of g after it | kept |")  # fmt: skip
    print("|---" * 8 + "|")
    for library, name in itertools.product(("torch", "jax"), ("auto", "soba")):  # set up once
        untuned.minimize(*problem(library, Naps(None)), method=method(name), max_seconds=NAP)
    for name in options.method or untuned.solvers.names():
        for library in ("torch", "jax"):
            print(f"| {' | '.join(measured(library, name, options.seconds))} |", flush=True)


if __name__ == "__main__":
    main()
