"""The only derivatives: every method asks these oracles and nothing else.

One convention everywhere: v solves (grad_yy g) v = grad_y f, and the hypergradient is
grad_x f - (grad_xy g) v.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from untuned import ops as array_libraries
from untuned.ops import Ops, Scalar, Tree


class Outer(NamedTuple):
    """f and its two gradients at a point."""

    value: Scalar
    grad_x: Tree
    grad_y: Tree


class Inner(NamedTuple):
    """The y-gradient of g, and its second derivatives applied to v, at a point."""

    grad: Tree
    hvp: Tree
    cross: Tree


class Linear(NamedTuple):
    """The second derivatives of g at one point, ready to be applied to many v."""

    hvp: Callable[[Tree], Tree]
    cross: Callable[[Tree], Tree]


class Counts(NamedTuple):
    """How often each oracle was evaluated; a method reports them with every step."""

    outer_grad: Any = 0
    inner_grad: Any = 0
    hvp: Any = 0
    cross: Any = 0


class Oracles:
    """f and g as a method sees them: values, gradients and products, and the set x lives in.

    `rows` is the part of the data a call is to use, or None where the function takes no data.
    """

    def __init__(
        self,
        ops: Ops,
        outer: Callable,
        inner: Callable,
        project: Callable[[Tree], Tree] | None = None,
    ):
        self.ops = ops
        self.outer_function = outer
        self.inner_function = inner
        self.project = project

    @property
    def _derivatives(self) -> Any:
        """Those of the library, or zeros where a limit of time has cut the step that asks."""
        return Zeros(self.ops) if self.ops.was_cut() is True else self.ops

    def outer(self, x: Tree, y: Tree, rows: Tree) -> Outer:
        """f, grad_x f and grad_y f."""
        return Outer(*self._derivatives.value_and_grads(on_rows(self.outer_function, rows), x, y))

    def outer_value(self, x: Tree, y: Tree, rows: Tree) -> Scalar:
        """f alone, for rows on which it is only watched."""
        return self._derivatives.value(on_rows(self.outer_function, rows), x, y)

    def inner_value(self, x: Tree, y: Tree, rows: Tree) -> Scalar:
        """The bare value of g, which only the watch over a run needs."""
        return self._derivatives.value(on_rows(self.inner_function, rows), x, y)

    def inner_grad(self, x: Tree, y: Tree, rows: Tree) -> Tree:
        """grad_y g."""
        return self._derivatives.grad_y(on_rows(self.inner_function, rows), x, y)

    def inner_value_and_grad(self, x: Tree, y: Tree, rows: Tree) -> tuple[Scalar, Tree]:
        """g and grad_y g, of which the value comes with the gradient."""
        return self._derivatives.value_and_grad_y(on_rows(self.inner_function, rows), x, y)

    def inner(self, x: Tree, y: Tree, v: Tree, rows: Tree) -> Inner:
        """grad_y g, (grad_yy g) v and (grad_xy g) v, both products from one pass."""
        gradient, pull = self._derivatives.linearize(on_rows(self.inner_function, rows), x, y)
        cross, hvp = pull(v, "xy")
        return Inner(gradient, hvp, cross)

    def inner_grads(self, x: Tree, y: Tree, rows: Tree) -> tuple[Tree, Tree]:
        """grad_x g and grad_y g."""
        _, in_x, in_y = self._derivatives.value_and_grads(on_rows(self.inner_function, rows), x, y)
        return in_x, in_y

    def inner_cross(self, x: Tree, y: Tree, v: Tree, rows: Tree) -> tuple[Tree, Tree]:
        """grad_y g and (grad_xy g) v."""
        gradient, pull = self._derivatives.linearize(on_rows(self.inner_function, rows), x, y)
        return gradient, pull(v, "x")

    def linear(self, x: Tree, y: Tree, rows: Tree) -> Linear:
        """The linear maps v -> (grad_yy g) v and v -> (grad_xy g) v at one point."""
        pull = self._derivatives.products(on_rows(self.inner_function, rows), x, y)
        return Linear(lambda v: pull(v, "y"), lambda v: pull(v, "x"))

    def hessian_blocks(self, y: Tree) -> tuple[int | None, int, float]:
        """How many blocks grad_yy g is known to have (None: it is one), each of how many variables,
        and the share of the given rows of data that are looked at to make them."""
        known = getattr(self.inner_function, "hessian_blocks", None)
        return known(y) if known else (None, self.ops.size(y), 1.0)

    def hessian(self, x: Tree, y: Tree, rows: Tree, beside: Tree = None) -> Any:
        """grad_yy g as a matrix, or as a stack of its blocks, in the order of `ops.ravel`.

        On a sample, `beside` are the rows that it is one of.
        """
        if self.hessian_blocks(y)[0] is not None and self.ops.was_cut() is not True:
            return self.inner_function.hessian(x, y)  # type: ignore[attr-defined]
        return self._derivatives.hessian(on_rows(self.inner_function, rows, beside), x, y)

    def hessian_price(self, x: Tree, y: Tree, rows: Tree) -> float:
        """What another grad_yy g costs, in products with it."""
        return self.ops.hessian_price(on_rows(self.inner_function, rows), x, y)


class Zeros:
    """The part of `Ops` that evaluates functions, without evaluating them.

    Where a limit of time ends the loops of a step, the lines after them still ask for a gradient or
    two. The run leaves such a step out (run/steps.py), so nobody uses what they get.
    """

    def __init__(self, ops: Ops):
        self._ops = ops

    def value(self, fn: Any, x: Tree, y: Tree, /) -> Scalar:
        return 0.0

    def value_and_grads(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
        return 0.0, self._ops.zeros_like(x), self._ops.zeros_like(y)

    def grad_y(self, fn: Any, x: Tree, y: Tree, /) -> Tree:
        return self._ops.zeros_like(y)

    def value_and_grad_y(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
        return 0.0, self._ops.zeros_like(y)

    def products(self, fn: Any, x: Tree, y: Tree, /) -> Callable:
        zeros = self._ops.zeros_like
        return lambda v, wrt: (zeros(x), zeros(y)) if wrt == "xy" else zeros(x if wrt == "x" else y)

    def linearize(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
        return self._ops.zeros_like(y), self.products(fn, x, y)

    def hessian(self, fn: Any, x: Tree, y: Tree, /) -> Any:
        return self._ops.matrix(lambda unit: 0 * unit, self._ops.size(y), y)


class OnRows(NamedTuple):
    """A function of (x, y, batch) as one of (x, y); an array library may look at the rows."""

    function: Callable
    rows: Tree
    beside: Tree = None  # of which `rows` are a sample

    def __call__(self, x: Tree, y: Tree) -> Scalar:
        return self.function(x, y, self.rows)


def on_rows(function: Callable, rows: Tree, beside: Tree = None) -> Any:
    """A function on the given rows, or as it is where it takes none."""
    return function if rows is None else OnRows(function, rows, beside)


def oracles(outer: Callable, inner: Callable, *, like: tuple[Tree, Tree]) -> Oracles:
    """The oracles of a problem, for stepping a method by hand.

    Parameters
    ----------
    outer, inner : f(x, y) and g(x, y), or f(x, y, batch) and g(x, y, batch).
    like : the pair (x0, y0); its arrays decide between JAX and torch.

    Example
    -------
    >>> import jax.numpy as jnp, untuned
    >>> f = lambda x, y: ((y - 1.0) ** 2).sum()
    >>> g = lambda x, y: ((y - x) ** 2).sum()
    >>> x0, y0 = jnp.zeros(2), jnp.zeros(2)
    >>> o = untuned.oracles(f, g, like=(x0, y0))
    >>> solver = untuned.solvers.get("s-tfbo")()
    >>> state = solver.init(o, x0, y0)
    >>> state, info = solver.step(o, state, untuned.Batch())
    >>> float(info.outer)
    2.0
    """
    libraries = {array_libraries.library_of(leaf) for leaf in array_libraries.leaves_of(like)}
    library = "torch" if "torch" in libraries else "jax"
    return Oracles(array_libraries.get(library), outer, inner)
