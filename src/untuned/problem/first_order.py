"""The second derivatives of g from its gradients alone, by symmetric differences along v."""

from __future__ import annotations

import numpy as np

from untuned import ops as array_libraries
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Inner, Linear, Oracles, on_rows


class GradientsAlone(Oracles):
    """Oracles that ask f and g for gradients and for nothing else.

        (grad_xy g) v  =  (grad_x g(x, y + c v) - grad_x g(x, y - c v)) / 2c  +  O(c^2)

    and the same for (grad_yy g) v with grad_y; the mean of the two sides is grad_y g itself, up to
    O(c^2). So all three cost two gradients. c v is as long as the cube root of the machine's
    epsilon of y (of one per entry where y is zero), where rounding and curvature spoil a symmetric
    difference about equally: no unit of f, g or y enters.
    """

    def inner(self, x: Tree, y: Tree, v: Tree, rows: Tree) -> Inner:
        """grad_y g, (grad_yy g) v and (grad_xy g) v from two gradients."""
        ops = self.ops
        length = ops.norm(v)
        # With v = 0 both sides are the same, whatever c.
        c = ops.epsilon(y) ** (1 / 3) * _length(self, y) / ops.where(length > 0, length, 1.0)
        above_x, above_y = self.inner_grads(x, ops.axpy(c, v, y), rows)
        below_x, below_y = self.inner_grads(x, ops.axpy(-c, v, y), rows)
        slope = lambda a, b: ops.tree_map(lambda a, b: (a - b) / (2 * c), a, b)
        gradient = ops.tree_map(lambda a, b: (a + b) / 2, above_y, below_y)
        return Inner(gradient, slope(above_y, below_y), slope(above_x, below_x))

    def inner_cross(self, x: Tree, y: Tree, v: Tree, rows: Tree) -> tuple[Tree, Tree]:
        """grad_y g and (grad_xy g) v from two gradients."""
        found = self.inner(x, y, v, rows)
        return found.grad, found.cross

    def linear(self, x: Tree, y: Tree, rows: Tree) -> Linear:
        """The same products one by one, each from two gradients."""
        return Linear(
            lambda v: self.inner(x, y, v, rows).hvp, lambda v: self.inner(x, y, v, rows).cross
        )


def _length(o: Oracles, y: Tree) -> Scalar:
    """The norm of y, or what it is with ones where y is zero."""
    size = o.ops.norm(y)
    return o.ops.where(size > 0, size, o.ops.size(y) ** 0.5)


def gradients_alone(o: Oracles) -> Oracles:
    """The same problem without second derivatives."""
    return GradientsAlone(o.ops, o.outer_function, o.inner_function, o.project)


def has_second_derivatives(o: Oracles, x: Tree, y: Tree, rows: Tree) -> bool:
    """Whether torch can differentiate g twice.

    Its own operations say so where they cannot. A user's `torch.autograd.Function` need not: where
    its backward pass leaves no graph, second derivatives are zero without a word. So where g has
    such functions, its products are held against differences of gradients along a random v.
    """
    from untuned.ops.torch import has_own_functions

    ops = o.ops
    if ops is not array_libraries.get("torch"):
        return True  # taken for granted in a group, whose processes have but a part of x and rows
    try:
        o.inner_grads(x, y, rows)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return True  # some of the rows are no input for g, and it may never be given them
    random = np.random.default_rng(0)
    v = ops.tree_map(lambda leaf: ops.asarray(random.standard_normal(leaf.shape), leaf), y)
    try:
        claimed = o.inner(x, y, v, rows)
    except RuntimeError:
        return False
    if not has_own_functions(on_rows(o.inner_function, rows), x, y):
        return True
    seen = gradients_alone(o).inner(x, y, v, rows)
    # Less than this is rounding: differences divide it by the length of the step, relative to y.
    noise = 100 * ops.epsilon(y) ** (2 / 3) * ops.norm(seen.grad) * ops.norm(v)
    noise = noise / _length(o, y)
    for a, b in ((claimed.hvp, seen.hvp), (claimed.cross, seen.cross)):
        size = ops.norm(b)
        if size > noise and not ops.dot(a, b) >= size**2 / 2:
            return False
    return True
