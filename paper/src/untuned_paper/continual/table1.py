"""`untuned reproduce table1`: every selector on a stream, balanced and imbalanced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from untuned_paper.comparison import pool
from untuned_paper.continual import runs, summary
from untuned_paper.continual.paper_values import TABLE_1
from untuned_paper.continual.protocols import ROWS
from untuned_paper.continual.runs import SETTINGS, StreamPlan

if TYPE_CHECKING:
    import pandas

COMPARED_WITH = {"over uniform": "uniform", "over uniform per class": "uniform-per-class"}
RULES = (
    "A_T is the mean test accuracy over tasks after the last one, FGT_T the mean over earlier "
    "tasks of their best accuracy before minus that at the end. Mean and standard deviation over "
    "seeds; seeds are paired: all selectors of a seed see the same stream, the same first weights "
    "and the same order. 'over uniform' is the mean difference to uniform sampling, seed by seed, "
    "and 'per class' to uniform sampling of the same number of each class."
)


def reproduce(
    out: Path, quick: bool, seed: int, max_seconds: float | None,
    method: list[str] | None = None, full: bool = False, tasks: int | None = None,
    seeds: int = 3, preset: str = "paper",
) -> str:  # fmt: skip
    """Make the runs that are missing, then the table."""
    plan = runs.plan(quick, seed, max_seconds, method, full, tasks, seeds, preset, tuple(ROWS))
    wanted = [
        plan.run(name, setting, number)
        for number in plan.seeds
        for setting in SETTINGS
        for name in plan.methods
    ]
    frame = pool.finish(wanted, out / "records", "streams", runs.make)
    scored = runs.scored(frame)
    tables = {
        setting.capitalize(): ("", table(scored[scored["setting"] == setting], plan, setting))
        for setting in SETTINGS
    }
    figures = [chart(scored[scored["setting"] == setting], plan, setting) for setting in SETTINGS]
    title = "Table 1: what to keep of each task"
    summary.write(out, "table1", title, f"{plan.words} {RULES}", scored, tables, figures)
    lines = [plan.words]
    for setting, (_, shown) in tables.items():
        best = scored[scored["setting"] == setting.lower()].groupby("method")["A_T"].mean()
        first = best.sort_values(ascending=False).head(3)
        names = (f"{runs.title(str(name))} {value:.1f}" for name, value in first.items())
        lines.append(f"{setting}, {len(shown)} selectors, best A_T: {'; '.join(names)}")
    lines.append(f"Page: {out / 'table1.html'}   table: {out / 'table1.md'}, table1.parquet")
    return "\n".join(lines)


def table(scored: pandas.DataFrame, plan: StreamPlan, setting: str) -> pandas.DataFrame:
    """One line per selector, in the paper's order; the paper's own figures where they compare."""
    import pandas

    controls = {
        heading: scored[scored["method"] == name].set_index("seed")["A_T"]
        for heading, name in COMPARED_WITH.items()
        if name in plan.methods
    }
    lines = []
    for name in plan.methods:
        own = scored[scored["method"] == name].set_index("seed")
        line = {
            "selector": runs.title(name),
            "A_T": summary.spread(own["A_T"], 2),
            "FGT_T": summary.spread(own["FGT_T"], 3),
        }
        for heading, control in controls.items():
            itself = name == COMPARED_WITH[heading]
            line[heading] = "" if itself else summary.spread(own["A_T"] - control, 2)
        if plan.problem == "split-cifar100":
            line |= _paper(name, setting)
        line["seconds"] = f"{own['seconds'].mean():.0f}"
        line["of them choosing"] = f"{own['select_seconds'].mean():.1f}"
        lines.append(line)
    return pandas.DataFrame(lines)


def _paper(name: str, setting: str) -> dict[str, str]:
    """The paper's A_T and FGT_T after all 20 tasks; it has none for `auto`."""
    if name not in TABLE_1:
        return {"paper's A_T (20 tasks)": "", "paper's FGT_T": ""}
    a, a_spread, fgt, fgt_spread = TABLE_1[name][SETTINGS.index(setting)]
    return {
        "paper's A_T (20 tasks)": f"{a:.2f} ± {a_spread:.2f}",
        "paper's FGT_T": f"{fgt:.3f} ± {fgt_spread:.3f}",
    }


def chart(scored: pandas.DataFrame, plan: StreamPlan, setting: str) -> object:
    """Every run's A_T; the paper's means where all its tasks were run."""
    values = {
        runs.title(name): scored[scored["method"] == name]["A_T"].tolist() for name in plan.methods
    }
    comparable = plan.problem == "split-cifar100" and plan.tasks in (None, 20)
    published = {
        runs.title(name): TABLE_1[name][SETTINGS.index(setting)][0]
        for name in plan.methods
        if comparable and name in TABLE_1
    }
    return summary.dots(values, published, f"{plan.problem}, {setting}")
