"""Output folders: what they may replace, and what is said where they cannot be written."""

import errno
from pathlib import Path

import pytest

from refusals import assert_one_sentence
from untuned.util import folder


def write(out, **options):
    with folder.written_whole(Path(out), overwrite=True, **options) as target:
        (target / "new.txt").write_text("new")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a table in it, and the folder around it as the one we are in."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.csv").write_text("a,y\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine"


def refusal(out, **options):
    with pytest.raises(ValueError) as caught:
        write(out, **options)
    assert_one_sentence(str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("out", [".", "..", "../mine", "../mine/../mine"])
def test_the_folder_one_is_in_is_never_replaced(mine, monkeypatch, out):
    monkeypatch.chdir(mine)
    assert "the folder you are in" in refusal(out)
    assert [path.name for path in mine.iterdir()] == ["train.csv"]


@pytest.mark.parametrize("out", ["mine", "other/../mine", "link"])
def test_what_is_read_is_never_replaced(mine, out):
    Path("other").mkdir()
    Path("link").symlink_to("mine")
    assert "mine/train.csv is in --out" in refusal(out, inputs=[None, Path("mine/train.csv")])
    assert [path.name for path in mine.iterdir()] == ["train.csv"]


def test_a_folder_that_is_read_is_not_written_into(mine):
    assert "--out mine/out is in mine, which is read" in refusal("mine/out", inputs=[Path("mine")])


def test_a_link_leads_to_the_folder_that_is_replaced(mine):
    Path("link").symlink_to("mine")
    for _ in range(2):
        write("link")
        assert [path.name for path in mine.iterdir()] == ["new.txt"]
        assert sorted(path.name for path in Path().iterdir()) == ["link", "mine"]


def test_a_place_that_cannot_be_written_is_named(mine, monkeypatch):
    """By a stand-in, since tests may run as root, who may write anywhere."""
    make = Path.mkdir

    def refuse(self, *rest, **named):
        if self.name == "out.partial":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        make(self, *rest, **named)

    monkeypatch.setattr(Path, "mkdir", refuse)
    words = refusal("deep/out")
    assert "deep/out cannot be written (Permission denied); give a folder in" in words
    assert [path.name for path in Path().iterdir()] == ["mine"]


def test_what_cannot_be_read_is_not_said_of_the_folder(mine):
    with (
        pytest.raises(PermissionError, match=r"train\.csv"),
        folder.written_whole(Path("out"), overwrite=False),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", "mine/train.csv")
