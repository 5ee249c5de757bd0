"""What `--max-seconds` leaves to the models, and what is said where it cannot be kept."""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from untuned.commands.job import LEAST_SECONDS, WRITING, Job, make_ready


def job(seconds, gone):
    started = time.perf_counter() - gone
    return Job("clean", Path("t"), "y", Path("o"), "auto", 0, seconds, False, started)


def test_models_get_what_reading_and_writing_leave(capsys):
    assert job(None, 5).estimator_options()["max_seconds"] is None
    left = job(60, 10).estimator_options()["max_seconds"]
    assert left == pytest.approx(60 - 10 * (1 + WRITING), abs=0.5)
    assert capsys.readouterr().err == ""


def test_a_limit_that_cannot_be_kept_is_said_before_the_models_start(capsys):
    assert job(2, 4).estimator_options()["max_seconds"] == LEAST_SECONDS
    said = capsys.readouterr().err
    assert "took 4.0 s and writing takes about 3.0 s" in said
    assert "--max-seconds 2;" in said
    assert said.count("\n") == 1


def test_a_table_of_very_many_columns_is_said_to_take_long(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("untuned.commands.job.WIDE", 3)
    frame = pd.DataFrame(np.arange(20.0).reshape(10, 2) ** 1.5, columns=["a", "b"])
    frame.assign(y=["u", "v"] * 5).to_csv(tmp_path / "t.csv", index=False)
    make_ready(tmp_path / "t.csv", "y", "classes")
    assert "has 3 columns, which take about" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cell", "name", "is_named"),
    [("=1+1", "x", True), ("@SUM(A1)", "x", True), ("-2+3", "x", True), ("+x", "x", True),
     ("-2", "x", False), ("-1e5", "x", False), ("a=b", "x", False), ("a", "=x", True)],
)  # fmt: skip
def test_cells_that_a_spreadsheet_would_run_are_named(cell, name, is_named, tmp_path):
    texts = pd.DataFrame({name: [cell, "b", "c"] * 4, "y": ["u", "v", "u"] * 4})
    texts.to_csv(tmp_path / "t.csv", index=False)
    notes = make_ready(tmp_path / "t.csv", "y", "classes").notes
    assert any("would run them as formulas" in note for note in notes) == is_named
    texts.to_parquet(tmp_path / "t.parquet")
    assert "formulas" not in " ".join(make_ready(tmp_path / "t.parquet", "y", "classes").notes)


@pytest.mark.parametrize(("seconds", "is_cut"), [(0.1, True), (500, False)])
def test_models_of_numbers_keep_a_limit(seconds, is_cut, untuned, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((60, 2)), columns=["a", "y"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("clean", "t.csv", "--label", "y", "--task", "numbers", "--out", "out")
    code, out, err = untuned(*arguments, "--max-seconds", seconds)
    assert code == 0
    assert ("takes longer than --max-seconds" in err) == is_cut
    assert ("The time limit ended the search early" in out) == is_cut
    models = json.loads((tmp_path / "out" / "result.json").read_text())["summary"]["judges"]
    assert is_cut or len(models) > 1
