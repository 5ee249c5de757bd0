"""What every method is: hyperparameters in a frozen dataclass, `init` and `step`.

A method holds no function, no data and no loop over its steps; `untuned.run.loop` has the loop.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, ClassVar, NamedTuple, Protocol

from untuned.data.batches import Batch
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.util.wording import brief, unknown

# name -> "module:class"; modules are imported when a method is asked for.
METHODS = {
    "aid": "untuned.solvers.tuned.aid:AID",
    "amigo": "untuned.solvers.tuned.amigo:AmIGO",
    "auto": "untuned.solvers.auto.method:Auto",
    "bsa": "untuned.solvers.tuned.bsa:BSA",
    "d-tfbo": "untuned.solvers.dtfbo:DTFBO",
    "f2sa": "untuned.solvers.tuned.f2sa:F2SA",
    "fsla": "untuned.solvers.tuned.fsla:FSLA",
    "itd": "untuned.solvers.tuned.itd:ITD",
    "mrbo": "untuned.solvers.tuned.mrbo:MRBO",
    "s-tfbo": "untuned.solvers.stfbo:STFBO",
    "saba": "untuned.solvers.tuned.saba:SABA",
    "soba": "untuned.solvers.tuned.soba:SOBA",
    "stocbio": "untuned.solvers.tuned.stocbio:StocBiO",
    "sustain": "untuned.solvers.tuned.sustain:SUSTAIN",
    "ttsa": "untuned.solvers.tuned.ttsa:TTSA",
    "vrbo": "untuned.solvers.tuned.vrbo:VRBO",
}


# What a step says of the run; whole numbers, since compiled code carries them.
GO_ON, CONVERGED, DIVERGED, STALLED = 0, 1, 2, 3


Pair = tuple[Any, Any]  # something of the inner side, the same of the outer side


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


class Solver(Protocol):
    """The interface `untuned.minimize` drives.

    A run fills in two kinds of hyperparameters that it alone knows, where a method has them:
    `horizon` if it is None, and the numbers of blocks `inner_slots` and `outer_slots`.
    """

    loops: ClassVar[str]  # "single" or "double": whether y and v are solved for inside a step
    name: ClassVar[str]
    to_tune: ClassVar[tuple[str, ...]]  # hyperparameters a user must choose for each problem

    @property
    def inner_draws(self) -> int:
        """Most batches of inner data a step uses; `Info` says how many it did use."""

    @property
    def outer_draws(self) -> int:
        """Most batches of outer data a step uses."""

    @property
    def needs_uniform(self) -> bool:
        """Whether a step uses a random number."""

    @property
    def cost(self) -> Counts:
        """Evaluations per step: in the mean where they vary, None where that is not known."""

    def init(self, o: Oracles, x: Tree, y: Tree) -> Any: ...

    def step(self, o: Oracles, state: Any, batch: Batch) -> tuple[Any, Info]: ...

    def measured(self, old: Any, new: Any) -> tuple[Tree, Tree, Tree]:
        """The x, y and v that the `measure` of a step from `old` to `new` belongs to."""


def wants_blocks(solver: Solver) -> bool:
    """Whether a method's batches are to be fixed blocks of rows, each with its number."""
    return hasattr(solver, "inner_slots")


def names() -> list[str]:
    """The names of all methods."""
    return sorted(METHODS)


def get(name: str) -> Any:
    """The class of a method; call it, with or without hyperparameters, to have a solver."""
    if not isinstance(name, str) or name not in METHODS:
        raise unknown("method", name, METHODS)
    module, _, attribute = METHODS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


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


def require_positive(solver: Any, *fields: str) -> None:
    """Refuse hyperparameters that are not positive finite numbers, in one sentence."""
    for field in fields:
        value = getattr(solver, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 < value <= sys.float_info.max):
            raise ValueError(
                f"{type(solver).__name__} was given {field}={brief(value)}; "
                f"expected a finite number above zero, for example {field}=1.0."
            )


def require_start(solver: Any, *fields: str) -> None:
    """Refuse start values of accumulators that are neither positive numbers nor "auto"."""
    require_positive(solver, *(field for field in fields if getattr(solver, field) != "auto"))


def require_count(solver: Any, *fields: str) -> None:
    """Refuse loop counts that are not whole numbers from 1 up."""
    for field in fields:
        value = getattr(solver, field)
        if type(value) is not int or value < 1:
            raise ValueError(
                f"{type(solver).__name__} was given {field}={brief(value)}; "
                f"expected a whole number from 1 up, for example {field}=10."
            )
