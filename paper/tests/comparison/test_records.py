"""Records of runs: whole or not at all, and never another run's."""

import os
import resource

import pandas as pd
import pytest

from untuned.util import folder
from untuned_paper.comparison import records
from untuned_paper.comparison.records import ComparedRun

RUN = ComparedRun(
    "digits-cleaning", "soba", "step_size=0.5 outer_ratio=0.01", 0, None, 64, 1.0, True
)
FRAME = pd.DataFrame({"value": [2.0, float("nan")], "step": [0, 3], "status": ["a", "diverged"]})


def test_a_record_comes_back_with_its_run(tmp_path):
    assert records.read(tmp_path, RUN) is None
    records.write(tmp_path, RUN, FRAME)
    found = records.read(tmp_path, RUN)
    assert list(found.columns) == [*ComparedRun._fields, *FRAME.columns]
    assert found["setting"].unique() == RUN.setting
    pd.testing.assert_frame_equal(found[list(FRAME.columns)], FRAME, check_dtype=False)
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]


@pytest.mark.parametrize(
    "other",
    [
        {"problem": "covtype"},
        {"method": "fsla"},
        {"setting": "tuned"},
        {"seed": 1},
        {"rows": 100},
        {"batch_size": 32},
        {"max_seconds": 2.0},
        {"curve": False},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_record_of_another_run_is_not_read(other, tmp_path):
    records.write(tmp_path, RUN, FRAME)
    assert records.read(tmp_path, RUN._replace(**other)) is None


def test_a_record_of_another_version_is_not_read(tmp_path, monkeypatch):
    records.write(tmp_path, RUN, FRAME)
    monkeypatch.setattr(records, "version", lambda name: "99")
    assert records.read(tmp_path, RUN) is None


def test_a_record_under_another_name_is_not_taken(tmp_path):
    records.write(tmp_path, RUN, FRAME)
    other = RUN._replace(seed=1)
    records.path(tmp_path, RUN).rename(records.path(tmp_path, other))
    assert records.read(tmp_path, other) is None


@pytest.mark.parametrize("size", [0, 3, 100, -1])
def test_a_part_of_a_record_is_no_record(size, tmp_path):
    records.write(tmp_path, RUN, FRAME)
    path = records.path(tmp_path, RUN)
    path.write_bytes(path.read_bytes()[:size])
    assert records.read(tmp_path, RUN) is None
    records.write(tmp_path, RUN, FRAME)
    assert records.read(tmp_path, RUN) is not None


def test_a_failed_write_leaves_no_record(tmp_path, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        records.write(tmp_path, RUN, FRAME)
    assert records.read(tmp_path, RUN) is None
    assert not list(tmp_path.iterdir())  # no part of one either


@pytest.mark.long
def test_no_flipped_value_is_taken(tmp_path):
    """Every byte in turn: a record with another number in it is no record."""
    records.write(tmp_path, RUN, FRAME)
    path = records.path(tmp_path, RUN)
    content, right = path.read_bytes(), records.read(tmp_path, RUN)
    refused = 0
    for place in range(0, len(content), 11):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        found = records.read(tmp_path, RUN)
        refused += found is None
        assert found is None or found.equals(right), place
    assert refused > 30


def write_two(out):
    with folder.added_whole(out) as target:
        FRAME.to_csv(target / "table.csv", index=False)
        FRAME.to_parquet(target / "records.parquet", index=False)


@pytest.mark.parametrize("size", [0, 500])
def test_added_files_are_all_there_or_none(size, tmp_path):
    """What `untuned reproduce` writes beside its records, on a disk that is full."""
    out = tmp_path / "out"
    with folder.added_whole(out) as target:
        (target / "table.csv").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(ValueError, match="is full; nothing was written"):
            write_two(out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert sorted(path.name for path in out.iterdir()) == ["table.csv", "written.json"]
    assert (out / "table.csv").read_text() == "old"
    write_two(out)
    assert (out / "table.csv").read_text() != "old"
