"""JAX arrays over several devices and processes: the same runs, and through a loss of a process.

The judge is the plain run in this process, on one device.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sharded_runs

SCRIPT = Path(__file__).parents[1] / "sharded_runs.py"
TOLERANCE = 1e-9
pytestmark = pytest.mark.process


def start(out, processes, mode):
    """All processes of a run; their exit codes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    devices = sharded_runs.DEVICES // processes
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    children = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(out), str(processes), str(rank), str(port), mode],
            env=os.environ | {"XLA_FLAGS": flags}, stdout=subprocess.DEVNULL,
        )
        for rank in range(processes)
    ]  # fmt: skip
    return [child.wait(timeout=600) for child in children]


def assert_close(ours, expected):
    for name, value in expected.items():
        assert ours[name].shape == value.shape, name
        assert np.abs(ours[name] - value).max() <= TOLERANCE * max(1, np.abs(value).max()), name


def check(out, processes, cases):
    for case in cases:
        expected = sharded_runs.summary(sharded_runs.run(*case, sharded=False))
        files = [sharded_runs.file_of(processes, rank, *case) for rank in range(processes)]
        first, *others = (dict(np.load(out / file)) for file in files)
        assert_close(first, expected)
        for other in others:
            assert all(np.array_equal(other[name], first[name]) for name in first)


def test_the_same_trajectory_on_four_devices(tmp_path):
    assert start(tmp_path, 1, "few") == [0]
    check(tmp_path, 1, sharded_runs.FEW)


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """What two processes found, with two devices each."""
    out = tmp_path_factory.mktemp("sharded")
    assert start(out, 2, "few") == [0, 0]
    return out


def test_the_same_trajectory_with_two_processes(of_two):
    check(of_two, 2, sharded_runs.FEW)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_many_more_trajectories(processes, tmp_path):
    assert start(tmp_path, processes, "many") == [0] * processes
    check(tmp_path, processes, sharded_runs.MANY)


@pytest.mark.slow  # it starts JAX four times; that of torch is in test_group.py
@pytest.mark.parametrize("killed", [1, 0])  # 0: through which the others know of each other
def test_a_killed_process_ends_the_run_and_a_restart_ends_where_it_would_have(
    killed, of_two, tmp_path
):
    survivor = 1 - killed

    def run(**options):
        case = sharded_runs.WITH_CHECKPOINT
        return sharded_runs.run(*case, sharded=False, max_steps=40, eval_every=5, **options)

    assert all(start(tmp_path, 2, f"killed {killed}"))
    late = (tmp_path / f"error {survivor}").stat().st_mtime
    assert time.time() - late < 30
    message = (tmp_path / f"error {survivor}").read_text()
    assert message.startswith(f"Process {survivor} of 2 has lost the others: one of them ended")
    assert "\n" not in message
    shutil.copy(tmp_path / "checkpoint", tmp_path / "copy")
    assert start(tmp_path, 2, "checkpoint") == [0, 0]
    uninterrupted = np.load(of_two / sharded_runs.file_of("whole", 2, 0))
    again = dict(np.load(tmp_path / sharded_runs.file_of("resumed", 2, 0)))
    assert all(np.array_equal(again[name], uninterrupted[name]) for name in again)
    alone = run(checkpoint=tmp_path / "copy")  # goes on here, in one process
    assert alone.steps == 40
    for resumed in (again, sharded_runs.summary(alone)):
        assert_close(resumed, sharded_runs.summary(run()))
