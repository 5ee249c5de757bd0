"""Learning a stream of tasks with a selector: training, replay, memory, accuracies.

Where the older code is wrong, this is not (docs/continual.md): old memories shrink under their own
task's mask, dropout is off while rows are chosen, and a replay loss is a mean, divided once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from untuned.coreset.baselines import in_turns
from untuned.coreset.selectors.candidates import ROWS_PER_PASS, evaluating
from untuned.coreset.selectors.registry import checked, select_among
from untuned.util.wording import unknown
from untuned_paper.continual import networks
from untuned_paper.continual.memory import Part, ReplayMemory
from untuned_paper.continual.protocols import ROWS, Epochs, Online
from untuned_paper.continual.streams import Stream, Task


class Outcome(NamedTuple):
    """Accuracies a[t, i] on task i after task t (NaN before it was met), and what choosing took.

    `spread` has a row (entropy / log n, least n lambda, most n lambda) for every task of a
    selector on the simplex: how far its weights are from uniform.
    """

    accuracy: np.ndarray
    seconds: float
    select_seconds: float
    spread: np.ndarray


def learn(
    stream: Stream, method: str, protocol: Online | Epochs, seed: int,
    options: dict[str, Any] | None = None, tell: Callable[[int], Any] | None = None,
    balance: str | None = None,
) -> Outcome:  # fmt: skip
    """Learn all tasks; apart from the selector, randomness depends on the seed alone.

    `balance="class"` takes equal numbers of each class into a memory, in the selector's order.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _Learner(stream, method, protocol, seed, options or {}, balance).run(tell)


