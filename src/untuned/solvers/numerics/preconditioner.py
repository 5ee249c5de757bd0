"""A dense model of inner Hessians of few variables, by which systems are solved or conditioned.

    M = D Q |Lambda|^{-1} Q^T D   where Q Lambda Q^T = D (grad_yy g) D

and D scales to a unit diagonal. Where no eigenvalue is negative or next to nothing, the inverse in
the middle is made by Cholesky's factors, in a tenth of the time. Where g falls apart into functions
of some variables each, the Hessian is a stack of their blocks, and so is M, or one block that
stands for all; a function in closed form may say so (`untuned.ops.ClosedForm`).
"""

from __future__ import annotations

from typing import Any

from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics.conjugate_gradient import Map

MOST_VARIABLES = 1024  # whose matrix is 8 MB, in every checkpoint too
ROWS_PER_VARIABLE = 10
FEWER = 8  # times as many rows that there must be for a sample to be worth its while
SAMPLED = 1e-6  # of the largest eigenvalue: below, a sample says nothing
TINY = 1e-36, 1e-290  # of the largest diagonal entry: keeps the scaling finite, in each precision


def sample_size(variables: int, rows: int) -> int:
    """How many rows a sample has: its products cost about one on all rows. 0: no samples."""
    if variables > MOST_VARIABLES:
        return 0
    count = max(ROWS_PER_VARIABLE * variables, rows // variables)
    return count if FEWER * count <= rows else 0


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
    return inverted(o.ops, y, o.hessian(x, y, rows), otherwise, SAMPLED)


def inverted(ops: Ops, y: Tree, hessian: Any, otherwise: Any, floor: Scalar) -> Any:
    """M of a Hessian; eigenvalues below `floor` of the largest count as that."""
    # Divided by its largest entry, so that no power of two in g changes a bit of what follows; then
    # scaled to a unit diagonal, as a penalty may make one variable's curvature dwarf all others.
    largest = abs(hessian.diagonal(0, -2, -1)).max()
    relative = hessian / ops.where(largest > 0, largest, ops.array(1.0, y))
    tiny = TINY[ops.epsilon(y) < 1e-10]
    scale = ops.clip(abs(relative.diagonal(0, -2, -1)), tiny, None) ** -0.5
    across, down = scale[..., None, :], scale[..., :, None]
    scaled = 0.5 * down * (relative + relative.mT) * across

    def decomposed() -> Any:
        values, vectors = ops.eigh(scaled)
        sizes = abs(values)
        return (vectors / ops.clip(sizes, floor * sizes.max(), None)[..., None, :]) @ vectors.mT

    # Norms bound the largest eigenvalue and the inverse of the smallest one from above.
    inverse = ops.inverse(scaled)
    spread = (_norms(scaled) * _norms(inverse)).max()
    inverse = ops.cond(spread * floor <= 1, lambda: inverse, decomposed)
    matrix = down / largest * inverse * across
    return ops.where((largest > 0) & ops.isfinite(ops.norm(matrix)), matrix, otherwise)


def _norms(matrices: Any) -> Any:
    """Frobenius', which of many variables are far below the traces."""
    return (matrices**2).sum(-1).sum(-1) ** 0.5


def apply(ops: Ops, matrix: Any) -> Map:
    """The map r -> M r of trees."""
    if matrix is None:
        return lambda r: r
    if matrix.ndim == 2:
        return lambda r: ops.unravel(matrix @ ops.ravel(r), r)
    blocks, _, size = matrix.shape

    def multiplied(r: Tree) -> Tree:
        # (blocks, of each, entries): one block may stand for several.
        parts = ops.ravel(r).reshape(blocks, -1, size)
        return ops.unravel((parts @ matrix.mT).reshape(-1), r)

    return multiplied
