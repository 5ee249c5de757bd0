"""Where `auto` moves x next, and how far the first time."""

from __future__ import annotations

from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import lbfgs

FIRST_LENGTH = 0.1  # of a step of x


def of(
    o: Oracles, memory: lbfgs.Pairs, x: Tree, hypergrad: Tree, length: Scalar
) -> tuple[Tree, Scalar, Scalar]:
    """The direction p, the norm that is zero at a stationary point, and a step size to report.

    Under a constraint: the spectral projected gradient (Birgin, Martinez and Raydan), since only
    the projection of the set is known.
    """
    ops = o.ops
    norm = ops.norm(hypergrad)
    has = memory.count > 0
    short = length / ops.where(norm > 0, norm, 1.0)
    along = ops.where(has, lbfgs.scale(ops, memory), short)
    if o.project is None:
        quasi_newton = lbfgs.direction(ops, memory, hypergrad)
        down = ops.tree_map(lambda leaf: -short * leaf, hypergrad)
        return ops.where(has, quasi_newton, down), norm, along
    p = ops.sub(o.project(ops.axpy(-along, hypergrad, x)), x)
    return p, ops.norm(p) / along, along


def first_length(ops: Ops, longest: Scalar, f: Scalar, hypergrad: Tree) -> Scalar:
    """No farther than to where the slope promises a tenth of |f|, whatever the unit of x."""
    norm = ops.norm(hypergrad)
    promising = FIRST_LENGTH * ops.maximum(f, -f) / ops.where(norm > 0, norm, 1.0)
    return ops.where((promising > 0) & (promising < longest), promising, longest)
