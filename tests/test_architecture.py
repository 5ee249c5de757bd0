"""Rules of the house that a machine can keep."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "untuned"
FILES = sorted(SOURCE.rglob("*.py"))
MAY_IMPORT_ARRAYS = ("ops", "estimators", "coreset", "experiments", "networks")


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


def test_nothing_is_unpickled():
    words = ("pickle", "joblib", "torch.load", "allow_pickle")
    assert not [(path.name, word) for path in FILES for word in words if word in path.read_text()]


def test_the_root_has_few_files_and_every_room_a_purpose():
    assert len(list(SOURCE.glob("*.py"))) <= 6
    for room in {path.parent for path in FILES} - {SOURCE}:
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room


def test_both_libraries_offer_the_same_names():
    from untuned.ops import Ops, get

    promised = {name for name in vars(Ops) if not name.startswith("_")} | set(Ops.__annotations__)
    for library in ("jax", "torch"):
        missing = {name for name in promised if not hasattr(get(library), name)}
        assert not missing, library
