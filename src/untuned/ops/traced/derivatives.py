"""The derivatives of a function of (x, y, rows) that programs are made of, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from untuned.ops import Tree
from untuned.ops import jax as base


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
