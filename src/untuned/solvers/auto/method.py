"""`auto`: the method without a number to choose (docs/auto.md).

On all rows it is `implicit`, quasi-Newton steps on the value function; on minibatches it is
`parameter_free`, one gradient step on x, y and v together, or `network` where y is one. Where g
cannot be differentiated twice, the latter two ask for gradients alone.
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
from untuned.problem.first_order import gradients_alone, has_second_derivatives
from untuned.solvers.base import Info, Solver

SMALL_NETWORK = 512  # variables


@dataclass(frozen=True)
class Auto(Solver):
    """The default method: nothing to tune.

    Parameters
    ----------
    stochastic : whether steps see minibatches. None: `minimize` knows; False when stepped by hand.
    network : whether y is treated as a network. None: `minimize` looks whether g curves downwards
        at the start; False when stepped by hand.
    direct : whether f depends on x itself, which matters for networks alone; `minimize` looks.
    judged : whether, with a network and an x that has entries for each row, what one half of the
        outer rows says is held against the other half. None: `minimize` looks what x is.
    order : 2 differentiates g twice; 1 takes differences of its gradients in place of that, which
        are less exact and need no more memory than a gradient. None: `minimize` looks whether torch
        can differentiate g twice; 2 when stepped by hand, and on JAX.
    alike : whether outer data say which rows are alike, without which halves are no judges of each
        other; `minimize` looks.
    """

    stochastic: bool | None = None
    network: bool | None = None
    direct: bool | None = None
    judged: bool | None = None
    order: int | None = None
    alike: bool | None = None

    name: ClassVar[str] = "auto"

    def for_run(self, rows: Pair, batch_sizes: Pair, max_steps: int) -> Auto:
        """This method for a run on all rows or on minibatches."""
        judged = self.judged
        if batch_sizes[1] is None or rows[1] < 2:
            judged = False  # no halves can be drawn
        stochastic = self.stochastic
        if stochastic is None:
            stochastic = batch_sizes != (None, None)
        return dataclasses.replace(self, stochastic=stochastic, judged=judged)

    def for_problem(self, o: Oracles, x: Tree, y: Tree, sample: Callable[[], Batch]) -> Auto:
        """This method for a convex inner problem or for a network.

        On all rows a network is solved for as any other y while it is small: of a large one a
        single step would take hundreds of passes over the rows.
        """
        from untuned.solvers.auto import look

        order = self.order
        if order is None:
            # Not on JAX, which would compile for it and fails for custom rules only.
            torch = o.ops.name == "torch"
            order = 1 if torch and not has_second_derivatives(o, x, y, sample().inner) else 2
        if order == 1:
            o = gradients_alone(o)
        found = self.network
        if found is None:
            large = self.stochastic or order == 1 or o.ops.size(y) > SMALL_NETWORK
            found = bool(large) and look.may_be_a_network(o, y)
            found = found and look.curves_downwards(o, x, y, sample().inner)
        direct = self.direct
        if found and direct is None:
            direct = look.depends_on_x(o, x, y, sample())
        judged, alike = self.judged, self.alike
        if judged is None:
            free = found and not direct and o.project is None
            judged = free and look.belongs_to_rows(o, x, y, sample().inner)
            if judged and alike is None:
                alike = not look.known_by_number(o, sample().outer)
        return dataclasses.replace(
            self, network=found, direct=direct, judged=judged, order=order, alike=alike
        )

    @property
    def loops(self) -> str:
        """Whether y and v are solved for inside a step.

        A network's y is never solved for, so its gradient is no ground to leave out a step.
        """
        return "single" if self._one_by_one and not self.network else "double"

    @property
    def inner_draws(self) -> int:
        """Batches of inner data a step uses."""
        return self._form.INNER_DRAWS if self.network else 1

    @property
    def halves(self) -> bool:
        """Whether batches of outer data are to be of two halves of the rows in turn."""
        return bool(self.network and self.judged and self.alike is not False)

    @property
    def on_host(self) -> bool:
        """Whether a step is plain Python on numbers."""
        return not self._one_by_one and not self.network

    @property
    def averages(self) -> bool:
        """Whether `Info.measure` is a mean over many batches."""
        return bool(self._one_by_one or self.network)

    @property
    def cost(self) -> Counts:
        """Evaluations per step; None for as many as it takes."""
        if self.order == 1:
            # The gradient of g that comes with its products is the mean of the two they take.
            return Counts(1, self.inner_draws + 1)
        if self.network:
            return self._form.cost(bool(self.direct))
        return Counts(1, 1, 1, 1) if self._one_by_one else Counts(None, None, None, 1)

    @property
    def remark(self) -> str:
        """What a run went without, and why, for its message."""
        remarks = []
        if self.order == 1:
            remarks.append(
                "g was not differentiated twice: differences of its gradients stood for second "
                "derivatives."
            )
        if self.network and self.judged and not self.halves:
            remarks.append(
                "Nobody judged the weights: outer_data are numbers of rows, of which alike halves "
                "cannot be made. Give the labels among outer_data."
            )
        return " ".join(remarks)

    def init(self, o: Oracles, x: Tree, y: Tree) -> Any:
        """Start at (x, y) with v = 0."""
        return self._form.init(o, x, y, self.halves) if self.network else self._form.init(o, x, y)

    def step(self, o: Oracles, state: Any, batch: Batch) -> tuple[Any, Info]:
        """One step of x."""
        if self.order == 1:
            o = gradients_alone(o)
        if self.network:
            state, info = self._form.step(o, state, batch, bool(self.direct))
        else:
            state, info = self._form.step(o, state, batch)
        return state, info._replace(counts=self.cost) if self.order == 1 else info

    def measured_at(self, old: Any, new: Any) -> tuple[Tree, Tree, Tree]:
        """`implicit` measures where it ends, the others before they move."""
        at = old if self._one_by_one or self.network else new
        return at.x, at.y, at.v

    @property
    def _one_by_one(self) -> bool:
        """Whether y, v and x each make a step at a time, and are not solved for.

        Also on all rows without second derivatives: quasi-Newton steps ask for more exact products
        than differences of gradients are.
        """
        return bool(self.stochastic) or self.order == 1

    @property
    def _form(self) -> Any:
        # Each form is a file of its own, and only the one that a run uses is loaded.
        if self.network:
            from untuned.solvers.auto import network

            return network
        if self._one_by_one:
            from untuned.solvers.auto import parameter_free

            return parameter_free
        from untuned.solvers.auto import implicit

        return implicit
