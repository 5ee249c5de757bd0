"""What the host makes for the steps to come: row indices and random numbers, drawn ahead."""

from __future__ import annotations

from typing import Any

from untuned.batches import Cut, Feed, Stream, blocks, uniforms
from untuned.problem import Problem
from untuned.solvers.base import Solver, wants_blocks

LONGEST_CHUNK = 1024  # batches: bounds the memory of a chunk's row indices


class Feeder:
    """The feeds of a run, by the step and the number of batches drawn before it."""

    def __init__(self, problem: Problem, solver: Solver, seed: int, eval_every: int):
        self.ops = problem.ops
        self.like = problem.ops.flatten(problem.y0)[0][0]
        self.draws = (solver.inner_draws, solver.outer_draws)
        self.seed = seed
        self.needs_uniform = solver.needs_uniform
        self.streams: list[Stream | None] = []
        self.tables: list[Any] = []  # of the blocks of each side, for methods that need them
        for side, (size, rows) in enumerate(zip(problem.batch_sizes, problem.rows, strict=True)):
            table = None
            if size is not None and wants_blocks(solver):
                table = self.ops.asarray(blocks(rows, size, seed, side), self.like)
                rows, size = table.shape[0], 1  # a stream of block numbers
            self.streams.append(None if size is None else Stream(rows, size, seed, side))
            self.tables.append(table)
        # Steps a feed lasts for; its shape is compiled in, so it never changes.
        self.longest = max(1, min(eval_every, LONGEST_CHUNK // max(self.draws)))
        self._ahead: tuple[tuple[int, tuple[int, int]], Feed] | None = None

    def make(self, step: int, drawn: tuple[int, int], steps: int) -> Feed:
        """What `steps` steps from here draw, at most."""
        inner, outer = (self._side(side, drawn[side], steps) for side in (0, 1))
        if not self.needs_uniform:
            return Feed(inner, outer)
        return Feed(inner, outer, self.ops.asarray(uniforms(self.seed, step, steps), self.like))

    def _side(self, side: int, first: int, steps: int) -> Any:
        stream, table = self.streams[side], self.tables[side]
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
        """Draw what follows `count` steps if these use all they may; for while the device works."""
        if self.needs_uniform:
            return  # such a method uses as many batches as its random numbers say
        place = (
            step + count,
            (drawn[0] + count * self.draws[0], drawn[1] + count * self.draws[1]),
        )
        self._ahead = (place, self.make(*place, self.longest))
