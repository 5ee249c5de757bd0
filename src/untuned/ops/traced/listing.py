"""A function and its derivatives, as JAX has traced them, as one list of operations in NumPy.

All derivatives of a function share the list, and equal operations are one. Every array in it has a
number, its place, and a mask of the arguments that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np

from untuned.ops import Tree
from untuned.ops.traced import products, regrouping, sparse_rows, tangents
from untuned.ops.traced.rules import FLOATS, PLAIN, UnknownError, rules
from untuned.ops.traced.tangents import ROWS, TANGENT, UNITS

CALLS = {  # operations that only hold others
    "jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat",
}  # fmt: skip
# Views of what is there; no numbers are computed.
VIEWS = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "split"}
KINDS = {"float32", "float64", "int32", "int64", "uint32", "uint64", "int8", "uint8", "bool"}
PLAIN_WORK, SLOW_WORK = 2, 10  # what an entry takes in the time that a product reads a number


class Operation(NamedTuple):
    """A function of NumPy, the places it reads and the one it writes."""

    function: Callable
    reads: tuple[int, ...]
    writes: int
    entries: int  # of its result, where computing them takes longer than in a compiled program
    factor: int  # entries of the larger factor of a product
    work: float  # in numbers that a product reads
    each: float  # the work for one of many vectors at a time, of which there is one here


class Listing(NamedTuple):
    """Which places a function reads and writes."""

    inputs: list[int]
    outputs: list[int]
    structure: Any  # of what the function gives


class Reader:
    """Turns what JAX has traced into operations on numbered places."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.constants: dict[int, Any] = {}
        self.uses: dict[int, int] = {}  # masks
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.views: set[int] = set()  # of arguments
        self.zeros: set[int] = set()
        self.narrow: dict[int, int] = {}  # what was spread, with axes of length one
        self.scaled: dict[int, tuple[int, int]] = {}  # a factor and a base, see tangents
        self.sparse: dict[int, sparse_rows.SparseRows] = {}  # by the place of the rows
        self.products: dict[int, regrouping.Product] = {}
        self.made: dict[int, tuple[str, tuple[int, ...]]] = {}  # by which operation, of what
        self.lasting: set[int] = set()  # what is worth its memory as long as the rows stay
        self._given: set[int] = set()  # the vectors themselves, or parts of them
        self._looked_at: set[int] = set()  # rows, whether they are mostly zeros
        self._known: dict[Any, int] = {}
        self._held: list[Any] = []  # constants, by whose ids they are known: none may go
        self.kinds: dict[int, Any] = {}
        self._count = 0

    def read(
        self, closed: Any, shape: Tree, arguments: tuple[Tree, ...], groups: list[int]
    ) -> Listing:
        """The places of a function's arguments and results; `groups` says what arguments are."""
        leaves = [jax.tree.leaves(argument) for argument in arguments]
        marks = [(g, n) for g, part in zip(groups, leaves, strict=True) for n in range(len(part))]
        inputs = [
            self._input(variable.aval, *mark)
            for variable, mark in zip(closed.jaxpr.invars, marks, strict=True)
        ]
        for place, (group, number), leaf in zip(inputs, marks, chain(*leaves), strict=True):
            if group == ROWS:
                self._look_at_rows(place, number, leaf)
        outputs = [self._whole(place) for place in self._inline(closed, inputs)]
        return Listing(inputs, outputs, jax.tree.structure(shape))

    def needed(
        self, outputs: list[int], known: frozenset[int] = frozenset()
    ) -> list[Operation]:  # fmt: skip
        """The operations by which some places are written, in order."""
        needed, found = set(outputs) - known, []
        for operation in reversed(self.operations):
            if operation.writes in needed:
                needed.update(set(operation.reads) - known)
                found.append(operation)
        return found[::-1]

    def is_tangent(self, place: int) -> bool:
        """Whether it depends on vectors that a derivative is taken along."""
        return bool(self.uses[place] & TANGENT)

    def is_unit(self, place: int) -> bool:
        """Whether it has unit vectors, as for the columns of a Hessian."""
        return bool(self.uses[place] & UNITS)

    def same_kind(self, place: int, equation: Any) -> bool:
        """Whether a result is of the kind of what is there."""
        return bool(self.kinds[place] == equation.outvars[0].aval.dtype)

    def is_given(self, place: int) -> bool:
        """Whether it is the vectors themselves, or parts of them."""
        return place in self._given

    def note_transposed(self, base: int, turned: int, order: tuple[int, ...]) -> None:
        """Remember a product of rows whose axes were put into another order."""
        product = self.products.get(base)
        if product is not None:
            self.products[turned] = product._replace(rows=order.index(product.rows))

    def one(self, like: int) -> int:
        """The place of the number one, of the kind of another."""
        return self._number(1.0, like)

    def zero(self, like: int) -> int:
        """The place of zero."""
        return self._number(0.0, like)

    def _number(self, value: float, like: int) -> int:
        return self._constant(np.asarray(value, self.kinds[like]))

    def apply(self, name: str, *reads: int) -> int:
        """The place of a plain operation's result."""
        if name == "mul" and self.one(reads[-1]) in reads:
            return next((p for p in reads if p != self.one(reads[-1])), reads[0])
        function = _choose if name == "select_n" else (PLAIN | FLOATS)[name]
        shape = np.broadcast_shapes(*[self.shapes[place] for place in reads])
        return self.emit(name, function, reads, shape, "{}")

    def emit(
        self, name: str, function: Callable, reads: tuple[int, ...], shape: tuple[int, ...],
        parameters: str, number: int = 0, dtype: Any = None, factor: int = 0, work: float = 0.0,
        each: float = 0.0,
    ) -> int:  # fmt: skip
        """The place of an operation's result; that of an equal one where there is one."""
        key = (name, number, reads, parameters)
        if key not in self._known:
            uses = 0
            for place in reads:
                uses |= self.uses[place]
            place = self._known[key] = self._place(shape, dtype or self.kinds[reads[-1]], uses)
            self.made[place] = (name, reads)
            entries = int(np.prod(shape))
            if name in VIEWS:
                work = entries = 0
                if set(reads) <= self.views:
                    self.views.add(place)
            elif name == "dot_general":
                entries = 0
            else:
                work = each = entries * (SLOW_WORK if name in FLOATS else PLAIN_WORK)
            if tangents.is_zero(self, name, reads):
                self.zeros.add(place)
            self.operations.append(Operation(function, reads, place, entries, factor, work, each))
        return self._known[key]

    def _place(self, shape: tuple[int, ...], dtype: Any, uses: int) -> int:
        if str(dtype) not in KINDS:
            raise UnknownError
        self._count += 1
        self.shapes[self._count], self.kinds[self._count] = tuple(shape), dtype
        self.uses[self._count] = uses
        return self._count

    def _input(self, aval: Any, group: int, number: int) -> int:
        key = ("input", group, number, aval.shape, str(aval.dtype))
        if key not in self._known:
            place = self._known[key] = self._place(aval.shape, aval.dtype, group)
            self.views.add(place)
            if group & TANGENT:
                self._given.add(place)
        return self._known[key]

    def _look_at_rows(self, place: int, number: int, leaf: Any) -> None:
        if place not in self._looked_at:
            self._looked_at.add(place)
            array = sparse_rows.of(leaf)
            if array is not None:
                also = self._place(array.shape, self.kinds[place], ROWS)
                self.sparse[place] = sparse_rows.SparseRows(also, number, leaf, array)

    def _constant(self, value: Any, dtype: Any = None) -> int:
        array = np.asarray(value, dtype)
        is_number = array.ndim == 0
        # By its bytes, since 0.0 equals -0.0.
        key = ("constant", array.dtype, array.tobytes()) if is_number else ("array", id(value))
        if key not in self._known:
            place = self._known[key] = self._place(array.shape, array.dtype, 0)
            self.constants[place] = array
            self._held.append(value)
            if is_number and array == 0:
                self.zeros.add(place)
        return self._known[key]

    def _whole(self, place: int) -> int:
        """The place of what is kept as a factor and a base."""
        return self.apply("mul", *self.scaled[place]) if place in self.scaled else place

    def _inline(self, closed: Any, inputs: list[int]) -> list[int]:
        jaxpr = closed.jaxpr
        places = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
            places[variable] = self._constant(value, variable.aval.dtype)

        def place_of(variable: Any) -> int:
            if hasattr(variable, "val"):  # a number in the text
                return self._constant(variable.val, variable.aval.dtype)
            return places[variable]

        for equation in jaxpr.eqns:
            reads = tuple(place_of(variable) for variable in equation.invars)
            if equation.primitive.name in CALLS:
                inside = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
                if not hasattr(inside, "consts"):
                    raise UnknownError
                written = self._inline(inside, list(reads))
            else:
                written = self._operations(equation, reads)
            places.update(zip(equation.outvars, written, strict=True))
        return [place_of(variable) for variable in jaxpr.outvars]

    def _operations(self, equation: Any, reads: tuple[int, ...]) -> list[int]:
        """The places of an equation's results."""
        if equation.effects or not equation.outvars:  # the rows of an empty array, one by one
            raise UnknownError
        name, functions = equation.primitive.name, rules(equation)
        scaled = tangents.scaled(self, equation, reads)
        if scaled is not None:
            aval = equation.outvars[0].aval
            place = self._place(aval.shape, aval.dtype, self.uses[scaled[1]])
            self.scaled[place] = scaled
            self.uses[place] |= self.uses[scaled[0]]
            if tangents.is_zero(self, name, reads):
                self.zeros.add(place)
            return [place]
        factor, work, each, is_choice = 0, 0.0, 0.0, False
        if name == "dot_general":
            _, work, each = products.size(equation)
            scaling = PLAIN_WORK * min(variable.aval.size for variable in equation.invars)
            regrouped = regrouping.regrouped(
                self, equation, reads, work + scaling, each + scaling
            )  # fmt: skip
            if regrouped is not None:
                return [regrouped]
        whole = reads = tuple(self._whole(place) for place in reads)
        given = [place for place in reads if place in self._given]
        if name == "dot_general":
            made = products.product(self, equation, reads, functions[0], given)
            first, reads, factor, work, each, is_choice = made
            functions = [first]
        written = []
        for number, (function, variable) in enumerate(
            zip(functions, equation.outvars, strict=True)
        ):
            place = self.emit(
                name, function, reads, variable.aval.shape, str(equation.params), number,
                variable.aval.dtype, factor, work, each,
            )  # fmt: skip
            if is_choice:  # a view, or as large as the rows, and quickly made
                self.views.add(place)
            if given and name in tangents.MOVES:
                self._given.add(place)
            if name == "broadcast_in_dim":
                self.narrow[place] = self._narrowed(equation, reads[0])
            if name == "dot_general" and self.is_tangent(place):
                regrouping.note(self, equation, whole, place, work)
            written.append(place)
        return written

    def _narrowed(self, equation: Any, place: int) -> int:
        """What is to be spread along new axes, with length one there."""
        given = equation.invars[0].aval.shape
        shape = [1] * len(equation.params["shape"])
        for axis, length in zip(equation.params["broadcast_dimensions"], given, strict=True):
            shape[axis] = length
        if not given:
            return place
        target = tuple(shape)
        return self.emit("reshape", lambda a: np.reshape(a, target), (place,), target, str(target))


def _choose(which: Any, no: Any, yes: Any) -> Any:
    return np.where(which, yes, no)
