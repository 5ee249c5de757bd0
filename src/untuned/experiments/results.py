"""What a run of everything says, as Markdown: the part of docs/results.md that nobody writes.

`reproduce all` writes it into its own folder, and `benchmarks/results_page.py` into the page.
"""

from __future__ import annotations

import math
import os
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untuned.experiments.comparison import grids, plans, standings
from untuned.experiments.continual import runs, summary
from untuned.experiments.continual.protocols import ROWS

if TYPE_CHECKING:
    import pandas

COMPARED, STREAMS = "comparison/records.parquet", "memory/table1-runs.parquet"


def markdown(out: Path, quick: bool, verdicts: pandas.DataFrame, done: dict[str, Any]) -> str:
    """The claims, then what is left of the way, then the memories, as far as they were run."""
    import pandas

    minutes = sum(part.get("seconds", 0) for part in done.values()) / 60
    command = f"untuned reproduce all{' --quick' * quick}"
    words = (
        f"`{command}`, {date.today():%Y-%m-%d}, untuned {version('untuned')}: {minutes:.1f} "
        f"minutes on {os.cpu_count()} cores."
    )
    parts = [f"{words}\n\n{summary.markdown(_short(verdicts))}"]
    if (out / COMPARED).exists():
        left = _left(pandas.read_parquet(out / COMPARED))
        plan = plans.plan(quick, 0, None, None, None)
        after = f"Share of the way left after {plan.max_seconds:g} s, without tuning and with it."
        parts.append(f"{after} {plan.reduced}\n\n{left}")
    if (out / STREAMS).exists():
        memories = _memories(pandas.read_parquet(out / STREAMS))
        stream = "Split MNIST" if quick else "Split CIFAR-100"
        parts.append(f"Mean test accuracy after the last task of {stream}:\n\n{memories}")
    return "\n".join(parts)


def _short(verdicts: pandas.DataFrame) -> pandas.DataFrame:
    """With the names of recipes in place of whole commands, and no sign that ends a cell."""
    short = verdicts.assign(by="`" + verdicts["by"].str.removeprefix("untuned reproduce ") + "`")
    short["here"] = "**" + short["here"] + "**"
    return short.apply(lambda column: column.str.replace("|", "\\|"))


def _left(records: pandas.DataFrame) -> str:
    """One line per method and setting, those that leave least first."""
    table = standings.table(records)
    plain = table["setting"] == grids.DEFAULT
    who = table["method"].where(plain, table["method"] + ", " + table["setting"])
    shares = table.assign(who=who).pivot(index="who", columns="problem", values="final_gap")
    shares = shares.sort_values(list(shares.columns))
    return summary.markdown(shares.map(_share).reset_index())


def _share(gap: float) -> str:
    if math.isnan(gap):
        return ""
    return "diverges" if math.isinf(gap) else f"{gap:.1%}"


def _memories(scored: pandas.DataFrame) -> str:
    """One line per selector, the best of both settings together first."""
    import pandas

    means = scored.groupby("method")["A_T"].mean().sort_values(ascending=False)
    lines = [
        {"selector": runs.title(name)}
        | {
            setting: summary.spread(own[own["method"] == name]["A_T"], 2)
            for setting, own in scored.groupby("setting")
        }
        for name in means.index
        if name in ROWS
    ]
    return summary.markdown(pandas.DataFrame(lines))
