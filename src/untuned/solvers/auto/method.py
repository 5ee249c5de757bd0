"""`auto`: the method without a number to choose (docs/auto.md).

On all rows it is `implicit`, quasi-Newton steps on the value function; on minibatches it is
`parameter_free`, one gradient step on x, y and v together, or `network` where y is one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from untuned.data.batches import Batch
from untuned.ops import Tree
from untuned.problem.data_checks import Pair
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, Solver


@dataclass(frozen=True)
class Auto(Solver):
    """The default method: nothing to tune.

    Parameters
    ----------
    stochastic : whether steps see minibatches. None: `minimize` knows; False when stepped by hand.
    network : whether y is treated as a network. None: `minimize` looks whether g curves downwards
        at the start; False when stepped by hand.
    direct : whether f depends on x itself, which matters for networks alone; `minimize` looks.
    """

    stochastic: bool | None = None
    network: bool | None = None
    direct: bool | None = None

    name: ClassVar[str] = "auto"

    def for_run(self, rows: Pair, batch_sizes: Pair, max_steps: int) -> Auto:
        """This method for a run on all rows or on minibatches."""
        if self.stochastic is None:
            return dataclasses.replace(self, stochastic=batch_sizes != (None, None))
        return self

    def for_problem(self, o: Oracles, x: Tree, y: Tree, sample: Callable[[], Batch]) -> Auto:
        """This method for a convex inner problem or for a network.

        On all rows a network is solved for as any other y while it is small: a large one has
        no preconditioner, and a single step would take hundreds of passes over the rows.
        """
        from untuned.solvers.auto import look
        from untuned.solvers.numerics.preconditioner import MOST_VARIABLES

        found = self.network
        if found is None:
            large = self.stochastic or o.ops.size(y) > MOST_VARIABLES
            found = bool(large) and look.may_be_a_network(o, y)
            found = found and look.curves_downwards(o, x, y, sample().inner)
        direct = self.direct
        if found and direct is None:
            direct = look.depends_on_x(o, x, y, sample())
        return dataclasses.replace(self, network=found, direct=direct)

    @property
    def loops(self) -> str:
        """Whether y and v are solved for inside a step.

        A network's y is never solved for, so its gradient is no ground to leave out a step.
        """
        return "single" if self.stochastic and not self.network else "double"

    @property
    def inner_draws(self) -> int:
        """Batches of inner data a step uses."""
        return self._form.INNER_DRAWS if self.network else 1

    @property
    def wants_stages(self) -> bool:
        """Whether a run begins on a sample of large data."""
        return not self.stochastic and not self.network

    @property
    def averages(self) -> bool:
        """Whether `Info.measure` is a mean over many batches."""
        return bool(self.stochastic or self.network)

    @property
    def cost(self) -> Counts:
        """Evaluations per step; None for as many as it takes."""
        if self.network:
            return self._form.cost(bool(self.direct))
        return Counts(1, 1, 1, 1) if self.stochastic else Counts(None, None, None, 1)

    def init(self, o: Oracles, x: Tree, y: Tree) -> Any:
        """Start at (x, y) with v = 0."""
        return self._form.init(o, x, y)

    def step(self, o: Oracles, state: Any, batch: Batch) -> tuple[Any, Info]:
        """One step of x."""
        if self.network:
            return self._form.step(o, state, batch, bool(self.direct))
        return self._form.step(o, state, batch)

    def on_new_rows(self, o: Oracles, state: Any) -> Any:
        """The state for going on with other rows."""
        return self._form.on_new_rows(o, state)

    def measured_at(self, old: Any, new: Any) -> tuple[Tree, Tree, Tree]:
        """`implicit` measures where it ends, the others before they move."""
        at = old if self.stochastic or self.network else new
        return at.x, at.y, at.v

    @property
    def _form(self) -> Any:
        # Each form is a file of its own, and only the one that a run uses is loaded.
        if self.network:
            from untuned.solvers.auto import network

            return network
        if self.stochastic:
            from untuned.solvers.auto import parameter_free

            return parameter_free
        from untuned.solvers.auto import implicit

        return implicit
