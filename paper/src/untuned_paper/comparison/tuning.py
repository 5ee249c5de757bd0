"""The grid searches behind tuned step sizes, run and counted.

Each method that must be tuned goes through its published grid. The methods without step sizes go
through a grid of start values, which nobody has to do: it shows how much they matter.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from untuned.report import page
from untuned.util import folder
from untuned_paper.comparison import grids, plans, pool, standings
from untuned_paper.comparison.measurement import DIVERGED
from untuned_paper.comparison.records import groups

if TYPE_CHECKING:
    import pandas

ABOUT = (
    "Every cell is one run: a pair of hyperparameters, scored by the value function at its end. "
    "The bill of a method is what all its runs together took. The start values of d-tfbo and "
    "s-tfbo are searched for curiosity only, and no bill is drawn up for them."
)


def tuning(
    out: Path,
    quick: bool,
    seed: int,
    max_seconds: float | None,
    method: list[str] | None = None,
    problem: list[str] | None = None,
) -> str:
    """All grids of the methods asked for."""
    plan = plans.plan(quick, seed, max_seconds, method, problem)
    runs = plans.search(plan)
    if not runs:
        raise ValueError(
            f"There is nothing to tune in {', '.join(plan.methods)}; leave --method out, or name "
            "a method that `untuned methods` says has something to tune."
        )
    frame = pool.finish(runs, out / "records", "grid runs")
    ends = final(frame)
    bills = summary(ends)
    with folder.added_whole(out) as target:
        frame.to_parquet(target / "tuning.parquet", index=False)
        bills.to_csv(target / "tuning.csv", index=False)
        _write_page(target / "tuning.html", plan, ends, bills)
    shown = bills.to_string(index=False, float_format="{:.4g}".format)
    reduced = f"{plan.reduced}\n" if plan.reduced else ""
    return f"{reduced}{shown}\nPage: {out / 'tuning.html'}   records: {out / 'tuning.parquet'}"


def final(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The last row of each run; a run that diverged scores infinity."""
    ends = frame.groupby(["problem", "method", "setting", "seed"], sort=False).tail(1).copy()
    ends["value"] = np.where(ends["status"] == DIVERGED, np.inf, ends["value"].fillna(np.inf))
    return ends


def summary(ends: pandas.DataFrame) -> pandas.DataFrame:
    """Per problem and method: the best and the median pair, and the bill."""
    import pandas

    lines = []
    for (problem, method), group in groups(ends, "problem", "method"):
        best = group.sort_values("value").iloc[0]
        lines.append(
            {
                "problem": problem,
                "method": method,
                "runs": len(group),
                "diverged": int(np.isinf(group["value"]).sum()),
                "best setting": best["setting"],
                "best Phi": float(best["value"]),
                "median Phi": float(group["value"].median()),
                "billed": grids.is_billed(method),
                **{cost: float(group[cost].sum()) for cost in standings.COSTS},
            }
        )
    return pandas.DataFrame(lines)


def _write_page(
    path: Path, plan: plans.ComparisonPlan, ends: pandas.DataFrame, bills: pandas.DataFrame
) -> None:
    sections = []
    for problem in plan.problems:
        lines = bills[bills["problem"] == problem].drop(columns="problem")
        maps = [
            page.chart(_map(group, method))
            for (method,), group in groups(ends[ends["problem"] == problem], "method")
        ]
        sections.append(page.Section(problem, ABOUT, page.table(lines) + "".join(maps)))
    budget = f"{plan.search_seconds:g} s of clock per run, one seed."
    lead = " ".join(part for part in (plan.reduced, budget) if part)
    footer = f"untuned {version('untuned')}. The grids are those of docs/benchmark.md."
    page.write(path, "What tuning costs", lead, sections, footer)


def _map(group: pandas.DataFrame, method: str) -> Any:
    """Phi over a grid of two hyperparameters; cells that diverged are empty."""
    import plotly.graph_objects as go

    pairs = [dict(part.split("=") for part in setting.split()) for setting in group["setting"]]
    down, across = list(pairs[0])[:2]
    rows, columns = (sorted({pair[name] for pair in pairs}, key=float) for name in (down, across))
    cells = np.full((len(rows), len(columns)), np.nan)
    for pair, value in zip(pairs, group["value"], strict=True):
        cells[rows.index(pair[down]), columns.index(pair[across])] = value
    cells[~np.isfinite(cells)] = np.nan
    drawn = go.Figure(
        go.Heatmap(
            z=cells,
            x=columns,
            y=rows,
            colorscale="Cividis",
            texttemplate="%{z:.4f}",
            colorbar={"title": "Phi"},
        )
    )
    drawn.update_layout(
        template="plotly_white",
        height=320,
        title=method,
        margin={"t": 50, "b": 50},
        xaxis={"title": " = ".join(list(pairs[0])[1:]), "type": "category"},
        yaxis={"title": down, "type": "category"},
    )
    return drawn
