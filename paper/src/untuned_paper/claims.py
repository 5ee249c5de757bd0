"""What the paper claims, each beside what the records of `untuned reproduce all` say of it.

A rule decides each verdict, and it has no threshold that could be turned until a claim holds: a
place among others, a median, a standard error, or the paper's own figure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from untuned_paper.comparison import grids, standings
from untuned_paper.continual import paper_values
from untuned_paper.continual.runs import SETTINGS, title

if TYPE_CHECKING:
    import pandas

HOLDS, FAILS, NOT_RUN = "holds", "does not hold", "not run"
OURS = {"d-tfbo": "D-TFBO", "s-tfbo": "S-TFBO"}


class Claim(NamedTuple):
    """What is said, the file that decides, the recipe that makes it, and how it decides."""

    says: str
    file: str
    recipe: str
    judge: Callable[[pandas.DataFrame], tuple[bool, str]]


def judged(out: Path) -> pandas.DataFrame:
    """One line per claim: verdict, figures, and the command that makes them."""
    import pandas

    lines = []
    for claim in CLAIMS:
        verdict, figures = NOT_RUN, ""
        if (out / claim.file).exists():
            holds, figures = claim.judge(pandas.read_parquet(out / claim.file))
            verdict = HOLDS if holds else FAILS
        command = f"untuned reproduce {claim.recipe}"
        lines.append(
            {"the paper says": claim.says, "here": verdict, "figures": figures, "by": command}
        )
    return pandas.DataFrame(lines)


def _fastest(records: pandas.DataFrame) -> tuple[bool, str]:
    """D-TFBO ends lowest of all but `auto`, which the paper does not have."""
    table = _ends(records, "covtype")
    first = table.iloc[0]
    place = 1 + int(np.flatnonzero(table["method"] == "d-tfbo")[0])
    left = _left(table, "d-tfbo")
    return place == 1, (
        f"D-TFBO is number {place} of {len(table)} on Covtype with {left:.1%} of the way left; "
        f"the first is {first['method']} ({first['setting']}) with {first['final_gap']:.1%}"
    )


def _comparable(method: str, problem: str) -> Callable[[pandas.DataFrame], tuple[bool, str]]:
    """A method without tuning is no worse than the median of the tuned ones."""

    def judge(records: pandas.DataFrame) -> tuple[bool, str]:
        table = _ends(records, problem)
        tuned = table[table["setting"] == grids.TUNED]["final_gap"]
        left, median = _left(table, method), float(np.median(tuned))
        return left <= median, (
            f"{left:.1%} of the way left on {problem}; the tuned methods' median is {median:.1%}, "
            f"their best {tuned.min():.1%}"
        )

    return judge


def _ends(records: pandas.DataFrame, problem: str) -> pandas.DataFrame:
    table = standings.table(records)
    table = table[(table["problem"] == problem) & (table["method"] != "auto")]
    return table.reset_index(drop=True)


def _left(table: pandas.DataFrame, method: str) -> float:
    return float(table[table["method"] == method]["final_gap"].min())


def _robust(records: pandas.DataFrame) -> tuple[bool, str]:
    """No start value diverges, and the median one makes nine tenths of the best one's way."""
    from untuned_paper.comparison import tuning

    ends = tuning.final(records)
    words, holds = [], True
    for (problem, method), group in ends[ends["method"].isin(OURS)].groupby(["problem", "method"]):
        scale = standings.scale(records, str(problem))
        values = group["value"].to_numpy()
        made = (scale.first - np.median(values)) / (scale.first - values.min())
        lost = int(np.isinf(values).sum())
        holds &= lost == 0 and made >= 0.9
        words.append(
            f"{OURS[str(method)]} on {problem}: {lost} of {len(values)} diverge, the median pair "
            f"makes {made:.0%} of the best one's way"
        )
    return holds, "; ".join(words)


def _bounds(checks: pandas.DataFrame) -> tuple[bool, str]:
    """Every inequality of the proofs holds at every step."""
    count = int(checks["holds"].sum())
    return count == len(checks), f"{count} of {len(checks)} inequalities hold at every step"


def _rates(slopes: pandas.DataFrame) -> tuple[bool, str]:
    """The average falls at least as fast as 1/T, to two digits."""
    found = slopes["in the last decade"]
    return bool((found <= -0.99).all()), f"slopes in T from {found.min():.2f} to {found.max():.2f}"


