"""Lower bounds are those that `make floors` runs, so that none is a guess."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
# ruff, mypy and its stubs read the code and run none of it; the others are no part of the tests.
NOT_RUN = {"ruff", "mypy", "pandas-stubs", "pip-audit", "atheris"}


def declared():
    """The lowest version of each package that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = (project["dependencies"], *project["optional-dependencies"].values())
    requirements = [Requirement(line) for group in groups for line in group]
    return {
        each.name: next(part.version for part in each.specifier if part.operator == ">=")
        for each in requirements
        if each.name not in NOT_RUN | {"untuned", "untuned-paper"}
    }


def test_floors_are_the_versions_declared():
    text = (ROOT / ".ci" / "floors.txt").read_text()
    run = dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))
    assert set(run) == set(declared())
    for name, lowest in declared().items():
        assert Version(run[name]) == Version(lowest), name
