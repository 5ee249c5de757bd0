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
from untuned.ops.traced.derivatives import Derivatives, groups
from untuned.ops.traced.listing import Operation
from untuned.ops.traced.regrouping import CutError
from untuned.ops.traced.rules import UnknownError
from untuned.ops.traced.tangents import ROWS, UNITS, V

KEPT = 0.5  # of the memory of the rows, for what may be needed again
FEW = 2**16  # bytes that are kept whatever the rows take
NO_UNITS = -1


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
        self.derivatives = Derivatives()
        self._reader, self._listings = self.derivatives.reader, self.derivatives.listings
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
            listing = self.derivatives.read(kind, function, arguments)
        except (UnknownError, TypeError, ValueError):
            return False  # compiling it says what is wrong
        if not fits(self._reader.needed(listing.outputs)):
            return False
        self._listings[kind] = listing
        self._plans.clear()
        self._border = self._find_border()
        return True

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


def _memory(array: np.ndarray) -> int:
    """Bytes, of which an array that only repeats others has few."""
    lengths = [n for n, step in zip(array.shape, array.strides, strict=True) if step]
    return array.itemsize * math.prod(lengths)


def _is(a: Any, b: Any) -> bool:
    return a is b


def _equal(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(a, b)