def _above(control: str, methods: dict[str, str]) -> Callable:
    """Memories are not below those of a control by more than a standard error."""

    def judge(runs: pandas.DataFrame) -> tuple[bool, str]:
        words, holds = [], True
        for setting in SETTINGS:
            own = runs[runs["setting"] == setting]
            a = own.pivot_table(index="seed", columns="method", values="A_T")
            for method, name in methods.items():
                gain = a[method] - a[control]
                error = gain.std() / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
                holds &= bool(gain.mean() >= -error)
                words.append(f"{name} {setting} {gain.mean():+.1f} ± {error:.1f}")
        return holds, "; ".join(words)

    return judge


def _first(method: str) -> Callable:
    """Memories are above those of every other selector by more than a standard error."""

    def judge(runs: pandas.DataFrame) -> tuple[bool, str]:
        words, holds = [], True
        for setting in SETTINGS:
            own = runs[runs["setting"] == setting]
            a = own.pivot_table(index="seed", columns="method", values="A_T")
            gains = a.drop(columns=method).rsub(a[method], axis=0)
            errors = (gains.std() / np.sqrt(len(gains))).fillna(0)  # none of one seed
            holds &= bool((gains.mean() > errors).all())
            nearest = gains.mean().idxmin()
            words.append(
                f"{setting} {gains[nearest].mean():+.1f} ± {errors[nearest]:.1f} over "
                f"the next, {title(str(nearest))}"
            )
        return holds, "; ".join(words)

    return judge


def _insensitive(runs: pandas.DataFrame) -> tuple[bool, str]:
    """Between 2 and 8, A_T changes by no more than BCSR's does in the paper."""
    printed = np.array(paper_values.TABLE_2["bcsr"])
    usual = paper_values.TABLE_1["bcsr"][0][0]
    most = abs(printed.mean() - usual) / usual
    words, holds = [], True
    for method, name in OURS.items():
        own = runs[runs["method"] == method]
        preset = own[own["start"].isna()]["A_T"].mean()
        near = own[own["start"].isin(paper_values.STARTS)]["A_T"].mean()
        change = abs(near - preset) / preset
        holds &= bool(change <= most)
        words.append(f"{name} {change:.1%}")
    return holds, f"{', '.join(words)}; the paper's figure for BCSR is {most:.1%}"


COMPARED, STREAMS = "comparison/records.parquet", "memory/table1-runs.parquet"
OWN_CRITERION = {f"{name}-prototypes": title for name, title in OURS.items()} | {"auto": "auto"}
CLAIMS = (
    Claim("D-TFBO is fastest on Covtype", COMPARED, "figure1", _fastest),
    Claim(
        "S-TFBO is comparable with tuned methods on Covtype", COMPARED, "figure1",
        _comparable("s-tfbo", "covtype"),
    ),
    Claim(
        "D-TFBO is comparable with tuned methods on MNIST cleaning", COMPARED, "figure1",
        _comparable("d-tfbo", "mnist-0.1"),
    ),
    Claim(
        "so is S-TFBO", COMPARED, "figure1", _comparable("s-tfbo", "mnist-0.1"),
    ),
    Claim("both are robust to start values", "comparison/tuning.parquet", "tuning", _robust),
    Claim(
        "the average of |grad Phi|^2 falls like 1/T", "theory/slopes.parquet", "theory", _rates
    ),
    Claim("the bounds of the proofs", "theory/checks.parquet", "theory", _bounds),
    Claim(
        "their memories are as good as uniform sampling or better", STREAMS, "table1",
        _above("uniform", OURS),
    ),
    Claim(
        "(not in the paper) better than uniform sampling of equal numbers per class", STREAMS,
        "table1", _above("uniform-per-class", OURS),
    ),
    Claim(
        "(not in the paper) with the criterion of prototypes they are, and so is auto", STREAMS,
        "table1", _above("uniform-per-class", OWN_CRITERION),
    ),
    Claim(
        "(not in the paper) auto's memories are better than those of every other selector",
        STREAMS, "table1", _first("auto"),
    ),
    Claim(
        "their accuracy hardly depends on start values from 2 to 8",
        "memory/table2-runs.parquet", "table2", _insensitive,
    ),
)  # fmt: skip
