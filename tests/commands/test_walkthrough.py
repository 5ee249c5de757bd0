"""docs/command-line.md read from top to bottom, by the real command line in its own processes."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
UNTUNED = Path(sys.executable).with_name("untuned")
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The folder after all blocks, and what each command printed."""
    folder = tmp_path_factory.mktemp("walk")
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, block in re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
            if language in ("python", "py"):
                exec(block, {})
                continue
            _, command, *arguments = block.split()
            done = subprocess.run(
                [UNTUNED, command, *arguments], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            printed[command] = done.stdout
    return folder, printed


def test_wrong_labels_are_found(walked):
    folder, _ = walked
    rng = np.random.default_rng(0)
    rows = pd.read_csv(folder / "untuned-clean" / "rows.csv")
    wrong = rng.random(len(rows)) < 0.2  # as the page makes them
    found = rows["suspect"].to_numpy()
    assert found[wrong].mean() > 0.8
    assert wrong[found].mean() > 0.8


def test_every_command_says_where_its_page_is(walked):
    folder, printed = walked
    for command in ("clean", "regularize", "coreset"):
        assert f"Report: untuned-{command}/report.html" in printed[command]
        assert (folder / f"untuned-{command}" / "report.html").stat().st_size > 10_000
    assert set(printed) == {"clean", "regularize", "coreset", "report"}


def test_no_bars_in_a_pipe(walked):
    _, printed = walked
    for words in printed.values():
        assert not set(words) & set("\x1b\r━╸")


def test_coreset_is_better_than_chance(walked):
    folder, _ = walked
    kept = pd.read_csv(folder / "untuned-coreset" / "kept.csv")
    assert len(kept) == 50
    assert kept["_weight"].gt(0).all()
    assert kept["digit"].nunique() == 10
