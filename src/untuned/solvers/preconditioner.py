"""A dense preconditioner for inner Hessians of few variables, from the Hessian on some of the rows.

    M = D Q |Lambda|^{-1} Q^T D   where Q Lambda Q^T = D (grad_yy g on a few random rows) D

and D scales to a unit diagonal.

The mean over m rows differs from the mean over all by about sqrt(dim / m), so conjugate gradients
preconditioned by it take a handful of steps however ill-conditioned g is; and since the rows are
few it costs no more than a few products on all rows.
"""

from __future__ import annotations

from typing import Any

from untuned.derivatives import Oracles
from untuned.ops import Ops, Tree
from untuned.solvers.base import size
from untuned.solvers.conjugate_gradient import Map

MOST_VARIABLES = 512  # above, the matrix and its decomposition cost more than they save
ROWS_PER_VARIABLE = 10
FLOOR = 1e-6  # of the largest eigenvalue: rounding makes smaller ones noise
TINY = 1e-20  # of the largest diagonal entry: keeps the scaling finite


def pilot_rows(variables: int, rows: int) -> int:
    """How many rows the Hessian is made of: its products then cost about one on all rows."""
    if variables > MOST_VARIABLES:
        return 0
    return min(rows, max(ROWS_PER_VARIABLE * variables, rows // variables))


def identity(ops: Ops, y: Tree) -> Any:
    """The preconditioner that changes nothing; None where there are too many variables."""
    variables = size(ops, y)
    if variables > MOST_VARIABLES:
        return None
    return ops.matrix(lambda unit: unit, variables, y)


def make(o: Oracles, x: Tree, y: Tree, rows: Tree, otherwise: Any) -> Any:
    """M at (x, y), as a matrix; `otherwise` where the Hessian is zero or not finite."""
    ops = o.ops
    linear = o.linear(x, y, rows)
    hessian = ops.matrix(lambda unit: ops.ravel(linear.hvp(ops.unravel(unit, y))), size(ops, y), y)
    # Divided by its largest entry, so that no power of two in g changes a bit of what follows; then
    # scaled to a unit diagonal, as a penalty may make one variable's curvature dwarf all others.
    largest = abs(hessian.diagonal()).max()
    relative = hessian / ops.where(largest > 0, largest, ops.array(1.0, y))
    scale = ops.clip(abs(relative.diagonal()), TINY, None) ** -0.5
    values, vectors = ops.eigh(0.5 * scale[:, None] * (relative + relative.T) * scale)
    sizes = abs(values)
    inverse = (vectors / ops.clip(sizes, FLOOR * sizes.max(), None)) @ vectors.T
    matrix = scale[:, None] * inverse * scale / largest
    return ops.where((largest > 0) & ops.isfinite(ops.norm(matrix)), matrix, otherwise)


def apply(ops: Ops, matrix: Any) -> Map:
    """The map r -> M r of trees."""
    if matrix is None:
        return lambda r: r
    return lambda r: ops.unravel(matrix @ ops.ravel(r), r)
