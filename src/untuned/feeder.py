"""What the host makes for the steps to come: row indices and random numbers, drawn ahead."""

from __future__ import annotations

from untuned.batches import Feed, Stream, uniforms
from untuned.problem import Problem
from untuned.solvers.base import Solver

LONGEST_CHUNK = 1024  # batches: bounds the memory of a chunk's row indices


class Feeder:
    """The feeds of a run, by the step and the number of batches drawn before it."""

    def __init__(self, problem: Problem, solver: Solver, seed: int, eval_every: int):
        self.ops = problem.ops
        self.like = problem.ops.flatten(problem.y0)[0][0]
        self.draws = (solver.inner_draws, solver.outer_draws)
        self.seed = seed
        self.needs_uniform = solver.needs_uniform
        self.streams = [
            None if size is None else Stream(rows, size, seed, side)
            for side, (size, rows) in enumerate(zip(problem.batch_sizes, problem.rows, strict=True))
        ]
        # Steps a feed lasts for; its shape is compiled in, so it never changes.
        self.longest = max(1, min(eval_every, LONGEST_CHUNK // max(self.draws)))
        self._ahead: tuple[tuple[int, tuple[int, int]], Feed] | None = None

    def make(self, step: int, drawn: tuple[int, int], steps: int) -> Feed:
        """What `steps` steps from here draw, at most."""
        inner, outer = (
            None
            if stream is None
            else self.ops.asarray(stream.batches(first, steps * draws), self.like)
            for stream, first, draws in zip(self.streams, drawn, self.draws, strict=True)
        )
        if not self.needs_uniform:
            return Feed(inner, outer)
        return Feed(inner, outer, self.ops.asarray(uniforms(self.seed, step, steps), self.like))

    def take(self, step: int, drawn: tuple[int, int]) -> Feed:
        """The feed from here, which may have been drawn ahead."""
        if self._ahead and self._ahead[0] == (step, drawn):
            return self._ahead[1]
        return self.make(step, drawn, self.longest)

    def draw_ahead(self, step: int, drawn: tuple[int, int], count: int) -> None:
        """Draw what follows `count` steps if these use all they may; for while the device works."""
        place = (
            step + count,
            (drawn[0] + count * self.draws[0], drawn[1] + count * self.draws[1]),
        )
        self._ahead = (place, self.make(*place, self.longest))
