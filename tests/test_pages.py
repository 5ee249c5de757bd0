"""Pages stay short, and their tables are those of the records."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAB = sorted((ROOT / "docs" / "lab").glob("*.md"))
NOTES = [page for page in LAB if page.name != "index.md"]
USER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# In words; code and tables count.
MOST = 900
LONGER = {"README.md": 700, "architecture.md": 2_000}
MOST_OF_NOTE, MOST_OF_LAB, MOST_OF_ALL = 1_500, 18_000, 45_000


def words(page):
    return len(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_read_to_the_end(page):
    most = LONGER.get(page.name, MOST)
    assert words(page) <= most, f"{page.name} has {words(page):,} words, of at most {most:,}"


@pytest.mark.parametrize("page", NOTES, ids=lambda page: page.stem)
def test_a_note_answers_one_question_in_one_screen(page):
    text = page.read_text(encoding="utf-8")
    assert words(page) <= MOST_OF_NOTE, f"{page.name} has {words(page):,} words"
    assert text.partition("\n")[0].endswith("?")
    assert text.splitlines()[2].startswith("**")  # the answer
    assert sum(line.startswith(("|---", "| ---")) for line in text.splitlines()) <= 1


def test_all_pages_together_can_be_read():
    counts = {str(page.relative_to(ROOT)): words(page) for page in [*USER_PAGES, *LAB]}
    assert sum(map(words, LAB)) <= MOST_OF_LAB
    assert sum(counts.values()) <= MOST_OF_ALL, f"{sum(counts.values()):,} words: {counts}"


def test_the_glossary_is_one_screen_of_words_in_order():
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    entries = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")][1:]
    assert 0 < len(entries) <= 30
    assert entries == sorted(entries, key=lambda entry: entry.strip("`").casefold())


def test_tables_are_those_of_the_records():
    remade = runpy.run_path(str(ROOT / "benchmarks" / "records_page.py"))["remade"]
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert remade(text) == text, f"{page.name}: run benchmarks/records_page.py"
