"""The derivatives of a function of (x, y, rows), by name, as JAX traces them.

JAX takes long for a trace, so there are few: of the value with its gradients, and of these with all
products. Each derivative is a part of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from untuned.ops import Tree
from untuned.ops import jax as base
from untuned.ops.traced.listing import Listing, Reader
from untuned.ops.traced.rules import UnknownError
from untuned.ops.traced.tangents import ROWS, UNITS, V, X, Y


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


def everything(fn: Callable) -> Callable:
    """(x, y, v, ...) -> (value and gradients, their derivatives along v of y), in one trace."""

    def all_of_them(x: Tree, y: Tree, v: Tree, *rows: Tree) -> Tree:
        return jax.jvp(
            lambda y: jax.value_and_grad(fn, argnums=(0, 1))(x, y, *rows), (y,), (v,)
        )  # fmt: skip

    return all_of_them


# What each derivative is of the value with its gradients, and of everything.
OF_GRADIENTS: dict[str, Callable] = {
    "value": lambda result: result[0],
    "value_and_grads": lambda result: result,
    "value_and_grad_y": lambda result: (result[0], result[1][1]),
    "grad_y": lambda result: result[1][1],
}
OF_EVERYTHING: dict[str, Callable] = {
    "along x": lambda result: result[1][1][0],
    "along y": lambda result: result[1][1][1],
    "along xy": lambda result: result[1][1],
} | {kind: lambda result, of=of: of(result[0]) for kind, of in OF_GRADIENTS.items()}


def columns(product: Callable) -> Callable:
    """(x, y, units, ...) -> the rows of grad_yy fn that belong to some unit vectors."""

    def of_units(x: Tree, y: Tree, units: Any, *rows: Tree) -> Any:
        return jax.vmap(
            lambda unit: base.ravel(product(x, y, base.unravel(unit, y), *rows))
        )(units)  # fmt: skip

    return of_units


class Traced(NamedTuple):
    """A function as JAX has traced it."""

    closed: Any
    structure: Any  # of what the function gives

    def __call__(self, *arguments: Tree) -> Tree:
        """The function again, without what Python did in it."""
        leaves = jax.tree.leaves(arguments)
        outputs = jax.core.eval_jaxpr(self.closed.jaxpr, self.closed.consts, *leaves)
        return jax.tree.unflatten(self.structure, outputs)


def traced(function: Callable, arguments: tuple[Tree, ...]) -> Traced:
    """The function, traced for such arguments."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return Traced(closed, jax.tree.structure(shape))


class Whole(NamedTuple):
    """Several derivatives in one trace."""

    traced: Traced
    listing: Listing
    groups: list[int]  # what each of the arrays that are read is

    def part(self, choose: Callable[[Tree], Tree], groups: list[int]) -> Listing:
        """The one that is chosen of what the trace gives, as a function of fewer arguments."""
        inputs = zip(self.listing.inputs, self.groups, strict=True)
        tree = choose(jax.tree.unflatten(self.listing.structure, self.listing.outputs))
        return Listing(
            [place for place, group in inputs if group in groups],
            jax.tree.leaves(tree), jax.tree.structure(tree),
        )  # fmt: skip


class Derivatives:
    """The list of operations of a function and its derivatives, and the places of each of them."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.listings: dict[str, Listing] = {}
        self._wholes: dict[str, Whole | None] = {}

    def read(self, kind: str, function: Callable, arguments: tuple[Tree, ...]) -> Listing:
        """The places of a derivative."""
        given = groups(kind, arguments)
        whole = self._whole("everything", kind.startswith("along"), everything, function, arguments)
        if whole is not None and kind in OF_EVERYTHING:
            return whole.part(OF_EVERYTHING[kind], given)
        make = derivative(kind, function)
        if whole is not None and kind == "columns":
            known = whole.traced  # from which columns are traced sooner than from the function
            make = columns(lambda *arguments: OF_EVERYTHING["along y"](known(*arguments)))
        elif kind in OF_GRADIENTS:
            gradients = partial(derivative, "value_and_grads")
            whole = self._whole("gradients", kind != "value", gradients, function, arguments)
            if whole is not None:
                return whole.part(OF_GRADIENTS[kind], given)
        return self.reader.read(traced(make, arguments), arguments, given)

    def _whole(
        self, name: str, is_due: bool, make: Callable, function: Callable,
        arguments: tuple[Tree, ...],
    ) -> Whole | None:  # fmt: skip
        """Several derivatives at once, traced if due; None where they cannot be had together."""
        if is_due and name not in self._wholes:
            given = groups("along" if name == "everything" else "", arguments)
            try:
                found = traced(make(function), arguments)
                listing = self.reader.read(found, arguments, given)
            except (TypeError, ValueError, NotImplementedError, UnknownError):
                # One of them may be missing, as of a function with a reverse rule of its own.
                # Whoever asks for that one alone is told what is wrong.
                self._wholes[name] = None
            else:
                counts = [len(jax.tree.leaves(argument)) for argument in arguments]
                self._wholes[name] = Whole(found, listing, np.repeat(given, counts).tolist())
        return self._wholes.get(name)

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
