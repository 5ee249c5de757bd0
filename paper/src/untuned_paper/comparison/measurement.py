"""One measured run of a method, for `untuned reproduce` and for the benchopt benchmark."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.problem.derivatives import Counts
from untuned.run import minimize
from untuned.run.result import Snapshot
from untuned_paper.comparison import grids
from untuned_paper.problems import registry
from untuned_paper.problems.registry import Experiment

if TYPE_CHECKING:
    import pandas

# Steps between records of a method whose step makes four evaluations; a method whose steps cost
# more is recorded after fewer, so that the points of all curves lie at about equal cost. The
# paper's periods, 2048 steps on Covtype and 512 on MNIST, are among their doublings.
EVALUATION_STEPS = 64
SHORT_EVALUATION_STEPS = {"covtype": 512, "covtype-classes": 512, "ijcnn1": 512}  # short steps
STEP_OF_FOUR = 4
LOOP_WITHOUT_COUNT = 10  # steps assumed for a loop that runs until it is solved
MOST_STEPS = 1_000_000_000  # the clock ends a run
DIVERGED = "diverged"


@lru_cache(maxsize=2)
def experiment(problem: str, rows: int | None) -> Experiment:
    """A problem, loaded once in a process, with at most `rows` rows in each data set."""
    whole = registry.get(problem)
    return whole if rows is None else whole.first_rows(rows)


class Point(NamedTuple):
    """Where a run is, and what it took to come there."""

    x: np.ndarray
    y: np.ndarray
    step: int
    seconds: float
    compile_seconds: float
    counts: Counts
    status: str


def start(experiment: Experiment) -> Point:
    """Before the first step."""
    return Point(experiment.x0, experiment.y0, 0, 0.0, 0.0, Counts(), "running")


def columns(experiment: Experiment, point: Point) -> dict[str, Any]:
    """What is recorded of a point: Phi first, which benchopt calls `value`; none if diverged."""
    none = {"value": np.nan, "validation_loss": np.nan, "validation_error": np.nan}
    losses = none | {"test_error": np.nan}
    if point.status != DIVERGED:
        losses = {"value": experiment.value(point.x, point.y)}
        losses |= experiment.metrics(point.x, point.y)
    spent = {"step": point.step, "seconds": point.seconds, "compile_seconds": point.compile_seconds}
    counts = point.counts._asdict()
    return losses | spent | counts | {"oracle_calls": sum(counts.values()), "status": point.status}


class Measured:
    """A run that tells of its points as it goes; `point` is always the newest."""

    def __init__(
        self,
        experiment: Experiment,
        method: str,
        setting: str,
        batch_size: int,
        max_seconds: float,
        seed: int,
    ):
        self.experiment, self.point = experiment, start(experiment)
        rows = len(experiment.inner_data.labels) + len(experiment.outer_data.labels)
        with warnings.catch_warnings():  # S-TFBO warns of the very start values a sweep asks for
            warnings.simplefilter("ignore", UserWarning)
            solver = grids.solver(method, setting, experiment.name, rows, batch_size)
        batches = None if setting == grids.ALL_ROWS else batch_size
        counts = (len(experiment.inner_data.labels), len(experiment.outer_data.labels))
        solver = solver.for_run(counts, (batches, batches), MOST_STEPS)  # a step's cost may change
        self.arguments = experiment.problem() | {
            "method": solver,
            "batch_size": batches,
            "max_steps": MOST_STEPS,
            "max_seconds": max_seconds,
            "seed": seed,
            "eval_every": evaluation_steps(experiment.name, solver),
        }

    def go(self, goes_on: Callable[[], bool]) -> None:
        """Run; `goes_on` is called at the start, at every record and at the end."""
        self.point = start(self.experiment)
        stopped = not goes_on()

        def report(snapshot: Snapshot) -> bool:
            nonlocal stopped
            counts = Counts(*(snapshot.record[name] for name in Counts._fields))
            self.point = Point(
                snapshot.x, snapshot.y, snapshot.step, snapshot.seconds,
                snapshot.compile_seconds, counts, "running",
            )  # fmt: skip
            stopped = not goes_on()
            return stopped

        if not stopped:
            result = minimize(**self.arguments, callback=report)
        if not stopped:
            x, y = (np.asarray(z) for z in (result.state.x, result.state.y))
            self.point = Point(
                x, y, result.steps, result.seconds, result.compile_seconds,
                Counts(**result.counts), result.status,
            )  # fmt: skip
            goes_on()


def measured(
    experiment: Experiment, method: str, setting: str, batch_size: int, max_seconds: float,
    seed: int, curve: bool,
) -> pandas.DataFrame:  # fmt: skip
    """The record of a run, evaluated at records 0, 1, 2, 4, 8, ... and at the end.

    Phi costs a second or two on real data, so not every record is evaluated; where no `curve` is
    wanted, only the first and the last are.
    """
    import pandas

    run = Measured(experiment, method, setting, batch_size, max_seconds, seed)
    lines: list[dict[str, Any]] = []
    passed = due = 0

    def goes_on() -> bool:
        nonlocal passed, due
        if passed == due or run.point.status != "running":
            lines.append(columns(experiment, run.point))
            due = max(1, 2 * passed) if curve else -1
        passed += 1
        return True

    run.go(goes_on)
    return pandas.DataFrame(lines)


def evaluation_steps(problem: str, solver: Any) -> int:
    """Steps between two records of a method on a problem."""
    steps = SHORT_EVALUATION_STEPS.get(problem, EVALUATION_STEPS)
    if solver.name == "auto" and not solver.stochastic:
        return 1  # its steps are few and costly
    cost = sum(LOOP_WITHOUT_COUNT if count is None else count for count in solver.cost)
    return max(1, round(steps * STEP_OF_FOUR / cost))
