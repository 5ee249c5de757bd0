"""Runs over the processes of a torch group, forked from one parent.

    python group_runs.py few OUT 1 2 4       the same runs with so many processes, in a minute
    python group_runs.py many OUT 1 2 4      more of them, with more steps
    python group_runs.py killed OUT          a run that loses a process, and its restarts
    python group_runs.py limited OUT         a long step that a limit of time cuts

Forking a parent that has imported torch already makes a process cheap enough for a test.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed

import made_rows
import untuned
from made_rows import CLASSES, FEATURES
from untuned.solvers import DTFBO, SABA, SOBA

ROWS = (37, 23)  # inner and outer ones
METHODS = {
    "d-tfbo": DTFBO(c_y=0.1, c_v=0.1),
    "d-tfbo 3/2": DTFBO(inner_steps=3, linear_steps=2),
    "s-tfbo": "s-tfbo",
    "soba": SOBA(step_size=0.2, outer_ratio=2.0),
    "saba": SABA(step_size=0.1, outer_ratio=5.0),
    "auto": "auto",
}
SIZES = {"all rows": None, "minibatches": (8, 5)}
UNEVEN = {  # shares of the rows
    1: [1.0],
    2: [0.7, 0.3],
    3: [0.2, 0.5, 0.3],
    4: [0.5, 0.0, 0.3, 0.2],
}


def steps(method, size):
    if size == "minibatches" and method == "auto":
        return 104  # x waits for the first 100
    return 6 if method.startswith("d-tfbo") else 12


def sides(problem):
    """Both sides' rows, made up; the last of the inner ones is the number of the row."""
    found = made_rows.sides(ROWS)
    if problem == "cleaning":
        found[0].append(np.arange(ROWS[0]))
    return found


def losses(y, features, labels):
    scores = features @ y
    return torch.nn.functional.cross_entropy(scores, labels, reduction="none")


def penalties():
    """A penalty per feature, beside data that all processes have a part of."""

    def outer(x, y, batch):
        return losses(y, *batch).mean()

    def inner(x, y, batch):
        return losses(y, *batch).mean() + 0.5 * (torch.exp(x)[:, None] * y**2).sum()

    return outer, inner, torch.full((FEATURES,), -2.0, dtype=torch.float64)


def cleaning():
    """A weight per inner row, which lives where its row does."""

    def outer(x, y, batch):
        return losses(y, *batch).mean() + 0.01 * (x["shift"] ** 2).sum()

    def inner(x, y, batch):
        features, labels, number = batch
        weights = torch.sigmoid(x["weights"][number] + x["shift"])
        return (weights * losses(y, features, labels)).mean() + 0.05 * (y**2).sum()

    weights = 0.1 * torch.sin(torch.arange(ROWS[0], dtype=torch.float64))
    return outer, inner, {"shift": torch.zeros(1, dtype=torch.float64), "weights": weights}


def shares(total, processes):
    """Where each process's rows begin and end."""
    ends = np.round(np.cumsum(UNEVEN[processes]) * total).astype(int)
    return list(zip([0, *ends[:-1]], ends, strict=True))


def run(problem, method, size, group=None, **options):
    """One run, on the rows that this process has."""
    outer, inner, x0 = {"penalties": penalties, "cleaning": cleaning}[problem]()
    data = sides(problem)
    extra = {}
    if group is not None:
        rank, processes = distributed.get_rank(group), distributed.get_world_size(group)
        parts = [slice(*shares(total, processes)[rank]) for total in ROWS]
        data = [[a[part] for a in side] for side, part in zip(data, parts, strict=True)]
        extra["group"] = group
        if problem == "cleaning":
            data[0][2] = np.arange(len(data[0][0]))  # its own numbering
            x0 = {**x0, "weights": x0["weights"][parts[0]]}
            extra["sharded"] = {"shift": False, "weights": True}
    inner_data, outer_data = (tuple(torch.tensor(a) for a in side) for side in data)
    return untuned.minimize(
        outer, inner, x0, torch.zeros(FEATURES, CLASSES, dtype=torch.float64),
        inner_data=inner_data, outer_data=outer_data, method=METHODS[method],
        batch_size=SIZES[size],
        **({"max_steps": steps(method, size), "eval_every": 52} | extra | options),
    )  # fmt: skip


def flat(x):
    parts = x.values() if isinstance(x, dict) else [x]
    return torch.cat([part.reshape(-1) for part in parts]).numpy()


def summary(result):
    return {
        "x": flat(result.x),
        "y": result.y.numpy().ravel(),
        "state": result.state.y.numpy().ravel(),
        "outer": result.history["outer"],
        "hypergrad_norm": result.history["hypergrad_norm"],
        "step": result.history["step"],
    }


