"""How many of our modules a call enters, and the way it takes through the packages.

    python benchmarks/modules.py                  # the table, with the targets
    python benchmarks/modules.py minimize-jax     # the modules of one call, package by package
    python benchmarks/modules.py --draw docs      # the pictures of docs/architecture.md

A module is entered where a profiler sees one of its functions called; imports do not count. Each
call runs in a process of its own, since caches hide what a first call does.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import threading
from collections import Counter
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

import untuned

HOME = Path(untuned.__file__).parent
PREPARE = {
    "minimize-jax": """
import jax, numpy as np, untuned
x0, y0 = jax.numpy.zeros(2), jax.numpy.zeros(2)
f = lambda x, y: ((y - 1.0) ** 2).sum() + 0.1 * (x**2).sum()
g = lambda x, y: ((y - x) ** 2).sum()
call = lambda: untuned.minimize(f, g, x0, y0)
""",
    "BilevelRidge": """
from sklearn.datasets import load_diabetes
from untuned.estimators import BilevelRidge
X, y = load_diabetes(return_X_y=True)
call = lambda: BilevelRidge().fit(X, y)
""",
    "LabelCleaner": """
from sklearn.datasets import load_iris
from untuned.estimators import LabelCleaner
X, y = load_iris(return_X_y=True)
call = lambda: LabelCleaner().fit(X, y)
""",
    "argmin-jax": """
import jax, untuned
x, y0 = jax.numpy.ones(2), jax.numpy.zeros(2)
call = lambda: untuned.argmin(lambda x, y: ((y - x) ** 2).sum(), x, y0)
""",
    "Reweighter": """
import torch, untuned
model = torch.nn.Linear(3, 2)
data, labels, index = torch.randn(8, 3), torch.arange(8) % 2, torch.arange(8)
loss = torch.nn.functional.cross_entropy
reweighter = untuned.Reweighter(model, rows=8)
trusted = lambda: loss(model(data), labels)
call = lambda: reweighter(loss(model(data), labels, reduction="none"), index, trusted)
""",
}
PREPARE["minimize-torch"] = (
    PREPARE["minimize-jax"].replace("jax.numpy", "torch").replace("jax,", "torch,")
)
PREPARE["minimize-numpy"] = """
import numpy as np, untuned.run.plain

class Squares:  # |y - c x|^2, with c = 0 for f
    def __init__(self, c):
        self.c = c
    def __call__(self, x, y):
        return ((y - 1.0 - self.c * x) ** 2).sum()
    def value_and_grads(self, x, y):
        return self(x, y), -self.c * self.grad_y(x, y), self.grad_y(x, y)
    def grad_y(self, x, y):
        return 2.0 * (y - 1.0 - self.c * x)
    def products(self, x, y):
        parts = {"x": lambda v: -2.0 * self.c * v, "y": lambda v: 2.0 * v}
        return lambda v, wrt: tuple(parts[k](v) for k in wrt) if wrt == "xy" else parts[wrt](v)

call = lambda: untuned.minimize(Squares(0.0), Squares(1.0), np.ones(2), np.zeros(2))
"""
PREPARE["plain-numpy"] = PREPARE["minimize-numpy"].replace(
    "untuned.minimize", "untuned.run.plain.minimize"
)
TARGETS = {
    "minimize-jax": 25,
    "minimize-torch": 25,
    "minimize-numpy": 25,
    "BilevelRidge": 20,
    "LabelCleaner": 30,
}
IMPORTS = {"<module>", "__set_name__", "__init_subclass__", "__class_getitem__"}


class Way:
    """What a profiler sees of a call: the modules, in order, and which of them calls which."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name in IMPORTS:
            return
        module = self._module(frame)
        if module is None or self._is_importing(frame):
            return
        self.modules.setdefault(module)
        caller = frame.f_back
        while caller is not None and self._module(caller) is None:
            caller = caller.f_back  # through the array library, or scikit-learn
        if caller is not None and (of := self._module(caller)) and of != module:
            self.calls[of, module] += 1

    def _module(self, frame: FrameType) -> str | None:
        file = frame.f_code.co_filename
        if file not in self._names:
            path = Path(file)
            ours = path.is_relative_to(HOME)
            self._names[file] = path.relative_to(HOME).as_posix() if ours else None
        return self._names[file]

    def _is_importing(self, frame: FrameType) -> bool:
        """Whether one of our modules is being loaded: class bodies and decorators run then."""
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_name == "<module>" and self._module(above) is not None:
                return True
            above = above.f_back
        return False


def traced(name: str) -> dict[str, Any]:
    """The way of one call, in this process."""
    scope: dict[str, Any] = {}
    exec(PREPARE[name], scope)
    way = Way()
    threading.setprofile(way)
    sys.setprofile(way)
    try:
        scope["call"]()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {
        "modules": list(way.modules),
        "calls": sorted((*pair, n) for pair, n in way.calls.items()),
    }


