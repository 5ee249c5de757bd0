"""The contract of a method (`Solver`), what a step reports (`Info`), and what methods share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

from untuned.data.batches import Batch
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.data_checks import Pair
from untuned.problem.derivatives import Counts, Oracles

# What a step says of the run; whole numbers, since compiled code carries them.
GO_ON, CONVERGED, DIVERGED, STALLED = 0, 1, 2, 3
CUT = 4  # by the watch of a run, in the middle of a step
ENOUGH = 5  # converged, unless a tolerance asks for more


class Info(NamedTuple):
    """Scalars of one step, for diagnosis only: nothing in it feeds back into the method.

    All are taken at the step's own points (x_t and the y, v the method uses with it), before x
    moves. `inner_drawn` and `outer_drawn` are the batches the step used. `measure` is what orders
    iterates: an upper estimate of Phi(x_t) = f(x_t, y*(x_t)), at most twice `measure_error` above
    the truth to first order in the error of y. `indefinite` is 1 where grad_yy g was seen not to be
    positive definite. `verdict` ends the run where the method itself knows that it is over.
    """

    outer: Scalar = 0.0
    inner_grad_norm: Scalar = 0.0
    residual_norm: Scalar = 0.0
    hypergrad_norm: Scalar = 0.0
    step_x: Scalar = 0.0
    step_y: Scalar = 0.0
    step_v: Scalar = 0.0
    measure: Scalar = 0.0
    measure_error: Scalar = 0.0
    inner_steps: Scalar = 0
    linear_steps: Scalar = 0
    capped: Scalar = 0
    indefinite: Scalar = 0
    verdict: Scalar = GO_ON
    inner_drawn: Scalar = 1
    outer_drawn: Scalar = 1
    counts: Counts = Counts()


class Solver(ABC):
    """The contract of a method: what `untuned.minimize` asks of it, and what it takes for granted.

    A method is a frozen dataclass of hyperparameters that derives from `Solver`. It must have a
    `name`, `cost`, `init` and `step`; everything else has the default below, so a method's file
    shows all that it changes. A method holds no function, no data and no loop over its steps.
    docs/write-a-method.md builds one.

    `init(o, x, y)` gives the state before the first step, a NamedTuple with at least x, y and v.
    `step(o, state, batch)` makes one step of x with the derivatives `o` on the rows of `batch`, and
    reports on it in an `Info`. Both are compiled on JAX: no `if` on arrays, no Python numbers from
    them.
    """

    name: ClassVar[str]

    to_tune: ClassVar[tuple[str, ...]] = ()
    """Hyperparameters a user must choose for each problem; messages advise to change them."""

    start_values: ClassVar[tuple[str, ...]] = ()
    """Hyperparameters that first steps are divided by; messages advise larger or smaller ones."""

    first_steps: ClassVar[tuple[str, ...]] = ()
    """Hyperparameters that steps are multiplied by; messages advise smaller ones."""

    needs_blocks: ClassVar[bool] = False
    """Whether batches are to be fixed blocks of rows that come back, each with its number."""

    needs_all_rows: ClassVar[bool] = False
    """Whether some steps look at all rows though there are minibatches."""

    @property
    def loops(self) -> str:
        """ "double" if y and v are solved for inside a step, else "single".

        After a single-loop step a small hypergradient is believed only once y and v have settled.
        """
        return "single"

    @property
    def tests_inner(self) -> bool:
        """Whether a loop on y ends by a test: then its gradients cannot be told beforehand."""
        return self.cost.inner_grad is None

    @property
    def inner_draws(self) -> int:
        """Most batches of inner data a step uses; `Info` says how many it did use."""
        return 1

    @property
    def outer_draws(self) -> int:
        """Most batches of outer data a step uses."""
        return 1

    @property
    def halves(self) -> bool:
        """Whether batches of outer data are to be of two halves of the rows in turn."""
        return False

    @property
    def needs_uniform(self) -> bool:
        """Whether a step uses a random number, `batch.uniform`."""
        return False

    @property
    def on_host(self) -> bool:
        """Whether a step is plain Python on numbers, of which JAX compiles derivatives alone."""
        return False

    @property
    def averages(self) -> bool:
        """Whether `Info.measure` is a mean over many batches, and so orders iterates on any."""
        return False

    @property
    def remark(self) -> str:
        """A sentence that the message of every run ends with, or nothing."""
        return ""

    @property
    @abstractmethod
    def cost(self) -> Counts:
        """Evaluations per step: in the mean where they vary, None where that is not known."""

    @abstractmethod
    def init(self, o: Oracles, x: Tree, y: Tree) -> Any:
        """The state before the first step."""

    @abstractmethod
    def step(self, o: Oracles, state: Any, batch: Batch) -> tuple[Any, Info]:
        """One step of x, and the report on it."""

    def for_run(self, rows: Pair, batch_sizes: Pair, max_steps: int) -> Self:
        """This method with the hyperparameters that only a run knows."""
        return self

    def for_problem(self, o: Oracles, x: Tree, y: Tree, sample: Callable[[], Batch]) -> Self:
        """This method after a look at f and g at the start (x, y), on rows that `sample` gives."""
        return self

    def measured_at(self, old: Any, new: Any) -> tuple[Tree, Tree, Tree]:
        """The x, y and v that the `measure` of a step from `old` to `new` belongs to."""
        return old.x, old.y, old.v


def size(ops: Ops, tree: Tree) -> int:
    """The number of entries of a tree."""
    return ops.size(tree)


def descend_x(o: Oracles, step: Scalar, hypergrad: Tree, norm: Scalar, x: Tree) -> tuple[Tree, Any]:
    """One step of x against its hypergradient, and the norm of what really moved x.

    Where x is free that is the hypergradient's own `norm`; under a constraint it is the gradient
    mapping |x - P(x - step h)| / step, which is zero at a constrained stationary point.
    """
    moved = o.ops.axpy(-step, hypergrad, x)
    if o.project is None:
        return moved, norm
    moved = o.project(moved)
    # A step of zero, after an infinite hypergradient, moves nothing.
    return moved, o.ops.norm(o.ops.sub(x, moved)) / o.ops.where(step > 0, step, 1.0)


def value_estimate(o: Oracles, f: Scalar, inner_grad_norm: Scalar, v: Tree) -> dict[str, Scalar]:
    """`measure` and `measure_error` of an `Info`, from what a step has at hand anyway.

    To first order f(x, y) - f(x, y*) = <grad_y f, y - y*> = <v, grad_y g>, at most |v| |grad_y g|.
    """
    error = inner_grad_norm * o.ops.norm(v)
    return {"measure": f + error, "measure_error": error}
