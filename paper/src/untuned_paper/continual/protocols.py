"""How a stream is learned: budgets, rates and what happens to memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from untuned.util.wording import unknown


@dataclass(frozen=True)
class Online:
    """Split CIFAR-100: fixed stream batches of which a few rows are trained on, replay beside them.

    Parameters
    ----------
    rate_decay : task t learns with 0.15 * rate_decay^(t - 1).
    replay : weight of the loss on replayed rows.
    divide_again : whether the mean loss of a replay batch is divided by its size once more, as the
        older code does; Table 1 may depend on it.
    """

    rate_decay: float = 0.9
    replay: float = 0.5
    divide_again: bool = False
    passes: int = 5
    batch: int = 50
    chosen: int = 10
    replay_batch: int = 10
    rate: float = 0.15
    momentum: float = 0.8
    memory: int = 100


@dataclass(frozen=True)
class Epochs:
    """Split MNIST: epochs over all rows of a task, the whole memory beside every batch."""

    epochs: int = 50
    batch: int = 256
    rate: float = 5e-4
    memory: int = 100


class Preset(NamedTuple):
    """What the paper says, or what the public code of BCSR does, on which the paper's builds."""

    online: Online
    rate: float  # both learning rates of BCSR
    start: float  # of all three accumulators of S-TFBO and D-TFBO
    per_row: bool  # whether `start` is in units of a mean over rows
    inner_steps: int  # of D-TFBO
    linear_steps: int
    per_class: tuple[str, ...]  # whose memories take equal numbers of each class


PRESETS = {
    "paper": Preset(Online(), 5.0, 5.0, False, 5, 3, ()),
    "published": Preset(
        Online(rate_decay=0.875, replay=0.1, divide_again=True), 10.0, 5.0, True, 1, 3,
        ("greedy-coreset", "bcsr", "s-tfbo", "d-tfbo"),
    ),
}  # fmt: skip


def preset(name: str) -> Preset:
    """A preset by name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


class Row(NamedTuple):
    """A row of Table 1: a selector and how it takes part in the stream."""

    title: str
    # What is trained on of a stream batch, from the second task on: "random" rows, "per class" an
    # equal number of each class at random, or the rows "chosen" by the selector.
    trains: str = "random"
    simplex: bool = False  # whether it gives weights of all rows
    selector: str | None = None  # its name in `untuned.coreset`, where the row has another
    per_class: bool = False  # whether memories take equal numbers of each class in every preset
    criterion: str = "loss"  # what a method on the simplex judges its weights by
    # Whether a memory keeps weights, by which its losses count in replay and its rows when older
    # tasks choose again; equal ones otherwise.
    weighted: bool = False


ROWS = {
    "k-means-features": Row("k-means features"),
    "k-means-embedding": Row("k-means embedding"),
    "uniform": Row("Uniform Sampling"),
    "uniform-per-class": Row("Uniform, per class", selector="uniform", per_class=True),
    "uniform-per-class-training": Row(
        "Uniform, per class, training too", "per class", selector="uniform", per_class=True
    ),
    "icarl": Row("iCaRL"),
    "grad-matching": Row("Grad Matching"),
    "gcr": Row("GCR", weighted=True),
    "greedy-coreset": Row("Greedy Coreset", trains="chosen"),
    "pbcs": Row("PBCS"),
    "bcsr": Row("BCSR", trains="chosen", simplex=True),
    "s-tfbo": Row("S-TFBO", trains="chosen", simplex=True),
    "d-tfbo": Row("D-TFBO", trains="chosen", simplex=True),
    "s-tfbo-prototypes": Row(
        "S-TFBO, prototypes", "chosen", True, "s-tfbo", criterion="prototypes"
    ),
    "d-tfbo-prototypes": Row(
        "D-TFBO, prototypes", "chosen", True, "d-tfbo", criterion="prototypes"
    ),
    "auto": Row("auto", trains="chosen"),
}


# A stream asks for thousands of choices; at its authors' budget each takes PBCS half a minute.
SMALL_BUDGET = {"pbcs": {"steps": 20, "masks": 3, "inner_steps": 50}}


def options(method: str, preset: Preset, proxy: str, start: float | None) -> dict[str, Any]:
    """What a selector of a row is given; `start` replaces the preset's own."""
    row = ROWS[method]
    if method in SMALL_BUDGET:
        return dict(SMALL_BUDGET[method])
    if not row.simplex:
        return {}
    if row.criterion != "loss":  # which no preset says anything of
        own = {} if start is None else {"start": start}
        return {"criterion": row.criterion} | own
    usual = preset.rate if method == "bcsr" else preset.start
    given: dict[str, Any] = {"proxy": proxy, "start": usual if start is None else start}
    if method != "bcsr":
        given["per_row"] = preset.per_row
    if method == "d-tfbo":
        given |= {"inner_steps": preset.inner_steps, "linear_steps": preset.linear_steps}
    return given
