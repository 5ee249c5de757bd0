"""What the host makes for the steps to come: row indices and random numbers, drawn ahead."""

from __future__ import annotations

from typing import Any

import numpy as np

from untuned.data.batches import Cut, Feed
from untuned.data.disk.windows import Window, Windows
from untuned.data.streams import INDEX, Halves, Stream, alike_halves, blocks, uniforms
from untuned.ops import Tree
from untuned.problem.build import Problem
from untuned.run.steps import LONGEST_CHUNK
from untuned.solvers.base import Solver


class Feeder:
    """The feeds of a run, by the step and the number of batches drawn before it."""

    def __init__(self, problem: Problem, solver: Solver, seed: int, eval_every: int):
        self.problem, self.ops = problem, problem.ops
        self.like = problem.ops.flatten(problem.y0)[0][0]
        self.draws = (solver.inner_draws, solver.outer_draws)
        self.seed = seed
        self.needs_uniform = solver.needs_uniform
        self.streams: list[Stream | Halves | None] = []
        self.tables: list[Any] = []  # of the blocks of each side, for methods that need them
        for side, (size, rows) in enumerate(zip(problem.batch_sizes, problem.rows, strict=True)):
            table = None
            if size is not None and solver.needs_blocks:
                table = self.ops.asarray(blocks(rows, size, seed, side), self.like)
                rows, size = table.shape[0], 1  # a stream of block numbers
            self.streams.append(None if size is None else Stream(rows, size, seed, side))
            self.tables.append(table)
        if solver.halves and problem.batch_sizes[1] is not None and problem.on_disk[1] is None:
            self.streams[1] = Halves(self._halves(), problem.batch_sizes[1], seed)
        # Steps a feed lasts for; its shape is compiled in, so it never changes.
        self.longest = max(1, min(eval_every, LONGEST_CHUNK // max(self.draws)))
        self._ahead: tuple[tuple[int, tuple[int, int]], Feed] | None = None
        self.windows = [self._windows(side) for side in (0, 1)]
        self._current: list[Window | None] = [None, None]

    def _halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the outer side in two halves; by number where processes share them."""
        if self.problem.grouped:
            return alike_halves([np.arange(self.problem.rows[1])])
        leaves = self.ops.flatten(self.problem.data.outer)[0]
        return alike_halves([self.ops.to_numpy(leaf) for leaf in leaves])

    def _windows(self, side: int) -> Windows | None:
        source, size = self.problem.on_disk[side], self.problem.batch_sizes[side]
        if source is None or size is None:
            return None
        self.streams[side] = None
        return Windows(source, size, self.draws[side], self.seed, side, self.problem.dtype)

    def room(self, drawn: tuple[int, int]) -> int:
        """The steps that the rows at hand are enough for."""
        left = [self.longest]
        for side in (0, 1):
            self._rows(side, drawn[side])
            if (window := self._current[side]) is not None:
                left.append((window.first + window.batches - drawn[side]) // self.draws[side])
        return min(left)

    def _is_inside(self, side: int, first: int) -> bool:
        """Whether the window at hand has the batches of a step from `first` on."""
        window = self._current[side]
        if window is None:
            return False
        return window.first <= first <= window.first + window.batches - self.draws[side]

    def _rows(self, side: int, first: int) -> Tree:
        """The rows of a window with the batch `first`; None for a side that is in memory."""
        windows = self.windows[side]
        if windows is None:
            return None
        if not self._is_inside(side, first):
            self._current[side] = None  # freed before the next one is read
            window = windows.window(first)
            put = self.ops.tree_map(
                lambda leaf: self.ops.without_copy(leaf, self.like), window.rows
            )
            self._current[side] = window._replace(rows=put)
        current = self._current[side]
        return None if current is None else current.rows

    def close(self) -> None:
        """End what reads ahead."""
        for windows in self.windows:
            if windows is not None:
                windows.close()

    def make(self, step: int, drawn: tuple[int, int], steps: int) -> Feed:
        """What `steps` steps from here draw, at most."""
        read = [self._rows(side, drawn[side]) for side in (0, 1)]
        inner, outer = (self._side(side, drawn[side], steps) for side in (0, 1))
        numbers = None
        if self.needs_uniform:
            numbers = self.ops.asarray(uniforms(self.seed, step, steps), self.like)
        return Feed(inner, outer, numbers, *read)

    def _side(self, side: int, first: int, steps: int) -> Any:
        stream, table = self.streams[side], self.tables[side]
        windows, window = self.windows[side], self._current[side]
        if windows is not None and window is not None:
            size, wanted = windows.batch_size, steps * self.draws[side]
            start = (first - window.first) * size
            numbers = window.order[start : start + wanted * size]
            # Entries past the end of the window belong to steps that `room` forbids.
            padded = np.zeros(wanted * size, INDEX)
            padded[: len(numbers)] = numbers
            return self.ops.asarray(padded.reshape(wanted, size), self.like)
        if stream is None:
            return None
        indices = self.ops.asarray(stream.batches(first, steps * self.draws[side]), self.like)
        return indices if table is None else Cut(table, indices[:, 0])

    def take(self, step: int, drawn: tuple[int, int]) -> Feed:
        """The feed from here, which may have been drawn ahead."""
        if self._ahead and self._ahead[0] == (step, drawn):
            return self._ahead[1]
        return self.make(step, drawn, self.longest)

    def draw_ahead(self, step: int, drawn: tuple[int, int], count: int) -> None:
        """Draw what follows `count` steps, if these use all they may, while the device works."""
        if any(windows is not None for windows in self.windows):
            return  # rows are read ahead, and their numbers are no work
        if self.needs_uniform:
            return  # such a method uses as many batches as its random numbers say
        place = (
            step + count,
            (drawn[0] + count * self.draws[0], drawn[1] + count * self.draws[1]),
        )
        self._ahead = (place, self.make(*place, self.longest))
