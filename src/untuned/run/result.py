"""What a run gives back: the result, its history, and why it ended."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from untuned.ops import Tree

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Status = Literal[
    "converged", "max_steps", "max_seconds", "callback", "stalled", "diverged", "cap_hit",
    "interrupted",
]  # fmt: skip
STATUSES: tuple[Status, ...] = get_args(Status)

# One column per name; whole numbers where the name is in WHOLE.
COLUMNS = (
    "step", "seconds", "outer", "inner_grad_norm", "residual_norm", "hypergrad_norm",
    "step_x", "step_y", "step_v", "inner_steps", "linear_steps", "cap_hits",
    "indefinite",
    "outer_grad", "inner_grad", "hvp", "cross",
)  # fmt: skip
WHOLE = frozenset(COLUMNS) - {
    "seconds", "outer", "inner_grad_norm", "residual_norm", "hypergrad_norm",
    "step_x", "step_y", "step_v",
}  # fmt: skip


# A run of any length has a bounded history: past so many records every second one is dropped.
MOST_RECORDS = 2**14  # 2 MB: less than a hundredth of what a process with an array library holds


class History(Mapping[str, np.ndarray]):
    """The records of a run: a mapping of equally long NumPy arrays.

    A record is made every `eval_every` steps and at the end. Its values are those of the last
    step before it; counts (`outer_grad`, `inner_grad`, `hvp`, `cross`), `cap_hits` (the steps in
    which a sub-loop ended at its cap) and `indefinite` (those in which g was seen not to be convex
    in y) are totals so far.

    At 16,384 records every second one is dropped and their spacing doubles, as often as it takes;
    `spacing` is the number of steps between those kept.
    """

    def __init__(self, columns: Mapping[str, Any] | None = None, spacing: int = 1):
        columns = columns or {}
        self._columns = {
            name: array("q" if name in WHOLE else "d", columns.get(name, ())) for name in COLUMNS
        }
        self.spacing = spacing
        self._last_is_extra = False

    def __getstate__(self) -> dict[str, Any]:
        """With NumPy's arrays, since skops knows no others."""
        return vars(self) | {"_columns": dict(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_columns"], state["spacing"])  # type: ignore[misc]
        self._last_is_extra = state["_last_is_extra"]

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record, which must have every column.

        The newest is always there; one between two that are kept goes when the next one comes.
        """
        for name, values in self._columns.items():
            if self._last_is_extra:
                values.pop()
            values.append(record[name])
        if self.records > MOST_RECORDS:
            self._thin_out()
        self._last_is_extra = bool(record["step"] % self.spacing)

    def _thin_out(self) -> None:
        self.spacing *= 2
        steps = self["step"]
        kept = steps % self.spacing == 0
        kept[-1] = True
        for name, values in self._columns.items():
            thinner = array(values.typecode)
            thinner.frombytes(self[name][kept].tobytes())
            self._columns[name] = thinner

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._columns[name], np.int64 if name in WHOLE else np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self._columns["step"])

    def last(self) -> dict[str, Any]:
        """The newest record, as a dict."""
        return {name: values[-1] for name, values in self._columns.items()}

    def to_frame(self) -> pandas.DataFrame:
        """The history as a pandas DataFrame, one row per record."""
        import pandas

        return pandas.DataFrame(dict(self))

    def __repr__(self) -> str:
        return f"History({self.records} records of {', '.join(COLUMNS)})"


class Snapshot(NamedTuple):
    """What a callback sees between two chunks of steps."""

    step: int
    seconds: float
    x: Tree
    y: Tree
    v: Tree
    record: dict[str, Any]
    state: Any
    compile_seconds: float


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of `untuned.minimize`.

    Attributes
    ----------
    x, y, v : the best point by the method's own measure where the last one is worse or not
        finite, else the last one. With minibatches the measure of most methods is that of one
        batch, so the last point is kept unless the run diverged; `auto` measures a mean over many.
    status : one of converged, max_steps, max_seconds, callback, stalled, diverged, cap_hit, or
        interrupted, where Ctrl-C was pressed once.
    message : a sentence that says what happened and what to try.
    success : True only where the run converged to the tolerance asked for.
    steps, seconds, compile_seconds : work done; `seconds` are the method's own, without
        compilation, callbacks, and looking at g at every record.
    counts : how often each oracle was evaluated.
    history : the records, see `History`.
    state : the method's last state, whatever it is.
    """

    x: Tree
    y: Tree
    v: Tree
    status: Status
    message: str
    steps: int
    seconds: float
    compile_seconds: float
    counts: dict[str, int]
    history: History
    state: Any

    @property
    def success(self) -> bool:
        return self.status == "converged"

    def plot(self) -> Figure:
        """Loss, norms and step sizes against steps, as a matplotlib figure."""
        from untuned.run import plotting

        return plotting.run_figure(self.history, self.status)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={count}" for name, count in self.counts.items())
        return (
            f"Result(status={self.status!r}, steps={self.steps}, seconds={self.seconds:.3g}, "
            f"{counts})\n{self.message}"
        )
