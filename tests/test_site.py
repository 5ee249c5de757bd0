"""The site is built strictly: no dead link, no page left out, no name that does not exist."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.process
def test_site_is_built_without_a_warning(tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-2000:]
    reference = (tmp_path / "api" / "index.html").read_text()
    for name in ("minimize", "LabelCleaner", "BilevelRidge", "CoresetSelector", "DTFBO"):
        assert f"{name}</span>" in reference or f"{name}</code>" in reference, name
    for name in ("wrong_labels", "penalties"):  # notebooks, with the pictures they drew
        assert "data:image/png" in (tmp_path / "notebooks" / name / "index.html").read_text()
