"""Peak memory above the data: S-TFBO against its bare derivative evaluations and a hand loop.

Each side runs in a process of its own. Its memory counts from the moment its data are on the
device and the array library has computed something, so it is compilation and steps. Linux only.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from common import Problem, Row, alternate, main, ratio_row

STEPS = 20
TARGET = 1.2


def status_bytes(field: str) -> int:
    """A field of /proc/self/status, such as VmRSS (memory now) or VmHWM (its peak)."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return 1024 * int(match[1])


def peak_above(run: Callable[[], object]) -> int:
    """How much the peak during `run` lies above the memory before it, in bytes.

    Not from getrusage: its peak has that of loading the data in it, and that of the parent.
    """
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM back to VmRSS
    before = status_bytes("VmRSS")
    run()
    return status_bytes("VmHWM") - before


def stfbo(problem: Problem) -> object:
    """A full-batch run of S-TFBO."""
    import untuned

    return untuned.minimize(**problem._asdict(), method="s-tfbo", max_steps=STEPS)


def jax_side(name: str) -> int:
    """Peak of one side on Covtype, in this process."""
    import jax
    import jax.numpy as jnp

    import covtype

    problem = covtype.problem()
    jax.jit(jnp.sin)(problem.x0).block_until_ready()
    if name == "ours":
        return peak_above(lambda: stfbo(problem))
    return peak_above(lambda: covtype.bare_evaluations(problem, STEPS, batch_size=None)())


def xla_side(name: str) -> int:
    """Buffers XLA allocates for the compiled steps of one side on Covtype."""
    import covtype
    from untuned.solvers import STFBO

    problem = covtype.problem()
    if name == "ours":
        return covtype.steps_of(STFBO(), problem, STEPS).buffer_bytes
    return covtype.bare_evaluations(problem, STEPS, batch_size=None).buffer_bytes


def torch_side(name: str) -> int:
    """Peak of one side on MNIST softmax with 20,000 rows, in this process."""
    import torch

    import mnist

    cleaning = mnist.softmax()
    weight = torch.ones(1, requires_grad=True)
    torch.autograd.grad((weight * weight).sum(), weight)
    if name == "ours":
        return peak_above(lambda: stfbo(cleaning.problem))
    indices = mnist.batches(cleaning.problem, None, STEPS)
    return peak_above(lambda: mnist.advance(mnist.by_hand(cleaning, indices), STEPS))


SIDES = {"jax": jax_side, "xla": xla_side, "torch": torch_side}


def in_fresh_process(side: str, name: str) -> float:
    """Bytes of one side in MB, measured in a process of its own."""
    command = [sys.executable, __file__, "--side", side, name]
    # With an arena per thread, a peak would depend on which thread happened to work.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        sys.exit(done.returncode)  # it has said why
    return int(done.stdout) / 1e6


def measure(quick: bool) -> list[Row]:
    """Ratios of peaks of whole processes, and of the buffers of compiled steps alone."""
    repeats = 3 if quick else 7
    rows = []
    for side, rounds, target, name in (
        ("jax", repeats, TARGET, "JAX S-TFBO peak memory, compilation included / bare derivatives"),
        # Says where the peak is not; the target is about the whole, so this is not held to it.
        ("xla", 1, None, "JAX S-TFBO buffers of steps driven by hand / bare derivatives"),
        ("torch", repeats, TARGET, "torch S-TFBO peak memory, MNIST softmax / loop by hand"),
    ):
        sides = {which: partial(in_fresh_process, side, which) for which in ("ours", "base")}
        megabytes = alternate(sides, rounds, warm_up=0)
        rows.append(ratio_row(name, target, megabytes["ours"], megabytes["base"], unit="MB"))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "NAME"))
    side = parser.parse_known_args()[0].side
    if side:
        print(SIDES[side[0]](side[1]))
    else:
        main(measure)
