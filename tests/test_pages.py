"""Pages stay short, and their tables are those of the records."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAB = sorted((ROOT / "docs" / "lab").glob("*.md"))
NOTES = [page for page in LAB if page.name != "index.md"]


def words(page):
    return len(page.read_text().split())


@pytest.mark.parametrize("page", NOTES, ids=lambda page: page.stem)
def test_a_note_answers_one_question_in_one_screen(page):
    text = page.read_text()
    assert words(page) <= 1500
    assert text.partition("\n")[0].endswith("?")
    assert text.splitlines()[2].startswith("**")  # the answer
    assert sum(line.startswith(("|---", "| ---")) for line in text.splitlines()) <= 1


def test_the_lab_notebook_can_be_read():
    assert sum(map(words, LAB)) <= 18_000


def test_tables_are_those_of_the_records():
    remade = runpy.run_path(str(ROOT / "benchmarks" / "records_page.py"))["remade"]
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text()
        assert remade(text) == text, f"{page.name}: run benchmarks/records_page.py"
