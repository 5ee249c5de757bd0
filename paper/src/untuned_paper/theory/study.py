"""`untuned reproduce theory`: the paper's bounds beside what runs on known problems do.

Every number comes from steps of the library's own methods on `untuned_paper.theory.problems`, whose
constants, Phi and grad Phi are exact.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.solvers.dtfbo import DTFBO
from untuned.solvers.stfbo import STFBO
from untuned.theory import double_loop, single_loop
from untuned.theory.constants import l_phi
from untuned.util import folder
from untuned_paper.theory import checks, paper_formulas
from untuned_paper.theory.problems import PROBLEMS, KnownProblem, known
from untuned_paper.theory.trajectory import Trajectory, inner_loop, record

if TYPE_CHECKING:
    import pandas

# Remarks 1 and 2: any coefficients and start values will do; these differ from 1 both ways.
TUNED: dict[str, Any] = {
    "alpha0": 2.0,
    "beta0": 0.5,
    "gamma0": 3.0,
    "eta_x": 0.7,
    "eta_y": 1.3,
    "eta_v": 0.4,
}
CHECKED = {
    "D-TFBO": DTFBO(),
    "D-TFBO, Remark 1": DTFBO(**TUNED, c_y=0.2, c_v=3.0),
    "S-TFBO": STFBO(),
    "S-TFBO, Remark 2": STFBO(**TUNED),
}
RATES = ("gentle", "steep in x", "strong coupling")
SUB_LOOPS = ("gentle", "double stages", "far start")


class Findings(NamedTuple):
    """What was measured, one frame per question."""

    averages: pandas.DataFrame
    slopes: pandas.DataFrame
    checks: pandas.DataFrame
    stages: pandas.DataFrame
    thresholds: pandas.DataFrame
    sub_loops: pandas.DataFrame
    printed: pandas.DataFrame


def reproduce(out: Path, quick: bool, seed: int, max_seconds: float | None) -> str:
    """Measure, write Parquet, PNG and `report.html` into `out`, and sum up in words."""
    from untuned_paper.theory import pages

    found = measure(quick, seed, max_seconds)
    text = summary(found)
    with folder.added_whole(out) as target:
        for name, frame in found._asdict().items():
            frame.to_parquet(target / f"{name}.parquet")
        pages.write_pictures(target, found)
        pages.write_page(target / "report.html", found, text)
    return f"{text}\nwritten to {out}"


def measure(quick: bool, seed: int, max_seconds: float | None) -> Findings:
    """All measurements; `quick` checks three problems where the full form checks all."""
    import pandas

    deadline = time.perf_counter() + (max_seconds or float("inf"))
    powers = range(2, 5) if quick else range(2, 6)
    averages: list[dict[str, Any]] = []
    for name in RATES:
        if averages and time.perf_counter() > deadline:
            break
        averages += _averages(name, [10**power for power in powers], seed)
    rows: list[dict[str, Any]] = []
    for name in list(PROBLEMS)[: 3 if quick else None]:
        if rows and time.perf_counter() > deadline:
            break
        rows += _checks(name, 1000, seed)
    stages, thresholds = _stages(seed)
    frame = pandas.DataFrame(averages)
    sub_loops = [_sub_loops(name, T, seed) for name in SUB_LOOPS for T in (100, 1000)]
    return Findings(
        averages=frame,
        slopes=pandas.DataFrame(_slopes(frame, seed)),
        checks=pandas.DataFrame(rows),
        stages=pandas.DataFrame(stages),
        thresholds=pandas.DataFrame(thresholds),
        sub_loops=pandas.DataFrame(sub_loops),
        printed=pandas.DataFrame(_printed(seed)),
    )


@functools.lru_cache(maxsize=64)
def _run(name: str, seed: int, solver: Any, T: int) -> Trajectory:
    """A recorded run, made once however many questions it answers."""
    return record(known(name, seed), solver, T)


def _averages(name: str, steps: list[int], seed: int) -> Iterator[dict[str, Any]]:
    problem = known(name, seed)
    k = problem.constants()
    for T in steps:
        # S-TFBO does not know T, so one run has all of them; D-TFBO solves to 1 / T.
        for solver, length, bound in (
            (DTFBO(), T, double_loop.theorem_1(k, DTFBO(), T)),
            (STFBO(), steps[-1], single_loop.theorem_2(k, STFBO(), T)),
        ):
            run = _run(name, seed, solver, length)
            yield {
                "problem": name, "method": solver.name.upper(), "T": T,
                "average": checks.average_gradients(problem, run)[T - 1], "bound": bound,
                "evaluations": int(run.evaluations[:T].sum()),
            }  # fmt: skip


def _slopes(averages: pandas.DataFrame, seed: int) -> Iterator[dict[str, Any]]:
    """Least-squares slopes on logarithmic scales, measured and bounded."""
    for (name, method), rows in averages.groupby(["problem", "method"], sort=False):
        T, average, bound, evaluations = (
            np.log(rows[column].to_numpy(np.float64))
            for column in ("T", "average", "bound", "evaluations")
        )
        yield {
            "problem": name, "method": method,
            "average in T": _slope(T, average), "in the last decade": _slope(T[-2:], average[-2:]),
            "bound in T": _slope(T, bound), "evaluations in epsilon": _slope(average, evaluations),
            "promised evaluations in epsilon": _promised(str(name), str(method), seed),
        }  # fmt: skip


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else float("nan")


def _promised(name: str, method: str, seed: int) -> float:
    """The slope of the corollary's evaluations between epsilon = 1e-4 and 1e-8."""
    k = known(name, seed).constants()
    work = [
        double_loop.corollary_1(k, DTFBO(), epsilon).evaluations
        if method == "D-TFBO"
        else single_loop.corollary_2(k, STFBO(), epsilon).evaluations
        for epsilon in (1e-4, 1e-8)
    ]
    return float((np.log10(float(work[1])) - np.log10(float(work[0]))) / -4)


