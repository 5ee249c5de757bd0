"""A run that is killed and started again ends bit for bit where the uninterrupted one ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import untuned
from libraries import as_numpy, assert_same_result, given
from reference.problems import quadratic, regularization
from untuned.run.checkpoint import storage
from untuned.solvers import DTFBO, STFBO

SOLVERS = {
    "d-tfbo": DTFBO(c_y=1e-3, c_v=1e-3),
    "d-tfbo 10/10": DTFBO(inner_steps=10, linear_steps=10),
    "s-tfbo": STFBO(),
}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.long
def test_a_stopped_run_goes_on_where_it_was(name, batch_size, library, tmp_path):
    task = given(regularization(1, 40, 30, 6), library)
    options = {"method": SOLVERS[name], "max_steps": 40, "eval_every": 5, "batch_size": batch_size}
    whole = untuned.minimize(*task.positional, **task.data, **options)
    path = tmp_path / "run.safetensors"
    for stop_at in (10, 25):
        partial = untuned.minimize(
            *task.positional, **task.data, **options, checkpoint=path,
            callback=lambda snapshot, at=stop_at: snapshot.step >= at,
        )  # fmt: skip
        assert (partial.status, partial.steps) == ("callback", stop_at)
    resumed = untuned.minimize(*task.positional, **task.data, **options, checkpoint=path)
    assert_same_result(resumed, whole)
    assert np.all(np.diff(resumed.history["seconds"]) > 0)
    # A finished run is not run again.
    again = untuned.minimize(*task.positional, **task.data, **options, checkpoint=path)
    assert_same_result(again, whole)
    assert again.seconds == resumed.seconds


@pytest.mark.long
def test_auto_goes_on_bit_for_bit_whatever_the_order_of_arrays_in_memory(library, tmp_path):
    """Torch's inverse is column by column, and so may y0 be; a file gives all row by row."""
    rng = np.random.default_rng(0)
    columns, targets = rng.normal(size=(200, 6)), rng.normal(size=(200, 3))
    y0 = np.asfortranarray(rng.normal(size=(6, 3)))
    convert = torch.from_numpy if library == "torch" else np.asarray
    rows = convert(columns), convert(targets)

    def f(x, y, rows):
        return ((rows[0] @ y - rows[1]) ** 2).mean()

    def g(x, y, rows):
        return f(x, y, rows) + (x**2 * (y * y).sum(1)).sum()

    task = {"outer_data": rows, "inner_data": rows, "tol": 1e-12, "eval_every": 1}
    start = f, g, convert(np.full(6, 0.5)), convert(y0)
    whole = untuned.minimize(*start, **task, max_steps=8)
    for steps in (2, 3, 5, 8):
        path = tmp_path / "run"
        resumed = untuned.minimize(*start, **task, max_steps=steps, checkpoint=path)
    for ours, expected in ((resumed.x, whole.x), (resumed.y, whole.y)):
        np.testing.assert_array_equal(as_numpy(ours), as_numpy(expected))


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from libraries import as_numpy, given
from reference.problems import regularization
import numpy as np, untuned
task = given(regularization(1, 40, 30, 6), sys.argv[3])
result = untuned.minimize(
    *task.positional, **task.data, method="s-tfbo", batch_size=8, seed=5,
    max_steps=int(sys.argv[4]), eval_every=50, checkpoint=sys.argv[2],
)
columns = {name: column for name, column in result.history.items() if name != "seconds"}
np.savez(sys.argv[5], x=as_numpy(result.x), y=as_numpy(result.state.y), **columns)
"""


@pytest.mark.process
def test_sigkill_at_any_moment(tmp_path):
    """On JAX; `test_faults.py` kills runs on torch, at any moment and while they save."""
    name, steps = "jax", 60_000
    tests = str(Path(__file__).parents[2])

    def start(path, out):
        arguments = [tests, str(path), name, str(steps), str(out)]
        return subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments])

    assert start(tmp_path / "whole", tmp_path / "whole.npz").wait() == 0
    path, out = tmp_path / "killed", tmp_path / "killed.npz"
    rng, kills = np.random.default_rng(0), 0
    for _ in range(20):
        process = start(path, out)
        seen = path.stat().st_mtime_ns if path.exists() else 0
        # Once it has saved anew, so that each start gets further, let it live a little longer.
        while process.poll() is None and (not path.exists() or path.stat().st_mtime_ns == seen):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.15))
        if process.poll() is None and kills < 3:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        if process.wait() == 0:
            break
    assert kills >= 1
    expected, resumed = np.load(tmp_path / "whole.npz"), np.load(out)
    for column in expected.files:
        assert np.array_equal(expected[column], resumed[column]), column


@pytest.mark.long
def test_a_longer_run_extends_a_shorter_one(library, tmp_path):
    task = given(quadratic(0, 3, 4, 5.0), library).positional
    for number, solver in enumerate((STFBO(), DTFBO(horizon="anytime", c_y=1e-3, c_v=1e-3))):
        whole = untuned.minimize(*task, method=solver, max_steps=40, eval_every=5)
        path = tmp_path / str(number)
        untuned.minimize(*task, method=solver, max_steps=20, eval_every=5, checkpoint=path)
        longer = untuned.minimize(*task, method=solver, max_steps=40, eval_every=5, checkpoint=path)
        assert_same_result(longer, whole)


@pytest.mark.long
def test_a_run_that_ended_between_records_leaves_no_trace(tmp_path):
    """The record of an early end is not one of the longer run's."""
    task = given(quadratic(0, 3, 4, 5.0), "jax").positional
    options = {"method": "s-tfbo", "eval_every": 7}
    whole = untuned.minimize(*task, **options, max_steps=40)
    path = tmp_path / "run"
    short = untuned.minimize(*task, **options, max_steps=17, checkpoint=path)
    assert short.history["step"].tolist() == [7, 14, 17]
    same = untuned.minimize(*task, **options, max_steps=17, checkpoint=path)
    assert_same_result(same, short)
    assert_same_result(untuned.minimize(*task, **options, max_steps=40, checkpoint=path), whole)


@pytest.mark.long
def test_a_converged_run_goes_on_only_if_more_is_asked(tmp_path):
    task = given(quadratic(0, 3, 4, 5.0), "jax").positional
    options = {"method": "s-tfbo", "checkpoint": tmp_path / "run", "max_steps": 5000}
    first = untuned.minimize(*task, **options, tol=1e-2)
    same = untuned.minimize(*task, **options, tol=1e-2)
    assert (first.status, same.status, same.steps) == ("converged", "converged", first.steps)
    tighter = untuned.minimize(*task, **options, tol=1e-4)
    assert tighter.status == "converged"
    assert tighter.steps > first.steps


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run"
    storage.save(path, {"a": np.arange(3)}, {"n": 1})
    before = path.read_bytes()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        storage.save(path, {"a": np.arange(4)}, {"n": 2})
    assert path.read_bytes() == before
    arrays, notes = storage.load(path)
    assert arrays["a"].tolist() == [0, 1, 2]
    assert notes == {"n": 1}
