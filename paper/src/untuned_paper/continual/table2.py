"""`untuned reproduce table2`: how much start values and learning rates matter, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from untuned_paper.comparison import pool
from untuned_paper.continual import runs, summary
from untuned_paper.continual.paper_values import STARTS, TABLE_2
from untuned_paper.continual.runs import StreamPlan

if TYPE_CHECKING:
    import pandas

METHODS = ("bcsr", "s-tfbo", "d-tfbo", "s-tfbo-prototypes", "d-tfbo-prototypes", "auto")
WIDER = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)
SETTING = "balanced"
RULES = (
    "Balanced setting. A start value is alpha_0 = beta_0 = gamma_0 of S-TFBO and D-TFBO, and both "
    "learning rates of BCSR; auto has none. 'change' is the paper's measure: how far the mean over "
    "2, 4, 6, 8 is from the run at the preset's own value, as a share of it."
)
ABOUT_SPREAD = (
    "How far from uniform the weights lambda are by which rows are drawn, averaged over tasks "
    "and seeds: entropy over log n (1 is uniform) and the least and the largest n lambda (both 1 "
    "when uniform). A method that leaves lambda where it was is insensitive by doing nothing."
)


def reproduce(
    out: Path, quick: bool, seed: int, max_seconds: float | None,
    method: list[str] | None = None, full: bool = False, tasks: int | None = None,
    seeds: int = 3, preset: str = "paper",
) -> str:  # fmt: skip
    """Make the runs that are missing, then the two tables."""
    plan = runs.plan(quick, seed, max_seconds, method, full, tasks, seeds, preset, METHODS)
    wanted = [
        plan.run(name, SETTING, number, start)
        for number in plan.seeds
        for name in plan.methods
        for start in ((None,) if name == "auto" else (None, *STARTS, *WIDER))
    ]
    frame = pool.finish(wanted, out / "records", "streams", runs.make)
    scored = runs.scored(frame)
    changes, spreads = sensitivity(scored, plan), weights(scored, plan)
    tables = {"Accuracy": (RULES, changes), "How far from uniform": (ABOUT_SPREAD, spreads)}
    title = "Table 2: do start values matter?"
    summary.write(out, "table2", title, plan.words, scored, tables, [chart(scored, plan)])
    lines = [plan.words]
    for line in changes.to_dict("records"):
        lines.append(
            f"{line['selector']}: preset {line['preset']}, change {line['change'] or '-'}, "
            f"wider {line['worst to best, wider'] or '-'}"
        )
    lines.append(f"Page: {out / 'table2.html'}   table: {out / 'table2.md'}, table2.parquet")
    return "\n".join(lines)


def sensitivity(scored: pandas.DataFrame, plan: StreamPlan) -> pandas.DataFrame:
    """A_T at every start value, means over seeds."""
    import pandas

    lines = []
    for name in plan.methods:
        own = scored[scored["method"] == name]
        usual = own[own["start"].isna()]["A_T"].mean()
        by_start = own.dropna(subset="start").groupby("start")["A_T"].mean()
        line = {"selector": runs.title(name), "preset": f"{usual:.2f}"}
        line |= {
            f"{start:g}": f"{by_start[start]:.2f}" if start in by_start else "" for start in STARTS
        }
        near = by_start[by_start.index.isin(STARTS)]
        line["change"] = f"{abs(near.mean() - usual) / usual:.1%}" if len(near) else ""
        printed = TABLE_2.get(name) if plan.problem == "split-cifar100" else None
        if plan.problem == "split-cifar100":
            line["paper's"] = ", ".join(f"{value:.2f}" for value in printed) if printed else ""
        line |= {
            f"{start:g} ": f"{by_start[start]:.2f}" if start in by_start else "" for start in WIDER
        }
        far = by_start[by_start.index.isin(WIDER)]
        line["worst to best, wider"] = f"{far.min():.2f} to {far.max():.2f}" if len(far) else ""
        lines.append(line)
    return pandas.DataFrame(lines)


def weights(scored: pandas.DataFrame, plan: StreamPlan) -> pandas.DataFrame:
    """Entropy and range of lambda at every start value."""
    import pandas

    lines = []
    for name in plan.methods:
        own = scored[scored["method"] == name].dropna(subset="entropy")
        for start, group in own.groupby(own["start"].fillna(-1.0)):
            mean = group[["entropy", "least", "most"]].mean()
            lines.append(
                {
                    "selector": runs.title(name),
                    "start": "preset" if start < 0 else f"{start:g}",
                    "entropy / log n": f"{mean['entropy']:.4f}",
                    "least n lambda": f"{mean['least']:.3f}",
                    "largest n lambda": f"{mean['most']:.3f}",
                }
            )
    columns = ["selector", "start", "entropy / log n", "least n lambda", "largest n lambda"]
    return pandas.DataFrame(lines, columns=columns)


def chart(scored: pandas.DataFrame, plan: StreamPlan) -> object:
    """Every run's A_T by selector and start value."""
    values = {}
    for name in plan.methods:
        own = scored[scored["method"] == name]
        for start, group in own.groupby(own["start"].fillna(-1.0)):
            label = "preset" if start < 0 else f"{start:g}"
            values[f"{runs.title(name)}, {label}"] = group["A_T"].tolist()
    return summary.dots(values, {}, f"{plan.problem}, {SETTING}")
