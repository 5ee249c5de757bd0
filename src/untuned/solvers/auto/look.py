"""A look at a problem before it is solved: is y a network, what is x, and what is known of rows?"""

from __future__ import annotations

import numpy as np

from untuned.data.batches import Batch
from untuned.data.streams import INDEX
from untuned.ops import Tree
from untuned.problem.derivatives import Oracles

PRODUCTS = 8
FEW_ROWS = 16
ROUNDING = 1e-3  # of the largest curvature: a convex g shows less than this below zero


def may_be_a_network(o: Oracles, y: Tree) -> bool:
    """Whether y has parts, as a network has. To look further costs eight products with g."""
    return len(o.ops.flatten(y)[0]) > 1


def curves_downwards(o: Oracles, x: Tree, y: Tree, rows: Tree) -> bool:
    """Whether g has a direction of negative curvature in y, as a network has almost everywhere.

    Lanczos iterations from a random vector find both ends of the spectrum first.
    """
    ops = o.ops

    def product(x: Tree, y: Tree, v: Tree, rows: Tree) -> Tree:
        return ops.ravel(o.linear(x, y, rows).hvp(v))

    leaves, structure = ops.flatten(y)
    like = [ops.to_numpy(leaf) for leaf in leaves]
    ends = np.cumsum([leaf.size for leaf in like])

    def tree(vector: np.ndarray) -> Tree:
        parts = zip(np.split(vector, ends[:-1]), like, leaves, strict=True)
        return ops.unflatten(
            structure, [ops.asarray(p.reshape(a.shape), leaf) for p, a, leaf in parts]
        )

    start = np.random.default_rng(0).standard_normal(int(ends[-1]))
    basis = [start / np.linalg.norm(start)]
    compiled = ops.compile(product, x, y, tree(start), rows, effort="least")
    images: list[np.ndarray] = []
    for _ in range(min(PRODUCTS, len(start))):
        image = ops.to_numpy(compiled(x, y, tree(basis[-1]), rows)).astype(np.float64)
        if not np.isfinite(image).all():
            return False  # which the run itself will say better
        images.append(image)
        rest = image - sum((q @ image) * q for q in basis)
        rest = rest - sum((q @ rest) * q for q in basis)  # once more: the first was not exact
        norm = np.linalg.norm(rest)
        if norm <= ROUNDING * np.linalg.norm(image):
            break
        basis.append(rest / norm)
    small = np.array([[q @ image for image in images] for q in basis[: len(images)]])
    values = np.linalg.eigvalsh((small + small.T) / 2)
    return bool(values[0] < -ROUNDING * np.abs(values).max())


def depends_on_x(o: Oracles, x: Tree, y: Tree, batch: Batch) -> bool:
    """Whether f changes where x does and y does not, as with a penalty on x."""
    ops = o.ops
    elsewhere = ops.tree_map(lambda leaf: 1.1 * leaf + 0.1, x)
    value = ops.compile(o.outer_value, x, y, batch.outer, effort="least")
    here, there = (float(value(point, y, batch.outer)) for point in (x, elsewhere))
    return here != there  # also where there is no number there


def belongs_to_rows(o: Oracles, x: Tree, y: Tree, rows: Tree) -> bool:
    """Whether rows of g have entries of x for themselves, as weights are: a few move a few."""
    ops = o.ops
    if rows is None:
        return False
    few = ops.take(rows, np.arange(min(FEW_ROWS, ops.flatten(rows)[0][0].shape[0]), dtype=INDEX))
    along = ops.tree_map(lambda leaf: leaf + 1, y)
    product = lambda x, y, v, rows: o.inner_cross(x, y, v, rows)[1]
    found = ops.compile(product, x, y, along, few, effort="least")(x, y, along, few)
    moved = [float(np.mean(ops.to_numpy(leaf) != 0)) for leaf in ops.flatten(found)[0]]
    # Of several processes one may have none of these rows.
    most, some = (ops.max_over_processes(share, y) for share in (max(moved), min(moved)))
    return 0 < some <= most < 0.5


def known_by_number(o: Oracles, rows: Tree) -> bool:
    """Whether nothing is known of these rows but their numbers: whole, and no two the same.

    Then nobody can say which rows are alike.
    """
    leaves = [o.ops.to_numpy(leaf) for leaf in o.ops.flatten(rows)[0]]
    return all(
        leaf.size == len(leaf) == len(np.unique(leaf)) and np.array_equal(leaf, np.rint(leaf))
        for leaf in leaves
    )