def _checks(name: str, T: int, seed: int) -> Iterator[dict[str, Any]]:
    problem = known(name, seed)
    for method, solver in CHECKED.items():
        run = _run(name, seed, solver, T)
        for check in _all_checks(problem, solver, run):
            yield {"problem": name, "method": method} | check._asdict()


def _all_checks(problem: KnownProblem, solver: Any, run: Trajectory) -> list[checks.Check]:
    if isinstance(solver, DTFBO):
        return checks.check_double_loop(problem, solver, run)
    return checks.check_single_loop(problem, solver, run)


def _stages(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Accumulators step by step, and where they cross their thresholds (Prop. 1)."""
    double, single, T = DTFBO(), STFBO(), 300
    problem = known("double stages", seed)
    c = double_loop.thresholds(problem.constants(), double)
    run = record(problem, double, T)
    betas = np.array(inner_loop(problem, double, T, run.x[0], run.y_before[0]))
    lines = {
        ("D-TFBO", "alpha over outer steps"): (run.alpha, c.alpha),
        ("D-TFBO", "beta over the first sub-loop"): (betas, c.beta),
    }
    problem = known("single stages", seed)
    s = single_loop.thresholds(problem.constants(), single)
    run = record(problem, single, T)
    for letter, values, threshold in (
        ("alpha", run.alpha, s.alpha), ("beta", run.beta, s.beta), ("gamma", run.gamma, s.gamma)
    ):  # fmt: skip
        lines["S-TFBO", letter] = (values, threshold)
    rows = [
        {"method": method, "accumulator": letter, "step": step, "value": float(value)}
        for (method, letter), (values, _) in lines.items()
        for step, value in enumerate(values)
    ]
    crossings = []
    for (method, letter), (values, threshold) in lines.items():
        step = checks.crossing(values, threshold)
        crossings.append(
            {
                "method": method, "accumulator": letter, "threshold": threshold,
                "is crossed": step is not None, "crossed after step": -1 if step is None else step,
            }
        )  # fmt: skip
    return rows, crossings


def _sub_loops(name: str, T: int, seed: int) -> dict[str, Any]:
    """The longest sub-loops beside P' and Q' (Prop. 2)."""
    k, solver = known(name, seed).constants(), DTFBO()
    run = _run(name, seed, solver, T)
    return {
        "problem": name, "T": T,
        "largest P_t": int(run.inner_steps.max()), "P'": double_loop.p_prime(k, solver, T),
        "largest Q_t": int(run.linear_steps.max()), "Q'": double_loop.q_prime(k, solver, T),
    }  # fmt: skip


def _printed(seed: int) -> Iterator[dict[str, Any]]:
    """Where correct runs exceed what is printed, beside what the proof supports."""
    for name, claim in (
        ("steep in x", "|h_t| <= C_f (oddity 1)"),
        ("weak coupling", "descent of Phi (oddity 2)"),
        ("strong coupling", "|grad Phi - h_t|^2 <= epsilon' (oddities 3 and 4)"),
        ("far start", "P_t <= P' (oddity 7)"),
    ):
        over_printed, over_supported = _shares(name, seed)[claim]
        yield {
            "claim": claim, "problem": name, "measured / printed": over_printed,
            "measured / supported": over_supported,
        }  # fmt: skip


def _shares(name: str, seed: int) -> dict[str, tuple[float, float]]:
    """Measured over printed and over supported, for four claims about one run of D-TFBO."""
    solver, T = DTFBO(), 1000
    problem, run = known(name, seed), _run(name, seed, solver, T)
    k, x, alpha = problem.constants(), run.x[:-1], run.alpha[1:]
    h, slope = problem.hypergradient(x, run.y, run.v), problem.grad_phi(x)
    squared = (h**2).sum(-1)
    error, most_h = ((slope - h) ** 2).sum(-1).max(), np.sqrt(squared.max())
    error_bound = double_loop.epsilon_prime(k, solver, T)
    P = int(run.inner_steps.max())

    def fall(curvature: float) -> float:
        kept = (slope**2).sum(-1) + (1 - curvature / alpha) * squared
        return float((2 * alpha * np.diff(problem.phi(run.x)) + kept).max())

    return {
        "|h_t| <= C_f (oddity 1)": (
            most_h / paper_formulas.c_f(k, solver, T), most_h / double_loop.c_f(k, solver, T)
        ),
        "descent of Phi (oddity 2)": (
            fall(l_phi(k) / 2) / error_bound, fall(l_phi(k)) / error_bound
        ),
        "|grad Phi - h_t|^2 <= epsilon' (oddities 3 and 4)": (
            error / paper_formulas.epsilon_prime(k, solver, T), error / error_bound
        ),
        "P_t <= P' (oddity 7)": (
            P / paper_formulas.p_prime(k, solver, T), P / double_loop.p_prime(k, solver, T)
        ),
    }  # fmt: skip


def summary(found: Findings) -> str:
    """The findings in words."""
    failing = found.checks[~found.checks["holds"]]
    lines = [
        f"{len(found.checks) - len(failing)} of {len(found.checks)} inequalities hold on every "
        f"step of their runs ({found.checks['problem'].nunique()} problems, both methods, with "
        "and without coefficients)."
    ]
    lines += [
        f"  FAILS: {row.claim} on {row.problem} by {row.method}: {row.worst:.3g} of the bound"
        for row in failing.itertuples()
    ]
    for method, rows in found.averages.groupby("method", sort=False):
        share = (rows["average"] / rows["bound"]).max()
        slopes = found.slopes[found.slopes["method"] == method]
        shown = ", ".join(f"{slope:.2f}" for slope in slopes["in the last decade"])
        calls = ", ".join(f"{slope:.2f}" for slope in slopes["evaluations in epsilon"])
        promised = ", ".join(f"{slope:.2f}" for slope in slopes["promised evaluations in epsilon"])
        lines.append(
            f"{method}: average |grad Phi|^2 at most {share:.1e} of its bound, slopes in the last "
            f"decade of T {shown}; evaluations in epsilon {calls} (promised {promised})."
        )
    exceeded = found.printed[found.printed["measured / printed"] > 1]
    lines.append(
        f"{len(exceeded)} of {len(found.printed)} printed claims are exceeded by correct "
        "runs, none in the form that the proofs support."
        if (found.printed["measured / supported"] <= 1).all()
        else "A supported claim is exceeded; see printed.parquet."
    )
    return "\n".join(lines)
