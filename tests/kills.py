"""Kill runs and look at what is left: `python kills.py KILLS SEED FOLDER [METHOD]`.

Half of the kills come at a random time, half at a random place of writing a checkpoint: before it,
after some bytes, before they are on the disk, before and after the renaming. After each the
checkpoint must be whole and no older than before, and the run that at last gets through must end
bit for bit where one ends that nobody killed. Only torch is imported, so that forking is quick and
safe.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

import untuned
from untuned.run.checkpoint import storage
from untuned.solvers import DTFBO

RUNS = [
    {"method": "s-tfbo", "batch_size": 8, "max_steps": 200, "eval_every": 5},
    {"method": "soba", "max_steps": 200, "eval_every": 7},
    {"method": DTFBO(inner_steps=3, linear_steps=3), "max_steps": 80, "eval_every": 1},
    {"method": "auto", "batch_size": (6, 4), "max_steps": 150, "eval_every": 3},
    {"method": "auto", "max_steps": 60, "tol": 1e-12},
    {"method": "auto", "max_steps": 60, "tol": 1e-12, "constraint": "nonnegative"},
    {"method": "saba", "batch_size": 8, "max_steps": 200, "eval_every": 5},
    {"method": "sustain", "batch_size": 8, "max_steps": 200, "eval_every": 5},
]
PLACES = ("before", "midway", "unsynced", "unrenamed", "renamed")


def problem():
    rng = np.random.default_rng(3)
    D, t = torch.tensor(rng.standard_normal((60, 6))), torch.tensor(rng.choice([-1.0, 1.0], 60))

    def outer(x, y, batch):
        return torch.nn.functional.softplus(-batch[1] * (batch[0] @ y)).mean()

    def inner(x, y, batch):
        return outer(x, y, batch) + 0.5 * (x.exp() * y**2).sum()

    zeros = torch.zeros(6, dtype=torch.float64)
    data = {"outer_data": (D[:25], t[:25]), "inner_data": (D[25:], t[25:])}
    return {"outer": outer, "inner": inner, "x0": zeros, "y0": zeros, **data}


def make(options, path, end):
    """One run; what it ends with goes to `end`."""
    result = untuned.minimize(**problem(), **options, seed=5, checkpoint=path)
    columns = {name: column for name, column in result.history.items() if name != "seconds"}
    np.savez(end, x=result.x, y=result.state.y, v=result.state.v, **columns)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_saving(place, save, share):
    """Prepare this process to die at one place of its `save`-th checkpoint."""
    saves = 0
    plain_open, sync, replace = Path.open, os.fsync, os.replace

    def opened(path, *args, **kwargs):
        nonlocal saves
        file = plain_open(path, *args, **kwargs)
        if not path.name.startswith(".untuned-"):
            return file
        saves += 1
        if saves == save and place == "before":
            die()
        if saves == save and place == "midway":
            plain_write = file.write

            class Torn:
                def write(self, content):
                    plain_write(content[: int(share * len(content))])
                    file.flush()
                    die()

                def __enter__(self):
                    return self

                def __exit__(self, *_):
                    file.close()

            return Torn()
        return file

    def synced(descriptor):
        if saves == save and place == "unsynced":
            die()
        sync(descriptor)

    def replaced(*names):
        if saves == save and place == "unrenamed":
            die()
        replace(*names)
        if saves == save and place == "renamed":
            die()

    Path.open, os.fsync, os.replace = opened, synced, replaced


def forked(action):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        action()
        code = 0
    finally:
        os._exit(code)


def steps_in(path):
    """The steps of a checkpoint, or -1 where there is none; a torn one is an error."""
    return storage.load(path)[1]["steps"] if path.exists() else -1


def main(kills, seed, folder, method=None):
    RUNS[:] = [options for options in RUNS if method in (None, options["method"])]
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    ends, seconds = [], []
    for number, options in enumerate(RUNS):
        start = time.monotonic()
        child = forked(lambda o=options, n=number: make(o, None, folder / f"whole {n}.npz"))
        assert os.waitpid(child, 0)[1] == 0
        ends.append(dict(np.load(folder / f"whole {number}.npz")))
        seconds.append(time.monotonic() - start)
    made = {"at any time": 0, "while saving": 0}
    finished = 0
    while sum(made.values()) < kills or finished < len(RUNS):
        number = finished % len(RUNS)
        path, end = folder / f"run {finished}", folder / f"end {finished}.npz"
        # Enough deaths for one run; then it may live, or the last ones would take for ever.
        for death in range(13):
            spared = death == 12 or sum(made.values()) >= kills
            kind = "while saving" if made["while saving"] <= made["at any time"] else "at any time"
            place, save = rng.choice(PLACES), int(rng.integers(1, 4))
            share, wait = rng.uniform(), rng.uniform(0, 0.7 * seconds[number])

            def life(number=number, path=path, end=end, spared=spared, kind=kind, place=place,
                     save=save, share=share):  # fmt: skip
                if not spared and kind == "while saving":
                    die_while_saving(place, save, share)
                make(RUNS[number], path, end)

            before = steps_in(path)
            child = forked(life)
            if not spared and kind == "at any time":
                time.sleep(wait)
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            assert steps_in(path) >= before, f"a checkpoint was lost: {kind}, {place}"
            if os.WIFSIGNALED(status):
                assert os.WTERMSIG(status) == signal.SIGKILL
                made[kind] += 1
            else:
                assert os.WEXITSTATUS(status) == 0
                break
        for name, column in np.load(end).items():
            assert np.array_equal(column, ends[number][name]), (RUNS[number], name)
        left = sorted(file.name for file in folder.glob(f"run {finished}*"))
        assert left == [path.name], left
        finished += 1
    print(f"{made['at any time']} kills at any time, {made['while saving']} while saving, "
          f"{finished} runs, all ended alike")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
