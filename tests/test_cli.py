"""The command line as a user meets it: in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from untuned.solvers import get, names

UNTUNED = Path(sys.executable).with_name("untuned")
pytestmark = pytest.mark.process


def untuned(*arguments, cwd):
    return subprocess.run(
        [UNTUNED, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    return untuned("demo", "--out", "out", "--seed", 1, cwd=folder), folder


def test_demo_finds_wrong_labels(demo):
    done, folder = demo
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "out" / "result.json").read_text())["summary"]
    assert summary["wrong_labels"] == 299
    assert summary["wrong_labels_among_lowest_quality"] > 0.9 * 299
    assert summary["wrong_labels_among_suspects"] > 0.9 * 299
    assert summary["suspect_labels"] < 1.1 * 299
    assert summary["test_accuracy_after"] > summary["test_accuracy_before"]
    assert "wrong labels are among the 299 of lowest quality" in done.stdout
    assert "run.png" in done.stdout


def test_demo_writes_what_it_says(demo):
    _, folder = demo
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {
        "train.csv", "trusted.csv", "result.json", "history.csv", "rows.csv", "suspects.csv",
        "cleaned.csv", "evidence.csv", "model.skops", "report.html", "run.png",
    }  # fmt: skip
    rows = pd.read_csv(folder / "out" / "rows.csv")
    train = pd.read_csv(folder / "out" / "train.csv")
    assert rows["given_label"].tolist() == train["digit"].tolist()
    for column in ("weight", "quality"):
        assert rows[column].between(0, 1).all()
    result = json.loads((folder / "out" / "result.json").read_text())
    assert pd.read_csv(folder / "out" / "history.csv")["step"].iloc[-1] == result["run"]["steps"]
    assert "299 were made wrong on purpose" in (folder / "out" / "report.html").read_text()
    with Image.open(folder / "out" / "run.png") as picture:
        assert picture.width > 1000
    assert [path.name for path in folder.iterdir()] == ["out"]


def test_existing_folder_is_kept_unless_told_otherwise(demo):
    _, folder = demo
    before = (folder / "out" / "result.json").read_bytes()
    done = untuned("demo", "--out", "out", cwd=folder)
    assert done.returncode == 2
    assert done.stderr == (
        "untuned: --out out exists and is not empty; give another name, or --overwrite to "
        "replace it.\n"
    )
    assert (folder / "out" / "result.json").read_bytes() == before


def test_overwrite_replaces_the_folder_and_time_limit_holds(demo):
    _, folder = demo
    done = untuned(
        "demo",
        "--out",
        "out",
        "--overwrite",
        "--max-seconds",
        0.5,
        "--method",
        "s-tfbo",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "out" / "result.json").read_text())
    assert result["settings"]["method"] == "s-tfbo"
    assert result["run"]["status"] in ("max_seconds", "max_steps")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "stfbo"), "nearest name is 's-tfbo'"),
        (("--max-seconds", "-1"), "--max-seconds -1 is not usable"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_leaves_nothing(arguments, words, tmp_path):
    done = untuned("demo", "--out", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "out").write_text("mine")
    done = untuned("demo", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "is a file" in done.stderr
    assert (tmp_path / "out").read_text() == "mine"


def test_methods_prints_every_method(tmp_path):
    done = untuned("methods", cwd=tmp_path)
    assert done.returncode == 0
    words = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in words if line[1:2] in (["single"], ["double"])] == names()
    # A name that is cut short, or goes on in the next line, could not be typed.
    told = {name for each in names() for name in get(each)().to_tune}
    assert told <= {word.strip(",") for line in words for word in line}


def test_help_and_version(tmp_path):
    assert "untuned demo --out demo --seed 1" in untuned("demo", "--help", cwd=tmp_path).stdout
    assert untuned("clean", "-h", cwd=tmp_path).returncode == 0
    assert untuned("--version", cwd=tmp_path).stdout.strip().count(".") == 2
