"""Functions of JAX evaluated in NumPy, operation by operation, so that nothing is compiled.

JAX traces a function, and with it the derivatives it is asked for, into a list of operations. XLA
takes some tenths of a second to make a program of each, which on little data is longer than all
that the program is ever used for. So here the list is carried out as it is (listing.py):
operations whose results nobody reads are left out, equal ones are done once, and arrays go as soon
as they are read.

**What is known is not computed again.** A gradient at another x and the same y needs no pass over
the rows where rows and x do not meet; a product at a point whose gradient was taken needs two in
place of three; the Hessian of a quadratic function is made once. So results stay that another
evaluation reads, or this one with other arguments, for as long as the arguments they depend on
stay, and as long as all of them take no more than half the memory of the rows.

Only operations that NumPy has, on real numbers of 32 and 64 bits, are known. Of a function with any
other one there is no such evaluation, and it is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from untuned.ops import Tree
from untuned.ops import jax as base
from untuned.ops.traced.listing import Listing, Operation, Reader
from untuned.ops.traced.regrouping import CutError
from untuned.ops.traced.rules import UnknownError
from untuned.ops.traced.tangents import ROWS, UNITS, V, X, Y, groups

KEPT = 0.5  # of the memory of the rows, for what may be needed again
FEW = 2**16  # bytes that are kept whatever the rows take
NO_UNITS = -1
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


class Step(NamedTuple):
    """An operation to do, what its result is on JAX, and the places that are not read after it."""

    function: Callable
    reads: tuple[int, ...]
    writes: int
    dtype: Any
    shape: tuple[int, ...]
    over: list[int]


class Plan(NamedTuple):
    """Operations to do, and the places of results that stay."""

    steps: list[Step]
    stays: list[int]


class Sheet:
    """The operations of a function of (x, y, rows) and of its derivatives, and known results."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._listings: dict[str, Listing] = {}
        self._plans: dict[Any, Plan] = {}
        self._border: set[int] = set()
        self._given: dict[int, list[Any]] = {}  # the last arguments, by what they are
        self._rows: list[np.ndarray] = []
        # Results by place; those that depend on units by the first of these.
        self._known: dict[int, dict[int, np.ndarray]] = {NO_UNITS: {}}
        self._kept = 0

    def add(
        self, kind: str, function: Callable, arguments: tuple[Tree, ...],
        fits: Callable[[list[Operation]], bool] = lambda operations: True,
    ) -> bool:  # fmt: skip
        """Read a function's derivative; whether NumPy has all of its operations, and they fit."""
        try:
            made = jax.make_jaxpr(derivative(kind, function), return_shape=True)(*arguments)
            listing = self._reader.read(*made, arguments, groups(kind, arguments))
        except (UnknownError, TypeError, ValueError):
            return False  # compiling it says what is wrong
        if not fits(self._reader.needed(listing.outputs)):
            return False
        self._listings[kind] = listing
        self._plans.clear()
        self._border = self._find_border()
        return True

    def price(self, variables: int, remembers: bool) -> float:
        """What another Hessian costs, in products with it, by counting their operations.

        Parts that depend on rows alone may be remembered. That counts only where it makes much of a
        difference, so that runs on one device and on several agree. A power of two: a factor
        written differently must not change when Hessians are made, and a price that is wrong by
        half costs little (docs/lab/clock.md).
        """
        uses = self._reader.uses
        steps = self._reader.needed(self._listings["along y"].outputs)
        steps = [step for step in steps if uses[step.writes] & V]
        product, each = sum(step.work for step in steps), sum(step.each for step in steps)
        changing = sum(step.each for step in steps if uses[step.writes] & (X | Y))
        if remembers and 2 * changing < each:
            each = changing
        if not product or not each:
            return float(variables)
        return min(float(variables), 2.0 ** round(math.log2(variables * each / product)))

    def evaluate(self, kind: str, *arguments: Tree) -> Tree:
        """A derivative that was added, on arrays that NumPy can see."""
        listing = self._listings[kind]
        leaves, units = self._take_in(kind, arguments)
        places = dict(self._reader.constants)
        places.update(zip(listing.inputs, leaves, strict=True))
        for sparse in self._reader.sparse.values():
            # Other rows than those looked at may come and go: products with them are dense.
            same = self._given[ROWS][sparse.number] is sparse.made_of
            places[sparse.place] = sparse.array if same else self._rows[sparse.number]
        of_units = self._known.setdefault(units, {})
        places.update(self._known[NO_UNITS])
        places.update(of_units)
        plan = self._plan(kind, frozenset(self._known[NO_UNITS]) | frozenset(of_units))
        try:
            self._carry_out(plan, places)
        except CutError:  # the step that asks is undone, so nobody reads what it is given
            shapes = self._reader.shapes
            zeros = [np.zeros(shapes[k], self._reader.kinds[k]) for k in listing.outputs]
            return jax.tree.unflatten(listing.structure, zeros)
        for place in plan.stays:
            self._keep(place, places[place], units)
        # Copies, since what is kept must not change, and a caller may change a result.
        outputs = [np.array(places[k]) for k in listing.outputs]
        return jax.tree.unflatten(listing.structure, outputs)

    def _carry_out(self, plan: Plan, places: dict[int, Any]) -> None:
        with np.errstate(all="ignore"):  # as on JAX, what is not finite shows in the result
            for function, reads, writes, dtype, shape, over in plan.steps:
                result = function(*[places[k] for k in reads])
                if result.dtype != dtype or result.shape != shape:  # NumPy promotes otherwise
                    result = np.broadcast_to(np.asarray(result, dtype), shape)
                places[writes] = result
                for place in over:
                    del places[place]

    def _take_in(self, kind: str, arguments: tuple[Tree, ...]) -> tuple[list[Any], int]:
        """The arguments' arrays, after letting go of what depends on those that have changed."""
        changed, units = 0, NO_UNITS
        arrays: list[Any] = []
        for group, argument in zip(groups(kind, arguments), arguments, strict=True):
            leaves = jax.tree.leaves(argument)
            before = self._given.get(group)
            if group == ROWS:
                if before is None or not all(map(_is, leaves, before)):
                    changed |= group
                    self._rows = [np.asarray(leaf) for leaf in leaves]
                self._given[group], leaves = leaves, self._rows
            else:
                leaves = [np.asarray(leaf) for leaf in leaves]
                if group == UNITS:
                    units = int(leaves[0][0].argmax())
                elif group != V:
                    if before is None or not all(map(_equal, leaves, before)):
                        changed |= group
                    self._given[group] = leaves
            arrays += leaves
        if changed:
            uses = self._reader.uses
            for known in self._known.values():
                for place in [place for place in known if uses[place] & changed]:
                    self._kept -= _memory(known.pop(place))
        return arrays, units

    def _keep(self, place: int, array: Any, units: int) -> None:
        known = self._known[units if self._reader.uses[place] & UNITS else NO_UNITS]
        most = max(FEW, KEPT * sum(leaf.nbytes for leaf in self._rows))
        array = np.asarray(array)
        lasts = place in self._reader.lasting
        if place not in known and (lasts or self._kept + _memory(array) <= most):
            known[place] = array
            self._kept += _memory(array)

    def _plan(self, kind: str, known: frozenset[int]) -> Plan:
        key = (kind, known)
        if key not in self._plans:
            self._plans[key] = self._make_plan(kind, known)
        return self._plans[key]

    def _make_plan(self, kind: str, known: frozenset[int]) -> Plan:
        reader, outputs = self._reader, self._listings[kind].outputs
        found = self._reader.needed(outputs, known)
        stays = [one.writes for one in found if one.writes in self._border]
        last = {place: n for n, one in enumerate(found) for place in one.reads}
        kept = {*outputs, *stays, *reader.constants}
        steps = [
            Step(
                one.function, one.reads, one.writes, reader.kinds[one.writes],
                reader.shapes[one.writes],
                [place for place in set(one.reads) if last[place] == n and place not in kept],
            )
            for n, one in enumerate(found)
        ]  # fmt: skip
        return Plan(steps, stays)

    def _find_border(self) -> set[int]:
        """Places whose readers depend on more than they do, or belong to other derivatives."""
        reader = self._reader
        kinds: dict[int, set[str]] = {}
        for kind, listing in self._listings.items():
            for operation in self._reader.needed(listing.outputs):
                kinds.setdefault(operation.writes, set()).add(kind)
        border = {place for listing in self._listings.values() for place in listing.outputs}
        for operation in reader.operations:
            for place in operation.reads:
                by = kinds.get(operation.writes)
                if by and place in kinds:
                    more = reader.uses[operation.writes] & ~reader.uses[place]
                    if more or kinds[place] - by:
                        border.add(place)
        own = {one.writes for one in reader.operations} - reader.views
        return {place for place in border & own if not reader.uses[place] & V}


def price_of_compiled(fn: Any, x: Tree, y: Tree) -> float | None:
    """The price where all is computed each time; None where an operation is not known."""
    function, rows = (fn.function, (fn.rows,)) if hasattr(fn, "rows") else (fn, ())
    shapes = lambda tree: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), tree)
    x, y, rows = shapes((x, y, rows))
    sheet = Sheet()
    known = sheet.add("along y", function, (x, y, y, *rows))
    return sheet.price(base.size(y), False) if known else None


def _memory(array: np.ndarray) -> int:
    """Bytes, of which an array that only repeats others has few."""
    lengths = [n for n, step in zip(array.shape, array.strides, strict=True) if step]
    return array.itemsize * math.prod(lengths)


def _is(a: Any, b: Any) -> bool:
    return a is b


def _equal(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(a, b)