FEW = {  # by the number of processes: each method on all rows and on minibatches at least once
    1: [("cleaning", "s-tfbo", "minibatches")],
    2: [
        ("penalties", "d-tfbo", "minibatches"),
        ("penalties", "d-tfbo 3/2", "minibatches"),
        ("penalties", "s-tfbo", "all rows"),
        ("penalties", "soba", "all rows"),
        ("penalties", "saba", "minibatches"),
        ("penalties", "auto", "minibatches"),
        ("cleaning", "auto", "all rows"),
        ("cleaning", "s-tfbo", "minibatches"),
    ],
    4: [
        ("penalties", "d-tfbo", "all rows"),
        ("penalties", "auto", "all rows"),
        ("penalties", "soba", "minibatches"),
        ("cleaning", "s-tfbo", "minibatches"),
    ],
}
MANY = [
    (problem, method, size)
    for size in ("all rows", "minibatches")
    for problem, methods in (("penalties", METHODS), ("cleaning", ("d-tfbo", "s-tfbo", "auto")))
    for method in methods
]


def file_of(*parts):
    return " ".join(str(part).replace("/", "-") for part in parts) + ".npz"


def join(rank, processes, out, name):
    store = distributed.FileStore(f"{out}/store {name}", processes)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=processes)


def same(rank, processes, out, cases, factor):
    """All runs of one process of a group."""
    join(rank, processes, out, processes)
    for case in cases:
        options = {"max_steps": factor * steps(*case[1:])}
        result = run(*case, distributed.group.WORLD, **options)
        np.savez(out / file_of(processes, rank, *case), **summary(result))
    distributed.destroy_process_group()


TO_KILL, KILLED_AT = ("cleaning", "s-tfbo", "minibatches"), 20


def killed(rank, processes, out, name, die):
    """A run with a checkpoint, in which one process may die."""
    join(rank, processes, out, name)

    def callback(snapshot):
        if die and rank == 1 and snapshot.step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        result = run(
            *TO_KILL, distributed.group.WORLD, max_steps=40, eval_every=5, callback=callback,
            checkpoint=out / f"checkpoint {name}",
        )  # fmt: skip
    except RuntimeError as error:
        (out / f"error {name} {rank}").write_text(str(error))
        os._exit(3)
    np.savez(out / file_of(name, rank), **summary(result))
    distributed.destroy_process_group()


def limited(rank, processes, out):
    """A first step of many evaluations, which take their time in the last process alone."""
    join(rank, processes, out, "limited")
    naps = []

    def inner(x, y, rows):
        naps.append(time.sleep(0.01 if rank == processes - 1 else 0))
        return ((y - rows * x) ** 2).mean()

    one = torch.ones(3, dtype=torch.float64)
    time.sleep(0.5 * rank)  # the others wait, and have used up more of their time at the start
    result = untuned.minimize(
        lambda x, y, rows: ((y - rows) ** 2).mean(), inner, one, 5 * one,
        inner_data=torch.ones(4, 3), outer_data=torch.ones(4, 3), max_seconds=2, eval_every=1,
        method=DTFBO(c_y=1e-300, c_v=1e-300, cap=10**6), group=distributed.group.WORLD,
    )  # fmt: skip
    ended = {"naps": len(naps), "steps": result.steps, "y": result.y.numpy()}
    np.savez(out / file_of("limited", rank), **ended, status=result.status)
    distributed.destroy_process_group()


def fork(target, count, *arguments):
    """Processes of a group, and their exit codes."""
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=target, args=(k, count, *arguments)) for k in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]


def lose_a_process(out):
    """A run of three processes as it should be, one that loses a process, and restarts of that."""
    assert fork(killed, 3, out, "whole", False) == [0] * 3
    start = time.monotonic()
    assert fork(killed, 3, out, "broken", True) == [3, -signal.SIGKILL, 3]
    (out / "seconds").write_text(str(time.monotonic() - start))
    for processes in (3, 2, 1):
        name = f"again {processes}"
        shutil.copy(out / "checkpoint broken", out / f"checkpoint {name}")
        assert fork(killed, processes, out, name, False) == [0] * processes


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = Path(sys.argv[2])
    if sys.argv[1] == "killed":
        lose_a_process(out)
    if sys.argv[1] == "limited":
        assert fork(limited, 2, out) == [0] * 2
    for processes in map(int, sys.argv[3:]):
        wanted = (FEW[processes], 1) if sys.argv[1] == "few" else (MANY, 3)
        assert fork(same, processes, out, *wanted) == [0] * processes
