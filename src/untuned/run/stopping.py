"""When to stop: predicates on what a step reports, the same inside and outside compiled code."""

from __future__ import annotations

from typing import NamedTuple

from untuned.ops import Ops, Scalar
from untuned.solvers.base import CONVERGED, CUT, DIVERGED, ENOUGH, GO_ON, STALLED, Info, Solver

__all__ = ["CONVERGED", "CUT", "DIVERGED", "ENOUGH", "GO_ON", "STALLED"]

SOLVED = 0.1  # share of the largest inner gradient norm seen
STALL_STEPS = 100  # steps in a row that change no bit of x, y and v; every later one is as short


class Reference(NamedTuple):
    """What norms are measured against: the first hypergradient, the largest of the others."""

    hypergrad_norm: Scalar = 0.0
    inner_grad_norm: Scalar = 0.0
    residual_norm: Scalar = 0.0


def update(ops: Ops, reference: Reference, info: Info) -> Reference:
    """Take one step's norms in. A hypergradient of zero is no reference: v starts at zero."""
    first = ops.where(reference.hypergrad_norm > 0, reference.hypergrad_norm, info.hypergrad_norm)
    largest = (
        ops.where(new > old, new, old)
        for new, old in (
            (info.inner_grad_norm, reference.inner_grad_norm),
            (info.residual_norm, reference.residual_norm),
        )
    )
    return Reference(first, *largest)


def is_finite(ops: Ops, info: Info) -> Scalar:
    """Whether f and all three norms are numbers."""
    return (
        ops.isfinite(info.outer)
        & ops.isfinite(info.inner_grad_norm)
        & ops.isfinite(info.residual_norm)
        & ops.isfinite(info.hypergrad_norm)
    )


def is_converged(info: Info, reference: Reference, tol: float, loops: str) -> Scalar:
    """Whether the hypergradient norm is at most tol times its first value, and can be trusted.

    A double-loop method answers for y and v itself, unless a sub-loop hit its cap. In a
    single-loop method the hypergradient can be small by accident while y and v are still far
    off, so their norms must have come down by the same factor from their largest.
    """
    small = (info.hypergrad_norm <= tol * reference.hypergrad_norm) & (info.capped == 0)
    if loops == "double":
        return small
    return (
        small
        & (info.inner_grad_norm <= tol * reference.inner_grad_norm)
        & (info.residual_norm <= tol * reference.residual_norm)
    )


def answers_for_y(solver: Solver) -> bool:
    """Whether a method vouches for the y of its `measure`, and no look at its gradient is needed.

    That is so where its inner loop ends by a test (the products of such a step cannot be told
    beforehand), and where the measure is a mean over many steps. A fixed number of steps on y may
    be far too few.
    """
    return solver.loops == "double" and (solver.averages or solver.cost.hvp is None)


def inner_is_solved(info: Info, reference: Reference) -> Scalar:
    """Whether y is near a solution: before it is, f(x, y) says nothing about f(x, y*(x))."""
    return info.inner_grad_norm <= SOLVED * reference.inner_grad_norm


def last_is_worse(info: Info, best_measure: Scalar) -> bool:
    """Whether the last step's value is above the best one's, beyond what inexact y explain."""
    return bool(best_measure < info.measure - 2 * info.measure_error)


def keeps_hitting_cap(capped_steps: int, steps: int) -> bool:
    """Whether sub-loops ended at their cap in at least half of the steps."""
    return steps > 0 and 2 * capped_steps >= steps
