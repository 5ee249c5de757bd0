"""The main table: where each method ended, what it took to come close, and what tuning adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned_paper.comparison import grids
from untuned_paper.comparison.measurement import DIVERGED
from untuned_paper.comparison.pool import REFERENCE
from untuned_paper.comparison.records import groups

if TYPE_CHECKING:
    import pandas

TARGETS = {"10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001}
COSTS = ("seconds", "oracle_calls")


class Scale(NamedTuple):
    """The ends between which a problem's progress is measured."""

    first: float  # Phi(x0)
    least: float  # Phi*, the least of all runs and of the reference

    def gap(self, value: Any) -> Any:
        """(Phi - Phi*) / (Phi(x0) - Phi*): 1 at the start, 0 at the best known."""
        return (value - self.least) / (self.first - self.least)


def scale(records: pandas.DataFrame, problem: str) -> Scale:
    """Phi(x0), and the least Phi on record, whoever found it."""
    of_problem = records[records["problem"] == problem]
    first = of_problem.loc[of_problem["step"] == 0, "value"].to_numpy()[0]
    return Scale(float(first), float(of_problem["value"].min()))


def reached(run: pandas.DataFrame, target: float, cost: str) -> float:
    """What a run had spent when Phi first reached `target`, interpolated; inf if never.

    Curves fall ever more slowly, so a straight line between two records is never below them, and
    the cost read from it never too small.
    """
    values, spent = run["value"].to_numpy(), run[cost].to_numpy(float)
    hits = np.flatnonzero(values <= target)
    if not len(hits):
        return np.inf
    after = hits[0]
    if after == 0:
        return float(spent[0])
    share = (values[after - 1] - target) / (values[after - 1] - values[after])
    return float(spent[after - 1] + share * (spent[after] - spent[after - 1]))


def bill(
    shown: pandas.DataFrame, tuning: pandas.DataFrame | None, problem: str, method: str
) -> dict[str, Any]:
    """What the grid search behind a tuned setting costs, and whether it was run or estimated."""
    grid = grids.grid(method, problem)
    if tuning is not None:
        ours = tuning[(tuning["problem"] == problem) & (tuning["method"] == method)]
        ours = ours[ours["setting"].isin(grid)]
        if set(ours["setting"]) == set(grid):
            runs = [run for _, run in groups(ours, "setting", "seed")]
            return {cost: sum(run[cost].max() for run in runs) for cost in COSTS} | {"bill": "run"}
    # Not run: each point of the grid gets what the run shown got.
    runs = [run for _, run in groups(shown, "seed")]
    spent = {cost: float(np.median([run[cost].max() for run in runs])) for cost in COSTS}
    return {cost: len(grid) * spent[cost] for cost in COSTS} | {"bill": "estimated"}


def table(records: pandas.DataFrame, tuning: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """One line per problem, method and setting: medians over seeds, best first."""
    import pandas

    lines = []
    methods = records[records["method"] != REFERENCE]
    for (problem, method, setting), group in groups(methods, "problem", "method", "setting"):
        ends = scale(records, problem)
        runs = [run for _, run in groups(group, "seed")]
        finite = [run.loc[run["value"].notna()] for run in runs]
        lost = [run["status"].iloc[-1] == DIVERGED for run in runs]
        last = [run["value"].iloc[-1] for run in finite]
        final = float(np.median(np.where(lost, np.inf, last)))
        line = {
            "problem": problem,
            "method": method,
            "setting": setting,
            "seeds": len(runs),
            "diverged": sum(lost),
            "final_phi": final,
            "final_gap": ends.gap(final),
            "steps": float(np.median([run["step"].max() for run in runs])),
            "compile_seconds": float(np.median([run["compile_seconds"].max() for run in runs])),
        }
        is_tuned = setting == grids.TUNED and grids.is_billed(method)
        price = bill(group, tuning, problem, method) if is_tuned else dict.fromkeys(COSTS, 0.0)
        line["bill"] = price.get("bill", "none")
        for name, share in TARGETS.items():
            target = ends.least + share * (ends.first - ends.least)
            for cost in COSTS:
                spent = float(np.median([reached(run, target, cost) for run in finite]))
                line[f"{cost} to {name}"] = spent
                line[f"{cost} to {name}, tuning included"] = spent + price[cost]
        lines.append(line)
    return pandas.DataFrame(lines).sort_values(["problem", "final_phi"], ignore_index=True)


def spoken(whole: pandas.DataFrame) -> pandas.DataFrame:
    """The table as people read it: short numbers, a dash where a target was not reached."""
    import pandas

    shown = pandas.DataFrame({"method": whole["method"], "setting": whole["setting"]})
    shown["Phi at the end"] = whole["final_phi"].map("{:.4f}".format).replace("inf", DIVERGED)
    shown["gap left"] = whole["final_gap"].map("{:.2%}".format).replace("inf%", "-")
    shown["steps"] = whole["steps"].map("{:,.0f}".format)
    shown["compiling"] = whole["compile_seconds"].map("{:.1f} s".format)
    for name in TARGETS:
        for suffix, heading in (("", ""), (", tuning included", ", tuned")):
            seconds = whole[f"seconds to {name}{suffix}"]
            calls = whole[f"oracle_calls to {name}{suffix}"]
            shown[f"s to {name}{heading}"] = seconds.map(_seconds)
            shown[f"calls to {name}{heading}"] = calls.map(_calls)
    shown["bill"] = whole["bill"]
    lost = whole["diverged"].astype(str) + " of " + whole["seeds"].astype(str)
    shown["diverged"] = np.where(whole["diverged"] > 0, lost, "")
    return shown


def _seconds(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "-"


def _calls(value: float) -> str:
    return f"{value:.2e}" if np.isfinite(value) else "-"
