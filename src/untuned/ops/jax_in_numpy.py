"""Functions of JAX evaluated in NumPy, operation by operation, so that nothing is compiled.

JAX traces a function, and with it the derivatives it is asked for, into a list of operations. XLA
takes some tenths of a second to make a program of each, which on little data is longer than all
that the program is ever used for. So here the list is carried out as it is: operations whose
results nobody reads are left out, equal ones are done once, and arrays go as soon as they are read.

Only operations that NumPy has, on real numbers of 32 and 64 bits, are known. Of a function with any
other one there is no such evaluation, and it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from untuned.ops import Tree
from untuned.ops.jax_numpy_rules import UnknownError, rules

CALLS = {  # operations that only hold others
    "jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat",
}  # fmt: skip
# Views of what is there, and products, which are as quick as compiled ones.
FREE = {"dot_general", "broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "split"}
KINDS = {"float32", "float64", "int32", "int64", "uint32", "uint64", "int8", "uint8", "bool"}


class Operation(NamedTuple):
    """A function of NumPy, the places it reads and the one it writes."""

    function: Callable
    reads: tuple[int, ...]
    writes: int
    entries: int  # of its result, where computing them takes longer than in a compiled program
    factor: int  # entries of the larger factor of a product


class Listing(NamedTuple):
    """The operations of a function, in order."""

    operations: list[Operation]
    inputs: list[int]
    outputs: list[int]
    constants: dict[int, Any]
    structure: Any  # of what the function gives

    @property
    def entries(self) -> int:
        """The entries of all results, by which the time it takes goes."""
        return sum(operation.entries for operation in self.operations)

    @property
    def factor(self) -> int:
        """The entries of the largest array that a product reads."""
        return max((operation.factor for operation in self.operations), default=0)


def listing(function: Callable, *arguments: Tree) -> Listing | None:
    """The operations of `function` on such arguments; None where NumPy does not have one."""
    traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    try:
        return _Reader().read(traced, jax.tree.structure(shape))
    except UnknownError:
        return None


def evaluation(listing: Listing) -> Callable[..., Tree]:
    """The function that carries a list out, on arrays that NumPy can see."""
    last = {place: n for n, step in enumerate(listing.operations) for place in step.reads}
    kept = {*listing.outputs, *listing.constants}
    steps = [
        (
            step.function, step.reads, step.writes,
            [place for place in set(step.reads) if last[place] == n and place not in kept],
        )
        for n, step in enumerate(listing.operations)
    ]  # fmt: skip

    def evaluate(*arguments: Tree) -> Tree:
        places: dict[int, Any] = dict(listing.constants)
        leaves = map(np.asarray, jax.tree.leaves(arguments))
        places.update(zip(listing.inputs, leaves, strict=True))
        with np.errstate(all="ignore"):  # as on JAX, what is not finite shows in the result
            for function, reads, writes, over in steps:
                places[writes] = function(*[places[k] for k in reads])
                for place in over:
                    del places[place]
        # Copies where a result is an argument, or a view of one, which a caller may change.
        outputs = [np.array(places[k]) for k in listing.outputs]
        return jax.tree.unflatten(listing.structure, outputs)

    return evaluate


class _Reader:
    """Turns what JAX has traced into operations on numbered places."""

    def __init__(self) -> None:
        self.count = 0
        self.operations: list[Operation] = []
        self.constants: dict[int, Any] = {}
        self.known: dict[Any, int] = {}

    def read(self, traced: Any, structure: Any) -> Listing:
        inputs = [self._place(variable.aval) for variable in traced.jaxpr.invars]
        outputs = self._inline(traced, inputs)
        needed, operations = set(outputs), []
        for operation in reversed(self.operations):
            if operation.writes in needed:
                needed.update(operation.reads)
                operations.append(operation)
        constants = {k: value for k, value in self.constants.items() if k in needed}
        return Listing(operations[::-1], inputs, outputs, constants, structure)

    def _place(self, aval: Any) -> int:
        if str(getattr(aval, "dtype", None)) not in KINDS:
            raise UnknownError
        self.count += 1
        return self.count

    def _constant(self, value: Any, aval: Any) -> int:
        array = np.asarray(value, aval.dtype)
        key = ("constant", array.dtype, array.item()) if array.ndim == 0 else ("array", id(value))
        if key not in self.known:
            place = self.known[key] = self._place(aval)
            self.constants[place] = array
        return self.known[key]

    def _inline(self, traced: Any, inputs: list[int]) -> list[int]:
        jaxpr = traced.jaxpr
        places = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, traced.consts, strict=True):
            places[variable] = self._constant(value, variable.aval)

        def place_of(variable: Any) -> int:
            if hasattr(variable, "val"):  # a number in the text
                return self._constant(variable.val, variable.aval)
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
        """The places of an equation's results; those of an equal one where there is one."""
        if equation.effects:
            raise UnknownError
        name, written = equation.primitive.name, []
        for number, (function, variable) in enumerate(
            zip(rules(equation), equation.outvars, strict=True)
        ):
            key = (name, number, reads, str(equation.params))
            if key not in self.known:
                place = self.known[key] = self._place(variable.aval)
                entries = 0 if name in FREE else variable.aval.size
                factor = 0
                if name == "dot_general":
                    factor = max(given.aval.size for given in equation.invars)
                self.operations.append(Operation(function, reads, place, entries, factor))
            written.append(self.known[key])
        return written
