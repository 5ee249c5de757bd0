"""Output folders: what they may replace, and what is said where they cannot be written."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refusals import assert_one_sentence
from untuned.util import folder


def record(**changes):
    names = ["result.json", "rows.csv", "table.csv"]
    return json.dumps({"versions": {"untuned": "0"}, "written": names} | changes)


def write(out, text="new", meanwhile=lambda: None, **options):
    with folder.written_whole(Path(out), overwrite=True, **options) as target:
        (target / "rows.csv").write_text(text)
        (target / "result.json").write_text(record())
        meanwhile()


def add(out, text="new"):
    with folder.added_whole(Path(out)) as target:
        (target / "rows.csv").write_text(text)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a table in it, and the folder around it as the one we are in."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.csv").write_text("a,y\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine"


def refusal(write, out, **options):
    with pytest.raises(ValueError) as caught:
        write(out, **options)
    assert_one_sentence(str(caught.value))
    return str(caught.value)


def everything(path):
    """What is in a folder and those below it: names, links and contents."""
    return {
        each: each.readlink() if each.is_symlink() else each.is_file() and each.read_bytes()
        for each in sorted(path.rglob("*"))
    }


@pytest.mark.parametrize("out", [".", "..", "../mine", "../mine/../mine"])
def test_the_folder_one_is_in_is_never_replaced(mine, monkeypatch, out):
    monkeypatch.chdir(mine)
    assert "the folder you are in" in refusal(write, out)
    assert [path.name for path in mine.iterdir()] == ["train.csv"]


@pytest.mark.parametrize("out", ["mine", "other/../mine", "link"])
def test_what_is_read_is_never_replaced(mine, out):
    Path("other").mkdir()
    Path("link").symlink_to("mine")
    assert "mine/train.csv is in --out" in refusal(
        write, out, inputs=[None, Path("mine/train.csv")]
    )
    assert [path.name for path in mine.iterdir()] == ["train.csv"]


def test_a_folder_that_is_read_is_not_written_into(mine):
    words = refusal(write, "mine/out", inputs=[Path("mine")])
    assert "--out mine/out is in mine, which is read" in words


FOREIGN = {
    "no record": lambda out: (out / "result.json").unlink(),
    "another program's": lambda out: (out / "result.json").write_text('{"written": ["rows.csv"]}'),
    "no JSON": lambda out: (out / "result.json").write_bytes(b"\xff["),
    "other JSON": lambda out: (out / "result.json").write_text("[1]"),
    "no list": lambda out: (out / "result.json").write_text(record(written=3)),
    "a note": lambda out: (out / "notes.txt").write_text("mine"),
    "a folder": lambda out: (out / "table.csv").mkdir(),
    "a link": lambda out: (out / "table.csv").symlink_to("../mine/train.csv"),
    "a linked record": lambda out: (
        (out / "result.json").rename(out.parent / "record")
        and (out / "result.json").symlink_to("../record")
    ),
}


@pytest.mark.parametrize("out", ["out", "link"])
@pytest.mark.parametrize("change", FOREIGN)
def test_only_a_folder_of_ours_is_replaced(mine, change, out):
    write("out")
    Path("link").symlink_to("out")
    FOREIGN[change](Path("out").resolve())
    before = everything(mine.parent)
    assert f"--out {out} holds " in refusal(write, out)
    assert everything(mine.parent) == before


@pytest.mark.parametrize("change", FOREIGN)
def test_what_comes_into_the_folder_while_a_command_runs_stays(mine, change):
    write("out", "old")
    words = refusal(write, "out", meanwhile=lambda: FOREIGN[change](Path("out").resolve()))
    assert "--out out holds " in words
    assert Path("out", "rows.csv").read_text() == "old"
    assert {"mine", "out"} <= {path.name for path in Path().iterdir()} <= {"mine", "out", "record"}


def test_a_link_leads_to_the_folder_that_is_replaced(mine):
    write("out", "old")
    Path("link").symlink_to("out")
    Path("empty").mkdir()
    for out in ("link", "empty"):
        write(out)
        assert Path(out, "rows.csv").read_text() == "new"
    assert Path("link").is_symlink()
    assert sorted(path.name for path in Path().iterdir()) == ["empty", "link", "mine", "out"]


def test_likely_names_beside_the_folder_are_the_users(mine):
    for name in (
        "out.partial",
        "out.partial.old",
        "out.old",
        "out.tmp",
        ".untuned-0123456789abcdef",
    ):
        Path(name).mkdir()
        Path(name, "thesis.txt").write_text("mine")
    Path("out.partial.lock").write_text("mine")
    before = everything(mine.parent)
    for _ in range(2):
        write("out")
        add("out2")
    assert before.items() <= everything(mine.parent).items()


KILLED = """
import os, signal, sys
from pathlib import Path
from untuned.util import folder

