"""`auto`: the method without a number to choose (docs/auto.md).

On all rows it is `implicit`, quasi-Newton steps on the value function; on minibatches it is
`parameter_free`, one gradient step on x, y and v together.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from untuned.data.batches import Batch
from untuned.ops import Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, Pair, Solver


@dataclass(frozen=True)
class Auto(Solver):
    """The default method: nothing to tune.

    Parameters
    ----------
    stochastic : whether steps see minibatches. None: `minimize` knows; False when stepped by hand.
    """

    stochastic: bool | None = None

    name: ClassVar[str] = "auto"

    def for_run(self, rows: Pair, batch_sizes: Pair, max_steps: int) -> Auto:
        """This method for a run on all rows or on minibatches."""
        if self.stochastic is None:
            return dataclasses.replace(self, stochastic=batch_sizes != (None, None))
        return self

    @property
    def loops(self) -> str:
        """Whether y and v are solved for inside a step."""
        return "single" if self.stochastic else "double"

    @property
    def wants_stages(self) -> bool:
        """Whether a run begins on a sample of large data."""
        return not self.stochastic

    @property
    def averages(self) -> bool:
        """Whether `Info.measure` is a mean over many batches."""
        return bool(self.stochastic)

    @property
    def cost(self) -> Counts:
        """Evaluations per step; None for as many as it takes."""
        return Counts(1, 1, 1, 1) if self.stochastic else Counts(None, None, None, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> Any:
        """Start at (x, y) with v = 0."""
        return self._form.init(o, x, y)

    def step(self, o: Oracles, state: Any, batch: Batch) -> tuple[Any, Info]:
        """One step of x."""
        return self._form.step(o, state, batch)

    def on_new_rows(self, o: Oracles, state: Any) -> Any:
        """The state for going on with other rows."""
        return self._form.on_new_rows(o, state)

    def measured_at(self, old: Any, new: Any) -> tuple[Tree, Tree, Tree]:
        """`implicit` measures where it ends, `parameter_free` before it moves."""
        at = old if self.stochastic else new
        return at.x, at.y, at.v

    @property
    def _form(self) -> Any:
        # Each form is a file of its own, and only the one that a run uses is loaded.
        if self.stochastic:
            from untuned.solvers.auto import parameter_free

            return parameter_free
        from untuned.solvers.auto import implicit

        return implicit
