"""What a Hessian costs, in products with it, by counting the operations of a product.

A power of two: a factor written differently must not change when Hessians are made, and a price
that is wrong by half costs little (docs/lab/clock.md).
"""

from __future__ import annotations

import math
from typing import Any

import jax

from untuned.ops import Tree
from untuned.ops.traced.in_numpy import Sheet
from untuned.ops.traced.tangents import V, X, Y


def of_compiled(fn: Any, x: Tree, y: Tree) -> float | None:
    """The price where all is computed each time; None where an operation is not known."""
    function, rows = (fn.function, (fn.rows,)) if hasattr(fn, "rows") else (fn, ())
    shapes = lambda tree: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), tree)
    x, y, rows = shapes((x, y, rows))
    sheet = Sheet()
    if not sheet.add("along y", function, (x, y, y, *rows)):
        return None
    variables = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(y))
    return counted(sheet, variables, False)


def counted(sheet: Sheet, variables: int, remembers: bool) -> float:
    """The price of another Hessian, of which parts may be remembered that depend on rows alone.

    Only where that makes much of a difference, so that runs on one device and on several agree.
    """
    product, each = sheet.work_along(V)
    changing = sheet.work_along(X | Y)[1]
    if remembers and 2 * changing < each:
        each = changing
    if not product or not each:
        return float(variables)
    return min(float(variables), 2.0 ** round(math.log2(variables * each / product)))