def moved(path, target):
    moves.append(rename(path, target))
    if len(moves) == last:
        os.kill(os.getpid(), signal.SIGKILL)

rename, moves, last = Path.rename, [], int(sys.argv[1])
Path.rename = moved
with folder.written_whole(Path("out"), True) as target:
    for name in ("rows.csv", "result.json"):
        (target / name).write_text(sys.argv[2])
    if not last:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_killed_command_leaves_nothing_for_ever(mine, last):
    """Killed while it writes, between the moves of the two folders, and after them."""
    write("out", "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(last), record()])
    assert done.returncode == -signal.SIGKILL
    assert {path.name for path in Path().iterdir()} > {"mine", "out.untuned-lock"}
    with pytest.raises(ZeroDivisionError), folder.written_whole(Path("out"), True):
        raise ZeroDivisionError
    assert sorted(path.name for path in Path().iterdir()) == ["mine", "out"]
    assert Path("out", "rows.csv").read_text() == (record() if last == 2 else "old")
    write("out")


def test_added_files_replace_only_what_was_added(mine):
    for text in ("old", "new"):
        add("mine", text)
        assert Path("mine", "rows.csv").read_text() == text
    assert Path("mine", "train.csv").read_text() == "a,y\n"
    for name in ("rows.csv", "written.json"):
        Path("other").mkdir()
        Path("other", name).symlink_to("../mine/train.csv")
        before = everything(mine.parent)
        assert f"other/{name} was not written by untuned" in refusal(add, "other")
        assert everything(mine.parent) == before
        Path("other", name).unlink()
        Path("other").rmdir()


def test_a_place_that_cannot_be_written_is_named(mine, monkeypatch):
    """By a stand-in, since tests may run as root, who may write anywhere."""
    make = Path.mkdir

    def refuse(self, *rest, **named):
        if self.name == "new":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        make(self, *rest, **named)

    monkeypatch.setattr(Path, "mkdir", refuse)
    words = refusal(write, "deep/out")
    assert "deep/out cannot be written (Permission denied); give a folder in" in words
    assert [path.name for path in Path().iterdir()] == ["mine"]


def test_what_cannot_be_read_is_not_said_of_the_folder(mine):
    with (
        pytest.raises(PermissionError, match=r"train\.csv"),
        folder.written_whole(Path("out"), overwrite=False),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", "mine/train.csv")


@pytest.mark.parametrize(
    "writes", [lambda out: folder.written_whole(out, True), folder.added_whole]
)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda place: (place / "res").symlink_to(place / "res"), "res"),
        (lambda place: (place / "file").write_text("mine"), "file/res"),
        (lambda place: None, "/dev/null/res"),
        (lambda place: None, "r" * 300),
    ],
)
def test_a_place_that_can_be_no_folder_is_refused(tmp_path, make, name, writes):
    make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="cannot be written"), writes(tmp_path / name) as new:
        (new / "a.csv").write_text("new")
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_in_a_file_is_said_to_be_in_one(tmp_path):
    (tmp_path / "file").write_text("mine")
    for make in (write, folder.make):
        for name in ("file/deep", "file/deep/er", "file"):
            words = refusal(make, tmp_path / name)
            assert "file is a file" in words
            assert "give" in words


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        os.mkfifo,
        lambda path: path.symlink_to("other"),
        lambda path: path.symlink_to(path),
    ],
)
def test_only_a_plain_file_is_replaced_by_a_file(tmp_path, make):
    make(tmp_path / "report.html")
    before = (tmp_path / "report.html").lstat()
    words = refusal(lambda path: folder.put(path, b"new"), tmp_path / "report.html")
    assert "report.html is no plain file, so it is not replaced; move it" in words
    assert (tmp_path / "report.html").lstat() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_no_link_is_followed_beside_a_lock_that_somebody_forged(mine):
    name = f".untuned-{'0' * 16}"
    Path("out.untuned-lock").write_text(name)
    Path(name).symlink_to("mine")
    before = everything(mine)
    assert f"{name} is no folder of untuned" in refusal(write, "out")
    Path(name).unlink()
    Path(name).mkdir()  # a real one, with a link in it
    Path(name, "old").symlink_to(mine)
    (mine / "result.json").write_text(record(written=["train.csv"]))
    before = everything(mine)
    Path("out.untuned-lock").write_text(name)
    Path("out").mkdir()
    assert "cannot be written" in refusal(write, "out")
    assert everything(mine) == before
