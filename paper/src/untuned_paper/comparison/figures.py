"""Figures 1 and 2 of the paper on real data: both come from the same runs and records."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from untuned.report import page
from untuned.util import folder
from untuned_paper.comparison import curves, drawn_curves, plans, pool, records, standings

if TYPE_CHECKING:
    import pandas

TITLES = {
    "figure1": ("step", "Figure 1: loss against steps"),
    "figure2": ("seconds", "Figure 2: loss against seconds"),
}
RULES = (
    "Curves are medians over seeds, bands their quartiles. The vertical axis is how much is left "
    "of the way from Phi(x0) to Phi*, the least value on record; Phi is evaluated in float64 with "
    "the inner problem solved to high accuracy, outside the clock. The clock waits for results "
    "and leaves out compilation and evaluation; each run has one core. Methods without step sizes "
    "are in both panels. A cross marks the last finite point of a seed that diverged."
)
ABOUT_TABLE = (
    "Medians over seeds. 'to 1 %' is what it took until 1 % of the way was left, '-' means not "
    "within the budget. The columns marked 'tuned' add the tuning bill: what the published grid "
    "search costs ('run': as made by untuned reproduce tuning; 'estimated': every point of the "
    "grid is given what the run shown was given). Compilation is reported apart and in no other "
    "column."
)


def figure1(
    out: Path,
    quick: bool,
    seed: int,
    max_seconds: float | None,
    method: list[str] | None = None,
    problem: list[str] | None = None,
) -> str:
    """Loss against steps of x."""
    return _figure("figure1", out, plans.plan(quick, seed, max_seconds, method, problem))


def figure2(
    out: Path,
    quick: bool,
    seed: int,
    max_seconds: float | None,
    method: list[str] | None = None,
    problem: list[str] | None = None,
) -> str:
    """Loss against seconds."""
    return _figure("figure2", out, plans.plan(quick, seed, max_seconds, method, problem))


def _figure(name: str, out: Path, plan: plans.ComparisonPlan) -> str:
    frame = pool.finish(plans.comparison(plan), out / "records", "runs")
    table = standings.table(frame, _tuning_on_record(plan, out / "records"))
    axis, title = TITLES[name]
    pictures = {
        f"{name}.png": (axis, curves.GAP),
        f"{name}-loss.png": (axis, curves.LOSS),
        "calls.png": ("oracle_calls", curves.GAP),
    }
    from matplotlib import pyplot as plt

    with folder.added_whole(out) as target:
        frame.to_parquet(target / "records.parquet", index=False)
        table.to_csv(target / "table.csv", index=False)
        for file, (across, height) in pictures.items():
            drawn = drawn_curves.figure(frame, list(plan.problems), across, height)
            drawn.savefig(target / file, dpi=80, pil_kwargs={"optimize": True})
            plt.close(drawn)
        _write_page(target / f"{name}.html", title, axis, plan, frame, table)
    return _summary(name, out, plan, table)


def _tuning_on_record(plan: plans.ComparisonPlan, kept: Path) -> pandas.DataFrame | None:
    """The complete searches that were run with this very budget."""
    import pandas

    found = [records.read(kept, run) for run in plans.search(plan)]
    frames = [frame for frame in found if frame is not None]
    return pandas.concat(frames, ignore_index=True) if frames else None


def _write_page(
    path: Path,
    title: str,
    axis: str,
    plan: plans.ComparisonPlan,
    frame: pandas.DataFrame,
    table: pandas.DataFrame,
) -> None:
    sections = []
    for problem in plan.problems:
        ends = standings.scale(frame, problem)
        lines = standings.spoken(table[table["problem"] == problem])
        text = (
            f"Phi(x0) = {ends.first:.6f}, Phi* = {ends.least:.6f}: the least of "
            f"{plan.reference_iterations} L-BFGS iterations with exact hypergradients in float64 "
            "and of all runs on this page."
        )
        charts = [
            drawn_curves.interactive(frame, problem, across, height)
            for across, height in (
                (axis, curves.GAP),
                ("oracle_calls", curves.GAP),
                (axis, curves.LOSS),
            )
        ]
        body = "".join(page.chart(chart) for chart in charts)
        sections.append(page.Section(problem, text, body))
        sections.append(page.Section(f"{problem}: the table", ABOUT_TABLE, page.table(lines)))
    seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    budget = (
        f"{seeds}, batches of {plans.BATCH_SIZE} rows, {plan.max_seconds:g} s of clock per run."
    )
    lead = " ".join(part for part in (plan.reduced, RULES) if part)
    footer = f"untuned {version('untuned')}. {budget} The rules are explained in docs/benchmark.md."
    page.write(path, title, f"{lead} {budget}", sections, footer)


def _summary(name: str, out: Path, plan: plans.ComparisonPlan, table: pandas.DataFrame) -> str:
    lines = [plan.reduced] if plan.reduced else []
    for problem in plan.problems:
        best = table[table["problem"] == problem].head(3)
        names = (
            f"{line.method} ({line.setting}, {line.final_gap:.2%} of the gap left)"
            for line in best[best["final_gap"] < np.inf].itertuples()
        )
        lines.append(f"{problem}: {'; '.join(names)}")
    pictures = f"{out / name}.png, {out / name}-loss.png, {out / 'calls.png'}"
    lines.append(f"Page: {out / name}.html   pictures: {pictures}")
    lines.append(f"Table: {out / 'table.csv'}   records: {out / 'records.parquet'}")
    return "\n".join(lines)