class _Learner:
    """The mutable side: the network, the memory, and the clock of selections."""

    def __init__(
        self, stream: Stream, method: str, protocol: Any, seed: int, options: dict[str, Any],
        balance: str | None,
    ):  # fmt: skip
        self.stream, self.protocol, self.options = stream, protocol, options
        if method not in ROWS:
            raise unknown("selector", method, ROWS)
        self.row = ROWS[method]
        self.method = self.row.selector or method
        self.balance = "class" if self.row.per_class else balance
        self.online = isinstance(protocol, Online)
        inputs = stream.tasks[0].X.shape[1:]
        if len(inputs) == 3:  # images; convolutions on a CPU are quicker with channels last
            network: Any = networks.SmallResNet(stream.outputs, inputs[0])
            self.model = network.to(memory_format=torch.channels_last)
        else:
            self.model = networks.mlp(int(np.prod(inputs)), stream.outputs)
        self.memory = ReplayMemory(protocol.memory, reselect=self.online or self.row.weighted)
        self.order, self.rng = (np.random.default_rng([seed, side]) for side in (1, 2))
        self.select_seconds = 0.0
        self.spread: list[tuple[float, float, float]] = []

    def run(self, tell: Callable[[int], Any] | None) -> Outcome:
        count = len(self.stream.tasks)
        accuracy = np.full((count, count), np.nan)
        start = time.perf_counter()
        for number, task in enumerate(self.stream.tasks):
            train = self._online if self.online else self._epochs
            candidates = train(number, task)
            self.memory.add(task.X[candidates], task.y[candidates], self._remember)
            for before in range(number + 1):
                accuracy[number, before] = self._accuracy(before)
            if tell:
                tell(number)
        spread = np.array(self.spread).reshape(-1, 3)
        return Outcome(accuracy, time.perf_counter() - start, self.select_seconds, spread)

    def _epochs(self, number: int, task: Task) -> np.ndarray:
        """Passes over all rows, the whole memory beside each batch; every row is a candidate."""
        p = self.protocol
        optimizer = torch.optim.Adam(self.model.parameters(), p.rate)
        X, y = torch.tensor(task.X), self._places(number, task.y)
        old = [self._kept(k, part) for k, part in enumerate(self.memory.parts)]
        for _ in range(p.epochs):
            order = torch.tensor(self.order.permutation(len(y)))
            for rows in order.split(p.batch):
                loss = self._loss(number, X[rows], y[rows])
                if old:
                    loss = loss + self._loss_on_memory(old)
                _step(optimizer, loss)
        return np.arange(len(y))

    def _loss_on_memory(self, old: list[tuple[Any, Any, Any]]) -> Any:
        """The mean over the whole memory; one pass where all tasks share their columns."""
        if not self.stream.masked:
            return self._loss(0, *(torch.cat([part[k] for part in old]) for k in range(3)))
        rows = sum(len(y) for _, y, _ in old)
        return sum(self._loss(k, *part) * (len(part[1]) / rows) for k, part in enumerate(old))

    def _online(self, number: int, task: Task) -> np.ndarray:
        """Passes over fixed batches, training on a few rows of each; those of the last pass are
        candidates."""
        p = self.protocol
        optimizer = torch.optim.SGD(
            self.model.parameters(), p.rate * p.rate_decay**number, momentum=p.momentum
        )
        order = self.order.permutation(len(task.y))
        batches = [order[start : start + p.batch] for start in range(0, len(order), p.batch)]
        picked: list[np.ndarray] = []
        for turn in range(p.passes):
            last = turn == p.passes - 1
            picked, replay = [], self._replay()
            for batch in batches:
                size = min(p.chosen, len(batch))
                shuffled = self.order.permutation(batch)
                trained = shuffled[:size]
                trains = self.row.trains if number > 0 else "random"
                if trains == "per class":
                    of_class = [shuffled[task.y[shuffled] == label] for label in task.classes]
                    trained = in_turns(of_class, size)
                chosen = trained
                if last or (trains == "chosen" and turn > 0):
                    rows, _, _ = self._choose(number, task.X[batch], task.y[batch], size)
                    chosen = batch[rows]
                    trained = chosen if trains == "chosen" else trained
                loss = self._loss(number, *self._tensors(number, task.X[trained], task.y[trained]))
                if replay is not None:
                    task_of, X, y, weights = next(replay)
                    divisor = len(y) if p.divide_again else 1
                    loss = loss + p.replay / divisor * self._loss(task_of, X, y, weights)
                _step(optimizer, loss)
                picked.append(chosen)
        return np.concatenate(picked)

    def _replay(self) -> Iterator[tuple[int, Any, Any, Any]] | None:
        """Batches of one task each, in a new order for this pass, over and over."""
        batches = []
        for number, part in enumerate(self.memory.parts):
            size = self.protocol.replay_batch
            pieces = zip(*(each.split(size) for each in self._kept(number, part)), strict=True)
            batches += [(number, *piece) for piece in pieces]
        order = self.order.permutation(len(batches))
        return cycle([batches[k] for k in order]) if batches else None

    def _choose(
        self, number: int, X: np.ndarray, y: np.ndarray, size: int, weights: Any = None,
        balance: str | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:  # fmt: skip
        """Rows, their weights, and the lambda they were drawn by, if any."""
        start = time.perf_counter()
        columns = self.stream.columns(number)
        candidates = checked(self.model, X, y, columns, False, weights, self.rng)
        chosen, drawn_by = select_among(candidates, size, self.method, balance, self.options)
        self.select_seconds += time.perf_counter() - start
        return chosen.indices, chosen.weights, drawn_by

    def _remember(self, number: int, part: Part, size: int) -> tuple[np.ndarray, np.ndarray]:
        counted = part.weights if self.row.weighted else None
        rows, weights, drawn_by = self._choose(number, part.X, part.y, size, counted, self.balance)
        is_new = number == len(self.memory.parts)
        if drawn_by is not None and is_new:
            self._measure_spread(drawn_by)
        return rows, weights if self.row.weighted else np.ones(size)

    def _measure_spread(self, weights: np.ndarray) -> None:
        n, positive = len(weights), weights[weights > 0]
        entropy = -float(positive @ np.log(positive)) / np.log(n) if n > 1 else 1.0
        self.spread.append((entropy, n * weights.min(), n * weights.max()))

    def _accuracy(self, number: int) -> float:
        task, columns = self.stream.tasks[number], torch.tensor(self.stream.columns(number))
        X, y = self._tensors(number, task.X_test, task.y_test)
        order = torch.tensor(np.random.default_rng(number).permutation(len(y)))
        # Only a network that normalises by its batch needs small ones.
        rows = ROWS_PER_PASS if X.ndim == 4 else len(y)
        with evaluating(self.model), torch.no_grad():
            hits = [
                (self.model(X[part])[:, columns].argmax(1) == y[part]).sum().item()
                for part in order.split(rows)
            ]
        return sum(hits) / len(y)

    def _loss(self, number: int, X: Any, y: Any, weights: Any = None) -> Any:
        logits = self.model(X)[:, torch.tensor(self.stream.columns(number))]
        if weights is None or not self.row.weighted:
            return functional.cross_entropy(logits, y)
        return (weights * functional.cross_entropy(logits, y, reduction="none")).mean()

    def _kept(self, number: int, part: Part) -> tuple[Any, Any, Any]:
        weights = torch.tensor(part.weights, dtype=torch.float32)
        return *self._tensors(number, part.X, part.y), weights

    def _tensors(self, number: int, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        return torch.tensor(X), self._places(number, y)

    def _places(self, number: int, y: np.ndarray) -> Any:
        """Labels as places among the columns that compete; columns are sorted."""
        return torch.tensor(np.searchsorted(self.stream.columns(number), y))


def _step(optimizer: Any, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
