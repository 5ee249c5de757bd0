"""Rules of the code that a machine can keep."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, STUDY = ROOT / "src" / "untuned", ROOT / "paper" / "src" / "untuned_paper"
FILES = sorted(SOURCE.rglob("*.py"))
FILES_OF_STUDY = sorted(STUDY.rglob("*.py"))
# What the paper's study takes of the library beside public names: its pages and files, and the
# parts of its methods that it looks into.
OPEN_TO_STUDY = {
    "coreset.baselines", "coreset.selectors.candidates", "coreset.selectors.registry",
    "data.batches", "problem.build", "problem.derivatives", "problem.flat", "report",
    "report.charts", "run", "run.plotting", "run.result", "solvers.dtfbo",
    "solvers.numerics.adagrad_norm", "solvers.stfbo", "theory",
    "theory.constants", "theory.double_loop", "util", "util.folder",
    "util.progress", "util.wording",
}  # fmt: skip
MAY_IMPORT_ARRAYS = ("ops", "estimators", "coreset", "networks")


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_array_libraries_are_imported_in_ops_only():
    arrays = {"jax", "torch", "optree"}
    below = (path for path in FILES if path.relative_to(SOURCE).parts[0] not in MAY_IMPORT_ARRAYS)
    assert not [
        str(path) for path in below if {n.partition(".")[0] for n in imports_of(path)} & arrays
    ]


def test_the_library_is_whole_without_the_study_which_takes_little_of_it():
    for path in FILES:
        assert not [name for name in imports_of(path) if name.startswith("untuned_paper")], path
    taken = {name for path in FILES_OF_STUDY for name in imports_of(path)}
    assert {name[8:] for name in taken if name.startswith("untuned.")} == OPEN_TO_STUDY


def test_nothing_is_unpickled():
    words = ("pickle", "joblib", "torch.load", "allow_pickle")
    files = FILES + FILES_OF_STUDY
    assert not [(path.name, word) for path in files for word in words if word in path.read_text()]


def test_the_root_has_few_files_and_every_package_a_purpose():
    assert len(list(SOURCE.glob("*.py"))) <= 6
    for package in {path.parent for path in FILES} - {SOURCE}:
        assert ast.get_docstring(ast.parse((package / "__init__.py").read_text())), package


def test_both_libraries_offer_the_same_names():
    from untuned.ops import Ops, get

    promised = {name for name in vars(Ops) if not name.startswith("_")} | set(Ops.__annotations__)
    for library in ("jax", "torch"):
        missing = {name for name in promised if not hasattr(get(library), name)}
        assert not missing, library


def test_no_two_test_files_have_one_name():
    """pytest imports files outside packages by their names alone, and refuses the second."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("paper/tests/**/*.py")]
    files = [path for path in files if not (path.parent / "__init__.py").exists()]
    names = Counter(path.name for path in files)
    assert not [path for path in files if names[path.name] > 1]
