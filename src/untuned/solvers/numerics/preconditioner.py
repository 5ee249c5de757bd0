"""A dense preconditioner for inner Hessians of few variables, from the Hessian on some of the rows.

    M = D Q |Lambda|^{-1} Q^T D   where Q Lambda Q^T = D (grad_yy g on a few random rows) D

and D scales to a unit diagonal.

Where g falls apart into functions of some variables each, the Hessian is a stack of their blocks,
and so is M; a function in closed form may say so (`untuned.ops.ClosedForm`).

The mean over m rows differs from the mean over all by about sqrt(dim / m), so conjugate gradients
preconditioned by it take a handful of steps however ill-conditioned g is; and since the rows are
few it costs no more than a few products on all rows.
"""

from __future__ import annotations

from typing import Any

from untuned.ops import Ops, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics.conjugate_gradient import Map

MOST_VARIABLES = 512  # above, the matrix and its decomposition cost more than they save
ROWS_PER_VARIABLE = 10
FLOOR = 1e-6  # of the largest eigenvalue: rounding makes smaller ones noise
TINY = 1e-20  # of the largest diagonal entry: keeps the scaling finite


def pilot_rows(variables: int, rows: int) -> int:
    """How many rows the Hessian is made of: its products then cost about one on all rows."""
    if variables > MOST_VARIABLES:
        return 0
    return min(rows, max(ROWS_PER_VARIABLE * variables, rows // variables))


def identity(o: Oracles, y: Tree) -> Any:
    """The preconditioner that changes nothing; None where there are too many variables."""
    ops = o.ops
    blocks, variables, _ = o.hessian_blocks(y)
    if variables > MOST_VARIABLES:
        return None
    unit = ops.matrix(lambda unit: unit, variables, y)
    return unit if blocks is None else ops.stack(unit, blocks)


def make(o: Oracles, x: Tree, y: Tree, rows: Tree, otherwise: Any) -> Any:
    """M at (x, y), as a matrix; `otherwise` where the Hessian is zero or not finite."""
    ops = o.ops
    hessian = o.hessian(x, y, rows)
    # Divided by its largest entry, so that no power of two in g changes a bit of what follows; then
    # scaled to a unit diagonal, as a penalty may make one variable's curvature dwarf all others.
    largest = abs(hessian.diagonal(0, -2, -1)).max()
    relative = hessian / ops.where(largest > 0, largest, ops.array(1.0, y))
    scale = ops.clip(abs(relative.diagonal(0, -2, -1)), TINY, None) ** -0.5
    across, down = scale[..., None, :], scale[..., :, None]
    values, vectors = ops.eigh(0.5 * down * (relative + relative.mT) * across)
    sizes = abs(values)
    inverse = (vectors / ops.clip(sizes, FLOOR * sizes.max(), None)[..., None, :]) @ vectors.mT
    matrix = down * inverse * across / largest
    return ops.where((largest > 0) & ops.isfinite(ops.norm(matrix)), matrix, otherwise)


def price(o: Oracles, y: Tree, share: float) -> int:
    """What making one costs, in products on all rows, where it looks at a share of them."""
    _, variables, own_share = o.hessian_blocks(y)
    return max(1, round(variables * share * own_share))


def owed(o: Oracles, y: Tree) -> int:
    """Steps of conjugate gradients to count at the start: a stack of blocks is made at once, as it
    takes no products."""
    return 0 if o.hessian_blocks(y)[0] is None else price(o, y, 1.0)


def apply(ops: Ops, matrix: Any) -> Map:
    """The map r -> M r of trees."""
    if matrix is None:
        return lambda r: r
    if matrix.ndim == 2:
        return lambda r: ops.unravel(matrix @ ops.ravel(r), r)
    blocks = matrix.shape[:2]
    return lambda r: ops.unravel((matrix @ ops.ravel(r).reshape(*blocks, 1)).reshape(-1), r)
