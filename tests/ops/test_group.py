"""Rows shared among processes: the same runs with any number of them, and through a loss of one.

The judge is the plain run in this process, on all rows at once.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import group_runs
import untuned

SCRIPT = Path(__file__).parents[1] / "group_runs.py"
TOLERANCE = 1e-9


def start(*arguments):
    subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], check=True, timeout=1800)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the processes of groups of 1, 2 and 4 found."""
    out = tmp_path_factory.mktemp("group")
    start("few", out, 1, 2, 4)
    return out


def whole(problem, parts):
    """One process's view from all of theirs: the weights of rows put together."""
    if problem == "penalties":
        return parts[0]
    weights = [part["x"][1:] for part in parts]
    return parts[0] | {"x": np.concatenate([parts[0]["x"][:1], *weights])}


def assert_close(ours, expected):
    for name, value in expected.items():
        scale = max(1.0, np.abs(value).max())
        assert ours[name].shape == value.shape, name
        assert np.abs(ours[name] - value).max() <= TOLERANCE * scale, name


def check(folder, processes, case, factor=1):
    options = {"max_steps": factor * group_runs.steps(*case[1:])}
    expected = group_runs.run(*case, **options)
    names = [group_runs.file_of(processes, rank, *case) for rank in range(processes)]
    parts = [dict(np.load(folder / name)) for name in names]
    for part in parts[1:]:  # what all have, they have to the last bit
        for name in set(part) - {"x"}:
            assert np.array_equal(part[name], parts[0][name]), name
    assert_close(whole(case[0], parts), group_runs.summary(expected))
    start = {"penalties": group_runs.penalties, "cleaning": group_runs.cleaning}[case[0]]()[2]
    moved = np.abs(group_runs.flat(expected.x) - group_runs.flat(start))
    assert moved.max() > 1e-6  # or it would say little


@pytest.mark.parametrize(
    ("processes", "case"),
    [(processes, case) for processes, cases in group_runs.FEW.items() for case in cases],
)
@pytest.mark.process
def test_the_same_trajectory_with_any_number_of_processes(processes, case, folder):
    check(folder, processes, case)


@pytest.mark.slow
@pytest.mark.process
def test_many_more_trajectories(tmp_path):
    start("many", tmp_path, 1, 2, 4)
    for processes in (1, 2, 4):
        for case in group_runs.MANY:
            check(tmp_path, processes, case, factor=3)


@pytest.mark.process
def test_a_killed_process_ends_the_run_and_a_restart_ends_where_it_would_have(tmp_path):
    start("killed", tmp_path)
    assert float((tmp_path / "seconds").read_text()) < 30
    for rank in (0, 2):
        message = (tmp_path / f"error broken {rank}").read_text()
        assert message.startswith(f"Process {rank} of 3 has lost the others: one of them ended")
        assert "\n" not in message

    def found(name, processes):
        files = [tmp_path / group_runs.file_of(name, rank) for rank in range(processes)]
        return whole("cleaning", [dict(np.load(file)) for file in files])

    expected = found("whole", 3)
    again = found("again 3", 3)
    for name, value in expected.items():
        assert np.array_equal(again[name], value), name
    for processes in (2, 1):
        assert_close(found(f"again {processes}", processes), expected)
    plain = group_runs.run(*group_runs.TO_KILL, max_steps=40, eval_every=5)
    assert_close(group_runs.summary(plain), expected)


@pytest.mark.process
def test_all_processes_end_a_step_at_the_same_turn(tmp_path):
    start("limited", tmp_path)
    first, second = (
        dict(np.load(tmp_path / group_runs.file_of("limited", rank))) for rank in (0, 1)
    )
    assert first["status"] == second["status"] == "max_seconds"
    assert first["steps"] == second["steps"] == 0
    assert first["naps"] == second["naps"] <= 200 + 8
    assert np.array_equal(first["y"], second["y"])
    assert not np.array_equal(first["y"], 5 * np.ones(3))  # what it has is kept


@pytest.fixture
def alone():
    """A group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


def refusal(message, **changed):
    options = {
        "outer": lambda x, y, batch: ((y - batch) ** 2).mean(),
        "inner": lambda x, y, batch: ((y - x * batch) ** 2).mean(),
        "x0": torch.ones(2),
        "y0": torch.ones(1),
        "outer_data": torch.randn(6, 1),
        "inner_data": torch.randn(6, 2),
        "max_steps": 2,
    } | changed
    with pytest.raises(ValueError, match=message):
        untuned.minimize(**options)


def test_refusals(alone):
    refusal("group is a str; expected a process group of torch.distributed", group="world")
    refusal(
        "inner is not a mean over the rows of its batch", group=alone,
        inner=lambda x, y, batch: ((y - x * batch) ** 2).sum(),
    )  # fmt: skip
    refusal("group was given and x0 holds JAX or NumPy", group=alone, x0=np.ones(2), y0=np.ones(1))
    refusal("sharded was given without group", sharded=True)
    refusal("sharded was given and outer takes no data", group=alone, sharded=True,
            outer_data=None, outer=lambda x, y: (y**2).sum())  # fmt: skip
    refusal("sharded has the leaves", group=alone, sharded=[True, False])
    refusal("No process has a row of inner_data", group=alone, inner_data=torch.ones(0, 2))


def test_a_simplex_of_sharded_weights_is_one_simplex(alone):
    """The projection sees the weights of all rows, in a group of one as in none."""
    data = torch.tensor([0.3, -1.0, 2.0, 0.5], dtype=torch.float64)
    numbers = torch.arange(4)
    outer = lambda x, y, batch: ((y - batch) ** 2).mean()
    inner = lambda x, y, batch: 4 * (x[batch[1]] * (y - batch[0]) ** 2).mean() + 0.1 * (y**2).sum()
    arguments = (outer, inner, torch.full((4,), 0.25).double(), torch.zeros(1).double())
    options = {
        "inner_data": (data, numbers),
        "outer_data": data[:2] + 0.5,
        "constraint": "simplex",
        "method": "s-tfbo",
        "max_steps": 20,
    }
    plain = untuned.minimize(*arguments, **options)
    shared = untuned.minimize(*arguments, **options, group=alone, sharded=True)
    assert torch.allclose(shared.x, plain.x, rtol=0, atol=1e-12)
    assert not torch.allclose(plain.x, torch.full((4,), 0.25).double(), atol=1e-3)
