"""The runs behind Tables 1 and 2: which, and how one is made."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from untuned.util.wording import brief, unknown
from untuned_paper.continual import protocols, streams
from untuned_paper.continual.protocols import ROWS

if TYPE_CHECKING:
    import pandas

SETTINGS = ("balanced", "imbalanced")


class StreamRun(NamedTuple):
    """One pass over a stream with one selector; `start` None for the preset's own."""

    problem: str
    method: str
    setting: str
    seed: int
    tasks: int | None
    preset: str
    proxy: str
    start: float | None

    @property
    def computed_by(self) -> tuple[str, ...]:
        """The packages whose versions a record depends on."""
        return ("untuned", "torch", "numpy")


class StreamPlan(NamedTuple):
    """What all runs of a table share."""

    problem: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    tasks: int | None
    preset: str
    proxy: str

    def run(self, method: str, setting: str, seed: int, start: float | None = None) -> StreamRun:
        """One of its runs."""
        return StreamRun(
            self.problem, method, setting, seed, self.tasks, self.preset, self.proxy, start
        )

    @property
    def words(self) -> str:
        """What is run, for a reader."""
        tasks = "all tasks" if self.tasks is None else f"the first {self.tasks} tasks"
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}"
        return f"{self.problem}, {tasks}, {seeds}, {self.proxy} proxy, preset '{self.preset}'."


def plan(
    quick: bool, seed: int, max_seconds: float | None, method: list[str] | None, full: bool,
    tasks: int | None, seeds: int, preset: str, known: tuple[str, ...],
) -> StreamPlan:  # fmt: skip
    """A plan from what the user asked for; names and numbers are checked before anything runs."""
    # Split MNIST trains on every row, so a row that differs in that alone would be another's copy.
    methods = tuple(
        method or (name for name in known if not (quick and ROWS[name].trains == "per class"))
    )
    for name in methods:
        if name not in known:
            raise unknown("selector of this table", name, known)
    protocols.preset(preset)
    if max_seconds is not None:
        raise ValueError(
            "The tables take no --max-seconds, since a stream is learned to its end; leave it out, "
            "or give --tasks."
        )
    if quick and full:
        raise ValueError("--quick and --full exclude each other; give one of them.")
    if seeds < 1:
        raise ValueError(f"--seeds {brief(seeds)} is not usable; expected a number from 1 up.")
    problem = "split-mnist" if quick else "split-cifar100"
    streams.check_tasks(problem, tasks)
    proxy = "full" if full else "head"
    return StreamPlan(problem, methods, tuple(range(seed, seed + seeds)), tasks, preset, proxy)


def make(run: StreamRun) -> pandas.DataFrame:
    """Learn the stream of a run: one row per accuracy, what it took beside it."""
    import numpy as np
    import pandas
    import torch

    from untuned_paper.continual.learner import learn

    torch.set_num_threads(1)  # a worker has one core
    chosen = protocols.preset(run.preset)
    stream = streams.get(run.problem, run.setting == "imbalanced", run.seed, run.tasks)
    protocol: Any = chosen.online if stream.masked else protocols.Epochs()
    options = protocols.options(run.method, chosen, run.proxy, run.start)
    with warnings.catch_warnings():
        # Table 2 asks for start values below those of the theory on purpose.
        warnings.filterwarnings("ignore", message="STFBO was given alpha0")
        balance = "class" if run.method in chosen.per_class else None
        outcome = learn(stream, run.method, protocol, run.seed, options, balance=balance)
    after, task = np.tril_indices(len(stream.tasks))
    entropy, least, most = (
        outcome.spread.mean(axis=0) if len(outcome.spread) else (np.nan, np.nan, np.nan)
    )
    return pandas.DataFrame(
        {
            "after": after,
            "task": task,
            "accuracy": outcome.accuracy[after, task],
            "seconds": outcome.seconds,
            "select_seconds": outcome.select_seconds,
            "entropy": entropy,
            "least": least,
            "most": most,
        }
    )


def scored(frame: pandas.DataFrame) -> pandas.DataFrame:
    """One row per run: A_T in percent, the three forms of FGT_T, seconds, spread of the weights."""
    import numpy as np
    import pandas

    from untuned_paper.continual import scores

    rows = []
    keys = ["setting", "method", "start", "seed"]
    for key, run in frame.groupby(keys, dropna=False, sort=False):
        count = int(run["after"].max()) + 1
        a = np.full((count, count), np.nan)
        a[run["after"], run["task"]] = run["accuracy"]
        rows.append(
            dict(zip(keys, key, strict=True))
            | {
                "A_T": 100 * scores.average_accuracy(a),
                "FGT_T": scores.forgetting(a),
                "FGT_T up to the last": scores.forgetting_up_to_last(a),
                "FGT_T as written": scores.forgetting_as_written(a),
            }
            | run[["seconds", "select_seconds", "entropy", "least", "most"]].iloc[0].to_dict()
        )
    return pandas.DataFrame(rows)


def title(method: str) -> str:
    """What the paper calls a selector."""
    return ROWS[method].title