def of_fresh_process(name: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--trace", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def lines_in(modules: list[str]) -> int:
    return sum(len((HOME / module).read_text().splitlines()) for module in modules)


def layers() -> list[list[str]]:
    """The layers of the package, from the top down, from the import contract in pyproject.toml."""
    text = (HOME.parent.parent / "pyproject.toml").read_text()
    block = text[text.index("layers = [") + len("layers = ") :]
    rows = ast.literal_eval(block[: block.index("]") + 1])
    return [[part.strip() for part in row.split("|")] for row in rows]


def package_of(module: str) -> str:
    return module.partition("/")[0].removesuffix(".py")


def drawn(name: str, way: dict[str, Any]) -> str:
    """An SVG of a way: a box a package with the modules entered, an arrow where one calls another.

    Layers go from top to bottom; an arrow that goes up is red.
    """
    inside: dict[str, list[str]] = {}
    for module in way["modules"]:
        inside.setdefault(package_of(module), []).append(module.partition("/")[2] or module)
    rows = [[package for package in row if package in inside] for row in [["__init__"], *layers()]]
    rows = [row for row in rows if row]
    width, y, boxes, shapes = 940, 40, {}, []
    for row in rows:
        each = (width - 40) // len(row)
        height = 0
        for at, package in enumerate(row):
            texts = wrapped(inside[package], (each - 330) // 7)
            tall = 26 + 16 * len(texts)
            boxes[package] = (20 + at * each, y, each - 20, tall)
            shapes.append(box(package, texts, *boxes[package]))
            height = max(height, tall)
        y += height + 34
    order = {package: at for at, row in enumerate(rows) for package in row}
    pairs = sorted({(package_of(a), package_of(b)) for a, b, _ in way["calls"]})
    arrows = [
        arrow(boxes[a], boxes[b], at, upwards=order[b] <= order[a])
        for at, (a, b) in enumerate((a, b) for a, b in pairs if a != b)
    ]
    title = f"{name}: {len(way['modules'])} modules, {lines_in(way['modules']):,} lines in them"
    head = f'<text x="20" y="24" font-size="15" font-weight="bold">{escape(title)}</text>'
    marks = "".join(
        f'<marker id="{i}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{c}"/></marker>'
        for i, c in (("down", "#47608a"), ("up", "#c0392b"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" font-size="12" '
        f'font-family="sans-serif"><defs>{marks}</defs>'
        f'<rect width="{width}" height="{y}" fill="white"/>'
        f"{head}{''.join(shapes)}{''.join(arrows)}</svg>\n"
    )


def wrapped(modules: list[str], columns: int) -> list[str]:
    lines = [""]
    for module in modules:
        name = module.removesuffix(".py")
        if lines[-1] and len(lines[-1]) + len(name) > columns:
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{name}"
    return lines


def box(package: str, texts: list[str], x: int, y: int, width: int, height: int) -> str:
    said = "".join(
        f'<text x="{x + 130}" y="{y + 20 + 16 * at}">{escape(text)}</text>'
        for at, text in enumerate(texts)
    )
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#eef2f8" '
        f'stroke="#47608a"/>'
        f'<text x="{x + 10}" y="{y + 20}" font-weight="bold">{escape(package)}</text>{said}'
    )


def arrow(of: tuple, to: tuple, at: int, upwards: bool) -> str:
    """An arrow between two boxes, right of the text, each in a column of its own."""
    (x1, y1, w1, h1), (x2, y2, w2, h2) = of, to
    start, end = (x + min(690 + 7 * at, w - 10) for x, w in ((x1, w1), (x2, w2)))
    color, mark = ("#c0392b", "up") if upwards else ("#47608a", "down")
    top, bottom = (y1, y2 + h2) if upwards else (y1 + h1, y2)
    return (
        f'<path d="M{start} {top}L{end} {bottom}" stroke="{color}" stroke-opacity=".7" '
        f'fill="none" marker-end="url(#{mark})"/>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("call", nargs="?", choices=[*PREPARE], help="show the modules of this call")
    parser.add_argument("--draw", type=Path, metavar="DIR", help="write way-*.svg into this folder")
    parser.add_argument("--trace", choices=[*PREPARE], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.trace:
        print(json.dumps(traced(asked.trace)))
    elif asked.call:
        way = of_fresh_process(asked.call)
        print(f"{len(way['modules'])} modules, {lines_in(way['modules']):,} lines in them")
        print("\n".join(sorted(way["modules"])))
    elif asked.draw:
        for name in TARGETS:
            (asked.draw / f"way-{name}.svg").write_text(drawn(name, of_fresh_process(name)))
    else:
        print(f"{'call':<16} {'modules':>8} {'target':>7} {'lines':>7}")
        for name in PREPARE:
            modules = of_fresh_process(name)["modules"]
            print(
                f"{name:<16} {len(modules):>8} {TARGETS.get(name, ''):>7} {lines_in(modules):>7,}"
            )


if __name__ == "__main__":
    main()
