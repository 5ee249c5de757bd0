"""Random kills and resumes of every method, library and batch form: `python fuzz/kills.py`.

Each run is a process of its own, forked before JAX computes anything. Half of the kills come at a
random time, half at a random place of writing a checkpoint, as in tests/kills.py. What a killed run
ends with at last is what the same run ends with that nobody killed, bit for bit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import made_programs as made
import programs
import untuned
from hunt import FoundError, expect, first_line, main

SLOWEST = 200
MOST_KILLS = 4
TESTS = Path(__file__).parents[1] / "tests" / "kills.py"
place = importlib.util.spec_from_file_location("kills_of_tests", TESTS)
kills: Any = importlib.util.module_from_spec(place)
place.loader.exec_module(kills)


def asked_of(seed: int) -> tuple[dict, str]:
    """The arguments of a run, drawn from the seed; only a child may make them."""
    rng = np.random.default_rng([seed, 7])
    program = made.draw(rng)
    while program.data[0] is None:
        program = made.draw(rng)
    library = str(rng.choice(["torch", "torch", "jax", "numpy"]))
    dtype = str(rng.choice(["float32", "float64"]))
    method = str(rng.choice(["auto", *untuned.solvers.names()]))
    method = "auto" if rng.random() < 0.3 else method
    if method == "d-tfbo" and rng.random() < 0.7:
        method = untuned.solvers.DTFBO(inner_steps=3, linear_steps=3)
    counts = [len(side["t"]) for side in (program.data[1], program.data[0])]
    forms = [None, *[tuple(int(rng.integers(1, count + 1)) for count in counts)] * 2,
             (int(rng.integers(1, counts[0])), None), 1]  # fmt: skip
    batch = forms[rng.integers(len(forms))]
    asked = programs.arguments(program, library, dtype, rng) | {
        "method": method, "batch_size": batch, "max_steps": int(rng.integers(10, 200)),
        "seed": seed, "eval_every": int(rng.integers(1, 9)),
        "constraint": [None, None, "nonnegative", (-1.0, 2.0)][rng.integers(4)],
    }  # fmt: skip
    name = method if isinstance(method, str) else "d-tfbo practical"
    return asked, f"{library} {dtype} {name} batch={batch} {asked['constraint']} | {program.told}"


def made_run(seed: int, path: Path | None, end: Path) -> None:
    """One life of a run; how it ends goes to the file `end`, as text."""
    asked, told = asked_of(seed)
    warnings.simplefilter("ignore")
    end.with_suffix(".told").write_text(told)
    try:
        result = untuned.minimize(**asked, checkpoint=path)
    except (ValueError, TypeError) as error:
        end.write_text(f"refused: {first_line(str(error))}")
        return
    parts = {name: programs.bits(getattr(result, name)) for name in ("x", "y", "v", "state")}
    parts |= {
        name: column.tobytes() for name, column in result.history.items() if name != "seconds"
    }
    lines = [f"{result.status} {result.steps} {result.counts}"]
    for name, part in parts.items():
        lines.append(f"{name} {hashlib.sha256(repr(part).encode()).hexdigest()}")
    end.write_text("\n".join(lines))


def lived(action: Any, seconds: float | None = None) -> int:
    """The status of a child that does `action`, killed after some seconds."""
    child = kills.forked(action)
    try:
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def check(seed: int) -> None:
    rng = np.random.default_rng([seed, 8])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, end, path = folder / "whole", folder / "end", folder / "run"
        begun = time.monotonic()
        status = lived(lambda: made_run(seed, None, whole))
        seconds = time.monotonic() - begun
        told = whole.with_suffix(".told").read_text()
        expect(status == 0, f"a run that nobody killed ended with status {status} | {told}")
        expected = whole.read_text()
        if expected.startswith("refused"):
            return
        try:
            _kill(seed, rng, folder, seconds)
        except AssertionError as error:
            raise FoundError(f"{error} | {told}") from error
        found = end.read_text()
        both = zip(expected.splitlines(), found.splitlines(), strict=False)
        differs = [before.split()[0] for before, after in both if before != after]
        expect(not differs, f"after kills {differs} differ ({first_line(found)}) | {told}")
        left = {each.name for each in folder.iterdir()} - {path.name, "whole.told", "end.told"}
        expect(left == {"whole", "end"}, f"left: {left} | {told}")


def _kill(seed: int, rng: np.random.Generator, folder: Path, seconds: float) -> None:
    """Lives of the run until one gets through."""
    path = folder / "run"
    for death in range(MOST_KILLS + 1):
        saving, wait = rng.random() < 0.5, rng.uniform(0.2, 0.9) * seconds
        where, save, share = rng.choice(kills.PLACES), int(rng.integers(1, 4)), rng.uniform()
        before = kills.steps_in(path)

        def life(saving=saving, where=where, save=save, share=share, death=death):
            if saving and death < MOST_KILLS:
                kills.die_while_saving(where, save, share)
            made_run(seed, path, folder / "end")

        late = None if saving or death == MOST_KILLS else wait
        status = lived(life, late)
        expect(kills.steps_in(path) >= before, "a checkpoint was lost")
        if not os.WIFSIGNALED(status):
            expect(status == 0, f"a life ended with status {status}")
            return
        expect(os.WTERMSIG(status) == signal.SIGKILL, f"signal {os.WTERMSIG(status)}")


if __name__ == "__main__":
    main(check, SLOWEST)
