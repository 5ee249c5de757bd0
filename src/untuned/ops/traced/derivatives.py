"""The derivatives of a function of (x, y, rows), by name, as JAX traces them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from untuned.ops import Tree
from untuned.ops import jax as base
from untuned.ops.traced.listing import Listing, Reader
from untuned.ops.traced.rules import UnknownError
from untuned.ops.traced.tangents import ROWS, UNITS, V, X, Y

FIRST_ORDER = {"value", "value_and_grads", "value_and_grad_y", "grad_y"}


def derivative(kind: str, fn: Callable, forward: bool = True) -> Callable:
    """`kind` is a name of Ops, "along x", "along y" or "along xy", or "columns".

    Products are forward over reverse, or else reverse over reverse, for functions with a reverse
    rule of their own and no forward one.
    """
    if kind == "value":
        return lambda *arguments: fn(*arguments)  # a function of its own, traced for this run
    if kind == "value_and_grads":
        return jax.value_and_grad(fn, argnums=(0, 1))
    if kind == "value_and_grad_y":
        return jax.value_and_grad(fn, argnums=1)
    if kind == "grad_y":
        return jax.grad(fn, argnums=1)
    if kind == "columns":
        return columns(_product("y", fn, forward))
    return _product(kind.removeprefix("along "), fn, forward)


def _product(wrt: str, fn: Callable, forward: bool) -> Callable:
    """(x, y, v, ...) -> grad_yy fn v ("y"), grad_xy fn v ("x") or both ("xy")."""
    places: Any = {"x": 0, "y": 1, "xy": (0, 1)}[wrt]

    def product(x: Tree, y: Tree, v: Tree, *rows: Tree) -> Tree:
        if forward:
            return jax.jvp(lambda y: jax.grad(fn, argnums=places)(x, y, *rows), (y,), (v,))[1]
        _, pull = jax.vjp(lambda x, y: jax.grad(fn, argnums=1)(x, y, *rows), x, y)
        in_x, in_y = pull(v)
        return {"x": in_x, "y": in_y, "xy": (in_x, in_y)}[wrt]

    return product


def columns(product: Callable) -> Callable:
    """(x, y, units, ...) -> the rows of grad_yy fn that belong to some unit vectors."""

    def of_units(x: Tree, y: Tree, units: Any, *rows: Tree) -> Any:
        return jax.vmap(
            lambda unit: base.ravel(product(x, y, base.unravel(unit, y), *rows))
        )(units)  # fmt: skip

    return of_units


class Derivatives:
    """The list of operations of a function and its derivatives, and the places of each of them."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.listings: dict[str, Listing] = {}

    def read(self, kind: str, function: Callable, arguments: tuple[Tree, ...]) -> Listing:
        """The places of a derivative."""
        closed, shape = jax.make_jaxpr(derivative(kind, function), return_shape=True)(*arguments)
        structure = jax.tree.structure(shape)
        return self.reader.read(closed, structure, arguments, groups(kind, arguments))

    def price(self, variables: int, remembers: bool) -> float:
        """What another Hessian costs, in products with it, by counting their operations.

        Parts that depend on rows alone may be remembered. That counts only where it makes much of a
        difference, so that runs on one device and on several agree. A power of two: a factor
        written differently must not change when Hessians are made, and a price that is wrong by
        half costs little (docs/lab/clock.md).
        """
        uses = self.reader.uses
        steps = self.reader.needed(self.listings["along y"].outputs)
        steps = [step for step in steps if uses[step.writes] & V]
        product, each = sum(step.work for step in steps), sum(step.each for step in steps)
        changing = sum(step.each for step in steps if uses[step.writes] & (X | Y))
        if remembers and 2 * changing < each:
            each = changing
        if not product or not each:
            return float(variables)
        return min(float(variables), 2.0 ** round(math.log2(variables * each / product)))


def groups(kind: str, arguments: tuple[Tree, ...]) -> list[int]:
    """What each argument is: x, y, perhaps vectors, perhaps rows."""
    along = [UNITS] if kind == "columns" else [V] if kind.startswith("along") else []
    return [X, Y, *along, ROWS][: len(arguments)]


def price_of_compiled(fn: Any, x: Tree, y: Tree) -> float | None:
    """The price where all is computed each time; None where an operation is not known."""
    function, rows = (fn.function, (fn.rows,)) if hasattr(fn, "rows") else (fn, ())
    shapes = lambda tree: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), tree)
    x, y, rows = shapes((x, y, rows))
    found = Derivatives()
    try:
        found.listings["along y"] = found.read("along y", function, (x, y, y, *rows))
    except (UnknownError, TypeError, ValueError):
        return None
    return found.price(sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(y)), False)
