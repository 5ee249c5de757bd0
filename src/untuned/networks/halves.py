"""Two halves of the trusted rows, where the user gives one function for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch

from untuned.networks import together
from untuned.networks.shares import Shares

# Multipliers that scatter the bits of whole numbers, 2^64 over the golden ratio among them.
FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47
NO_ROWS = -1  # the kind of a row that stands for "these rows cannot be told apart"


class Call(NamedTuple):
    """What a model was given, and what it made of it."""

    given: list[torch.Tensor]
    made: list[torch.Tensor]


@contextmanager
def calls_of(model: torch.nn.Module) -> Iterator[list[Call]]:
    """Inside, calls of the model that gradients go through are written down."""
    calls: list[Call] = []

    def note(_: Any, positional: Any, named: Any, result: Any) -> None:
        made = [part for part in _tensors(result) if part.requires_grad]
        if made:
            calls.append(Call(_tensors((positional, named)), made))

    handle = together.inside(model).register_forward_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


class Halves:
    """Which half each trusted row belongs to.

    A row is known by the numbers that the model is given for it. Rows are dealt to the halves when
    they are first seen, in turn within their kind: the output that the loss would have larger,
    which is the label where the loss is a cross-entropy. The only row of its kind is in both
    halves, since halves that lack each other's classes would contradict each other.

    The trusted loss is taken for a mean over rows. Its gradient on one half is then what comes
    through the outputs of that half's rows, times how many more rows there are in all, and times
    what a row of its class counts (`untuned.networks.shares`).
    """

    def __init__(self, limit: int):
        self._limit = limit  # rows that are remembered; later ones are dealt by their numbers
        self._rows: dict[int, tuple[int, int]] = {}  # its kind and its half
        self._counts: dict[int, list[int]] = {}  # rows of a kind in each half, and
        self._sizes = [0, 0]  # of all kinds

    def choose(
        self, loss: torch.Tensor, calls: list[Call], turn: int, group: Any, shares: Shares
    ) -> tuple[int, float]:
        """Which half this loss is to teach, and what share of the rows is of it.

        That is the half whose turn it is, if it has rows. From then on the gradient of the loss is
        that on this half. Where rows cannot be told apart, all of the loss counts for half 0.
        """
        outputs = _outputs(calls)
        columns = _described(loss, calls, outputs)
        everyone = together.gathered(columns, group).tolist()
        if any(kind == NO_ROWS for _, kind in everyone):
            return 0, 1.0
        for name, kind in everyone:
            self._deal(name, kind)
        sizes = [sum(self._has(half, *row) for row in everyone) for half in (0, 1)]
        half = turn if sizes[turn] else 1 - turn
        worth = shares.worth(*self._numbers(half))
        own = [self._has(half, *row) * worth.get(self._kind(*row), 1.0) for row in columns.tolist()]
        share = columns.new_tensor(own, dtype=torch.float32) * (len(everyone) / sizes[half])
        for output in outputs:
            shape = (-1,) + (1,) * (output.ndim - 1)
            output.register_hook(lambda slope, shape=shape: slope * share.to(slope).reshape(shape))
        return half, sizes[half] / len(everyone)

    def _deal(self, name: int, kind: int) -> None:
        if name in self._rows or len(self._rows) >= self._limit:
            return
        counts = self._counts.get(kind, (0, 0))
        self._put(name, kind, min((0, 1), key=lambda half: (counts[half], self._sizes[half])))

    def _put(self, name: int, kind: int, half: int) -> None:
        self._rows[name] = (kind, half)
        self._counts.setdefault(kind, [0, 0])[half] += 1
        self._sizes[half] += 1

    def _has(self, half: int, name: int, kind: int) -> bool:
        if name not in self._rows:
            return (name < 0) == bool(half)
        kind, own = self._rows[name]
        return own == half or sum(self._counts[kind]) == 1

    def _kind(self, name: int, kind: int) -> int:
        return self._rows[name][0] if name in self._rows else kind

    def _numbers(self, half: int) -> tuple[dict[int, int], dict[int, int]]:
        """How many rows there are of each kind, in all and in a half."""
        every = {kind: sum(counts) for kind, counts in self._counts.items()}
        own = {kind: counts[half] or every[kind] for kind, counts in self._counts.items()}
        return every, own

    def state_dict(self) -> dict[str, Any]:
        rows = [(name, *row) for name, row in self._rows.items()]
        return {"rows": torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rows, self._counts, self._sizes = {}, {}, [0, 0]
        for row in state["rows"].tolist():
            self._put(*row)


def _tensors(nested: Any) -> list[torch.Tensor]:
    """The tensors with rows that are anywhere inside."""
    if isinstance(nested, torch.Tensor):
        return [nested] if nested.ndim else []
    if is_dataclass(nested) and not isinstance(nested, type):
        nested = vars(nested)
    if isinstance(nested, Mapping):
        nested = tuple(nested.values())
    if isinstance(nested, tuple | list):
        return [tensor for part in nested for tensor in _tensors(part)]
    return []


def _outputs(calls: list[Call]) -> list[torch.Tensor]:
    """What the model made, a row for each trusted row; nothing unless it was called once."""
    if len(calls) != 1:
        return []
    made = calls[0].made
    return [part for part in made if len(part) == len(made[0])]


def _described(loss: torch.Tensor, calls: list[Call], outputs: list[torch.Tensor]) -> torch.Tensor:
    """Two numbers for each trusted row, its name and its kind."""
    nothing = torch.tensor([[0, NO_ROWS]], device=loss.device)
    if not outputs or not loss.requires_grad:
        return nothing
    count = len(outputs[0])
    given = [part for part in calls[0].given if len(part) == count]
    slopes = torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True)
    slope = next((part for part in slopes if part is not None), None)
    if not count or not given or slope is None:
        return nothing
    names = sum((SECOND * _name(part) for part in given[1:]), _name(given[0]))
    return torch.stack([names, _kind(slope)], dim=1)


def _name(rows: torch.Tensor) -> torch.Tensor:
    """A whole number for each row, made of all of its bits, so that hardly two rows share one."""
    rows = rows.detach().reshape(len(rows), -1).contiguous()
    if rows.is_complex():
        rows = torch.view_as_real(rows).reshape(len(rows), -1)
    if rows.is_floating_point():
        whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        rows = rows.view(whole[rows.element_size()])
    factors = torch.arange(1, 1 + rows.shape[1], device=rows.device) * FIRST
    factors = (factors ^ (factors >> 30)) * SECOND
    factors = (factors ^ (factors >> 27)) | 1
    return (rows.to(torch.int64) * factors).sum(1)


def _kind(slope: torch.Tensor) -> torch.Tensor:
    """The output that the loss would have larger; whether there is one, where there is but one."""
    if slope.ndim > 2:  # of a sequence, or a picture: no one label
        return torch.zeros(len(slope), dtype=torch.int64, device=slope.device)
    slope = slope.reshape(len(slope), -1)
    return slope.argmin(1) if slope.shape[1] > 1 else (slope[:, 0] < 0).to(torch.int64)
