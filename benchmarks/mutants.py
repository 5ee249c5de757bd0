"""Mutation testing: which random faults in the core do its own tests notice?

    python benchmarks/mutants.py --count 500                    # all packages below
    python benchmarks/mutants.py --count 40 --package solution --seed 3

A mutant is the package with one fault: an operator, a comparison, a condition or a number changed,
or a value not returned. The quick tests of its package run against it, in a copy of the source. A
mutant that no test notices is printed as a line of code before and after.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.progress import track

ROOT = Path(__file__).parent.parent
QUICK = "not slow and not long and not process and not browser and not real_data"
TESTS = {  # nearest first, since the first failure ends a run
    "run": ["tests/run", "tests/solvers", "tests/test_properties.py"],
    "problem": ["tests/problem", "tests/run", "tests/test_properties.py"],
    "solvers/auto": ["tests/solvers", "tests/run", "tests/test_properties.py"],
    "networks": ["tests/networks"],
    "solution": ["tests/solution"],
}
LONGEST = 600  # seconds; a mutant that hangs is noticed
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE,
    ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Mutant(NamedTuple):
    """One fault."""

    package: str
    path: Path  # below src/untuned
    line: int
    before: str
    after: str
    source: str  # of the whole file


def main() -> None:
    """Draw mutants, run the tests on each and print those that no test notices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--package", choices=TESTS, action="append")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    drawn = draw(given.package or list(TESTS), given.count, random.Random(given.seed))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        survivors = [
            mutant
            for mutant in track(drawn, "mutants", disable=not sys.stdout.isatty())
            if not is_noticed(mutant, source)
        ]
    caught = len(drawn) - len(survivors)
    print(f"{caught} of {len(drawn)} mutants noticed ({100 * caught / len(drawn):.0f} %)")


def draw(packages: list[str], count: int, rng: random.Random) -> list[Mutant]:
    """Different mutants, each place in the packages as likely as any other."""
    places = [
        (package, path, index)
        for package in packages
        for path in sorted((ROOT / "src" / "untuned" / package).rglob("*.py"))
        for index, _ in enumerate(_places(ast.parse(path.read_text())))
    ]
    return [_mutant(*place) for place in rng.sample(places, min(count, len(places)))]


def is_noticed(mutant: Mutant, source: Path) -> bool:
    """Whether the tests of its package fail; it is printed where they pass."""
    path = source / "untuned" / mutant.path
    original = path.read_text()
    path.write_text(mutant.source)
    try:
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", QUICK]
            + ["-p", "no:cacheprovider", *TESTS[mutant.package]],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": str(source)}, timeout=LONGEST,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(original)
    if found.returncode == 0:
        print(f"{mutant.path}:{mutant.line}\n  - {mutant.before}\n  + {mutant.after}", flush=True)
    return found.returncode != 0


def _mutant(package: str, path: Path, index: int) -> Mutant:
    tree = ast.parse(path.read_text())
    place = list(_places(tree))[index]
    before = ast.unparse(place) if isinstance(place, ast.expr | ast.stmt) else ""
    _change(place)
    return Mutant(
        package, path.relative_to(ROOT / "src" / "untuned"), getattr(place, "lineno", 0), before,
        ast.unparse(place), ast.unparse(tree),
    )  # fmt: skip


def _places(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that can be changed, in the order of the file; annotations and texts cannot."""
    kinds = ("annotation", "returns")  # `from __future__ import annotations`: never evaluated
    types = [getattr(node, kind, None) for node in ast.walk(tree) for kind in kinds]
    ignored = {id(part) for each in types if each for part in ast.walk(each)}
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        operators = [getattr(node, "op", None), *getattr(node, "ops", [])]
        is_number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        gives = isinstance(node, ast.Return) and node.value is not None
        has_branch = isinstance(node, ast.If | ast.IfExp)
        if is_number or gives or has_branch or any(type(each) in SWAPS for each in operators):
            yield node


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.Constant):
        value = node.value
        node.value = (not value) if isinstance(value, bool) else value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        node.op = SWAPS[type(node.op)]()


if __name__ == "__main__":
    main()
