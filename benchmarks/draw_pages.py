"""Draw the pictures of docs/performance.md and docs/results.md.

The numbers come from the table of docs/performance.md and from benchmarks/records/claims.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

DOCS = Path(__file__).parent.parent / "docs"
CLAIMS = Path(__file__).parent / "records" / "claims.jsonl"
OURS, PAPER, OTHERS = "#0072b2", "#d55e00", "#999999"
TITLES = {"covtype": "Covtype", "mnist": "MNIST cleaning"}


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table of a page whose first heading cell is `heading`."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")])
    return rows


def numbers(cell: str) -> list[float]:
    """The numbers at the start of a cell: one, or the ends of a range."""
    return [float(found) for found in re.findall(r"\d+\.?\d*", cell.split("(")[0])]


def speed() -> Any:
    """One line per row of the table: its time in units of the alternative's, 1 being equal."""
    rows = table("performance.md", "what you run")
    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    axes.axvline(1, color="black", linewidth=1, zorder=0)
    for place, (_, _, share, *_) in enumerate(rows):
        found = numbers(share)
        axes.plot(found, [place] * len(found), color=OURS, marker="o", markersize=8, linewidth=8,
                  solid_capstyle="round")  # fmt: skip
        axes.annotate(share, (max(found), place), xytext=(10, 0), textcoords="offset points",
                      bbox={"fc": "white", "ec": "none", "pad": 1},
                      va="center", fontsize=9)  # fmt: skip
    names = [f"{what}\ncompared with {other}" for what, other, *_ in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.002, 8)
    axes.set_xticks([0.01, 0.1, 1], ["1/100", "1/10", "the same time"])
    axes.set_title("Time compared with the alternative: further left is faster")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def colour(method: str) -> str:
    """The paper's two methods stand out, and so does ours."""
    return PAPER if "TFBO" in method else OURS if "auto" in method else OTHERS


def claims() -> Any:
    """Bars of the gap after 10 s, one panel per problem."""
    lines = CLAIMS.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    names = [row["method"] for row in rows]
    for axes, (problem, title) in zip(panels, TITLES.items(), strict=True):
        for place, row in enumerate(rows):
            left = numbers(row[problem])[0]
            axes.barh(place, left, color=colour(row["method"]))
            axes.annotate(row[problem], (left, place), xytext=(4, 0),
                          textcoords="offset points", va="center", fontsize=9)  # fmt: skip
        axes.set_title(title)
        axes.set_xlim(0, 122)
        axes.set_xticks([0, 50, 100], ["0 %", "50 %", "100 %"])
        axes.set_xlabel("gap left after 10 s")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(rows)), names)
    panels[0].invert_yaxis()
    return figure


def main() -> None:
    """Draw both into docs/results, or the folder given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS / "results")
    out = parser.parse_args().out
    for name, draw in (("speed", speed), ("claims", claims)):
        draw().savefig(out / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
