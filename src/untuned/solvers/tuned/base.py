"""What the tuned methods share: two numbers to choose, their decay, and the report of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, Solver, value_estimate
from untuned.solvers.hyperparameters import require_positive


class Rates(NamedTuple):
    """Step sizes of one step: rho for y, sigma for the linear system, gamma for x."""

    y: Scalar
    v: Scalar
    x: Scalar


@dataclass(frozen=True)
class Tuned(Solver):
    """Step sizes rho = sigma = step_size and gamma = step_size / outer_ratio, each over (t+1)^e.

    Parameters
    ----------
    step_size : of y and of the linear system. To be tuned.
    outer_ratio : x moves with step_size / outer_ratio. To be tuned.
    """

    step_size: float = 0.1
    outer_ratio: float = 1.0

    # The e of rho, sigma and gamma.
    exponents: ClassVar[tuple[float, float, float]] = (0.0, 0.0, 0.0)
    to_tune: ClassVar[tuple[str, ...]] = ("step_size", "outer_ratio")
    first_steps: ClassVar[tuple[str, ...]] = ("step_size",)

    def __post_init__(self) -> None:
        require_positive(self, "step_size", "outer_ratio")

    def rates(self, o: Oracles, t: Scalar, y: Tree) -> Rates:
        """The three step sizes of step t."""
        starts = (self.step_size, self.step_size, self.step_size / self.outer_ratio)
        return Rates(
            *(decayed(o, start, t, e, y) for start, e in zip(starts, self.exponents, strict=True))
        )

    def measured_at(self, old: Any, new: Any) -> tuple[Tree, Tree, Tree]:
        """f is taken at x_t, after y and v have moved."""
        return old.x, new.y, new.v


def decayed(o: Oracles, start: float, t: Scalar, exponent: float, like: Tree) -> Scalar:
    """start / (t+1)^exponent, in the dtype of `like`."""
    if exponent == 0.0:
        return start
    return o.ops.cast(start / (t + 1) ** exponent, o.ops.scalar(0.0, like))


def report(
    o: Oracles, rates: Rates, *, outer: Scalar, inner_grad_norm: Scalar, hypergrad_norm: Scalar,
    v: Tree, counts: Counts, **rest: Any,
) -> Info:  # fmt: skip
    """The `Info` of a tuned method's step."""
    return Info(
        outer=outer,
        inner_grad_norm=inner_grad_norm,
        hypergrad_norm=hypergrad_norm,
        step_x=rates.x,
        step_y=rates.y,
        step_v=rates.v,
        counts=counts,
        **value_estimate(o, outer, inner_grad_norm, v),
        **rest,
    )
