"""Runs on JAX arrays that are spread over devices and processes, in processes of their own.

    python sharded_runs.py OUT PROCESSES RANK PORT MODE

Four devices in all, which XLA_FLAGS must deal out (see `test_sharded.py`). MODE is "few" or "many"
runs to compare, "checkpoint" for one run with a checkpoint, or "killed K" for one in which process
K dies; that of number 0 is the one through which JAX's processes know of each other.
"""

import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import made_rows
import untuned
from made_rows import CLASSES, FEATURES
from untuned.solvers import DTFBO, SOBA

DEVICES = 4
ROWS = (40, 24)
METHODS = {
    "d-tfbo": DTFBO(c_y=0.1, c_v=0.1),
    "s-tfbo": "s-tfbo",
    "soba": SOBA(step_size=0.2, outer_ratio=2.0),
    "auto": "auto",
}
SIZES = {"all rows": None, "minibatches": (8, 5)}  # of which one goes round on four devices
FEW = [
    ("penalties", "d-tfbo", "all rows"),
    ("penalties", "auto", "all rows"),
    ("cleaning", "s-tfbo", "minibatches"),
    ("cleaning", "soba", "minibatches"),
]
MANY = [(p, m, s) for p in ("penalties", "cleaning") for m in METHODS for s in SIZES]


def losses(y, features, labels):
    scores = jax.nn.log_softmax(features @ y)
    return -jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]


def outer(x, y, batch):
    return losses(y, *batch).mean()


def penalties(x, y, batch):
    return losses(y, *batch).mean() + 0.5 * (jnp.exp(x)[:, None] * y**2).sum()


def cleaning(x, y, batch):
    features, labels, number = batch
    return (jax.nn.sigmoid(x[number]) * losses(y, features, labels)).mean() + 0.05 * (y**2).sum()


def sides():
    return [(features, labels.astype(np.int32)) for features, labels in made_rows.sides(ROWS)]


def spread(tree):
    """Over the rows of a mesh of all devices, as a user would."""
    sharding = NamedSharding(jax.make_mesh((DEVICES,), ("rows",)), PartitionSpec("rows"))
    place = lambda array: jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
    return jax.tree.map(place, tree)


def run(problem, method, size, sharded=True, **options):
    inner_data, outer_data = sides()
    x0, inner = np.full(FEATURES, -2.0), penalties
    if problem == "cleaning":
        inner_data = (*inner_data, np.arange(ROWS[0], dtype=np.int32))
        x0, inner = 0.1 * np.sin(np.arange(float(ROWS[0]))), cleaning
    with jax.enable_x64():
        y0 = np.zeros((FEATURES, CLASSES))
        if sharded:
            inner_data, outer_data = spread(inner_data), spread(outer_data)
            x0 = spread(x0) if problem == "cleaning" else x0
        steps = 104 if (method, size) == ("auto", "minibatches") else 8
        return untuned.minimize(
            outer, inner, x0, y0, inner_data=inner_data, outer_data=outer_data,
            method=METHODS[method], batch_size=SIZES[size],
            **({"max_steps": steps, "eval_every": 52} | options),
        )  # fmt: skip


def summary(result):
    from jax.experimental import multihost_utils

    def whole(array):
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            return np.asarray(multihost_utils.process_allgather(array, tiled=True))
        return np.asarray(array)

    history = {name: result.history[name] for name in ("step", "outer", "hypergrad_norm")}
    return {"x": whole(result.x), "y": whole(result.y), "last": whole(result.state.y)} | history


def file_of(*parts):
    return " ".join(map(str, parts)) + ".npz"


WITH_CHECKPOINT, KILLED_AT = ("cleaning", "s-tfbo", "minibatches"), 20


def main(out, processes, rank, port, mode):
    if processes > 1:
        # By default JAX waits 100 s for a lost process at the end.
        jax.distributed.initialize(
            f"localhost:{port}", processes, rank, heartbeat_timeout_seconds=10
        )
    if mode in ("few", "many"):
        for case in FEW if mode == "few" else MANY:
            np.savez(out / file_of(processes, rank, *case), **summary(run(*case)))
        uninterrupted = run(*WITH_CHECKPOINT, max_steps=40, eval_every=5)
        np.savez(out / file_of("whole", processes, rank), **summary(uninterrupted))
        return

    def callback(snapshot):
        if mode == f"killed {rank}" and snapshot.step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    options = {"max_steps": 40, "eval_every": 5, "callback": callback}
    try:
        result = run(*WITH_CHECKPOINT, checkpoint=out / "checkpoint", **options)
    except RuntimeError as error:
        (out / f"error {rank}").write_text(str(error))
        raise
    np.savez(out / file_of("resumed", processes, rank), **summary(result))


if __name__ == "__main__":
    folder, processes, rank, port, mode = sys.argv[1:]
    main(Path(folder), int(processes), int(rank), int(port), mode)
