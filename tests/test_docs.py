"""What README and docs say is run, and what they point to exists."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
USER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*USER_PAGES, *sorted((ROOT / "docs" / "lab").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in USER_PAGES
    if page.name != "command-line.md"  # read from top to bottom in test_walkthrough.py
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.long
@pytest.mark.parametrize("block", BLOCKS)
def test_code_block_runs(block, capsys):
    if "import optax" in block:
        pytest.importorskip("optax", reason="one page steps with it, nothing of ours needs it")
    names = {}
    exec(block, names)
    if "result" in names:
        assert names["result"].status in capsys.readouterr().out


@pytest.mark.long
def test_readme_finds_the_labels_made_wrong(capsys):
    exec(BLOCKS[0].values[0], {})
    printed = capsys.readouterr().out
    assert all(row in printed for row in (" 5", "100", "160"))


@pytest.mark.long
def test_readme_example_tells_the_features_apart(capsys):
    """The numbers it prints are the point of the example."""
    exec(BLOCKS[1].values[0], {})
    printed = capsys.readouterr().out.splitlines()[-2:]
    matter, others = (float(line.split(":")[1]) for line in printed)
    assert matter < 0.2 < 5 < others


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.process
def test_pictures_are_drawn_from_the_tables_of_their_pages(tmp_path):
    script = ROOT / "benchmarks" / "draw_pages.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True)
    for name, page in (("speed", "performance.md"), ("claims", "results.md")):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert f"](results/{name}.png)" in (ROOT / "docs" / page).read_text()


@pytest.mark.process
def test_a_picture_of_a_job_is_drawn_by_its_script(tmp_path):
    script = ROOT / "benchmarks" / "draw_jobs.py"
    subprocess.run([sys.executable, script, "regularization", "--out", tmp_path], check=True)
    assert (tmp_path / "regularization.png").stat().st_size > 10_000
    jobs = runpy.run_path(str(script))["PICTURES"]
    assert {path.stem for path in (ROOT / "docs" / "jobs").iterdir()} == set(jobs)


def test_pictures_are_small():
    for path in (ROOT / "docs").rglob("*.*"):
        assert path.suffix not in (".png", ".svg") or path.stat().st_size < 100_000, path


def test_architecture_page_lists_every_package_and_has_its_pictures():
    text = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "untuned"
    for path in (*source.iterdir(), *source.glob("*/*/")):
        name = path.name + "/" if path.is_dir() else path.name
        if name not in ("__pycache__/", "py.typed"):
            assert f"`{name}`" in text, name
    targets = runpy.run_path(str(ROOT / "benchmarks" / "modules.py"))["TARGETS"]
    assert set(targets) == set(re.findall(r"\(calls/([\w-]+)\.svg\)", text))


def test_a_picture_of_a_call_shows_each_package_and_which_calls_which():
    drawn = runpy.run_path(str(ROOT / "benchmarks" / "modules.py"))["drawn"]
    calls = [("run/loop.py", "ops/jax.py", 3), ("ops/jax.py", "run/loop.py", 1)]
    modules = ["run/loop.py", "ops/jax.py", "diagnostics.py"]
    picture = drawn("a <call>", {"modules": modules, "calls": calls})
    assert "a &lt;call&gt;: 3 modules" in picture
    assert re.findall(r'font-weight="bold">(\w+)<', picture) == ["diagnostics", "run", "ops"]
    assert re.findall(r"url\(#(\w+)\)", picture) == ["down", "up"]


def test_every_rule_of_the_benchmark_is_kept_by_a_test_that_exists():
    text = (ROOT / "docs" / "benchmark.md").read_text()
    rules = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^## )", text, re.DOTALL | re.MULTILINE)
    assert len(rules) == 9
    for rule in rules:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", rule)
        assert named, rule
        for path, test in named:
            assert f"def {test}(" in (ROOT / path).read_text(), test
