"""Simplifications for the vectors that a derivative is taken along (tangents).

A derivative is linear in them. An array that operations only scale, entry by entry, by numbers that
do not depend on the vectors, is kept as (factor, base). The factors are multiplied once for all
vectors, and the base is scaled by their product when another operation reads it. If the vectors are
unit vectors, as for the columns of a Hessian, a product with them chooses columns. The Hessian of a
linear model is then X^T (w * X).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from untuned.ops import Tree

if TYPE_CHECKING:
    from untuned.ops.traced.listing import Reader

ROWS, X, Y, V, UNITS = 1, 2, 4, 8, 16  # what an array may depend on
TANGENT = V | UNITS
# Operations after which an array has the same entries as before, in another order.
MOVES = {"split", "slice", "reshape", "squeeze", "expand_dims", "transpose", "copy"}
SAME = {"copy", "convert_element_type"}
SPREADS = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", *SAME}


def groups(kind: str, arguments: tuple[Tree, ...]) -> list[int]:
    """What each argument is: x, y, perhaps vectors, perhaps rows."""
    along = [UNITS] if kind == "columns" else [V] if kind.startswith("along") else []
    return [X, Y, *along, ROWS][: len(arguments)]


def is_zero(reader: Reader, name: str, reads: tuple[int, ...]) -> bool:
    """Whether a result is zero for all numbers that are finite."""
    if name in SPREADS:
        return reads[0] in reader.zeros
    return name == "mul" and any(place in reader.zeros for place in reads)


def scaled(reader: Reader, equation: Any, reads: tuple[int, ...]) -> tuple[int, int] | None:
    """A result as a factor and what it scales, where it is that."""
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    along = [p for p in reads if reader.is_tangent(p) and p not in reader.zeros]
    if not along:
        return None
    one = reader.one(along[0])
    pairs = {place: reader.scaled.get(place, (one, place)) for place in along}
    factor, base = pairs[along[0]]
    if name == "transpose" and along[0] in reader.scaled:
        return _transposed(reader, equation, factor, base)
    if any(pair[1] != base for pair in pairs.values()) or reader.shapes[base] != shape:
        return None
    # What scales: what does not depend on vectors, and nothing where there are none.
    narrow = {place: reader.narrow.get(place, place) for place in reads if place not in pairs}
    factors = [pairs[p][0] if p in pairs else narrow[p] for p in reads]
    none = [place for place in reads if place in reader.zeros]
    if name == "neg" or (name in SAME and reader.same_kind(reads[0], equation)):
        return reader.apply("neg", factor) if name == "neg" else factor, base
    if (name == "mul" and len(along) == 1) or (name == "div" and along == [reads[0]]):
        return reader.apply(name, *factors), base
    if name in ("add", "add_any", "sub") and len(along) + len(none) == 2:
        if none:
            turned = name == "sub" and none == [reads[0]]
            return reader.apply("neg", factor) if turned else factor, base
        return reader.apply("sub" if name == "sub" else "add", *factors), base
    if name == "select_n" and reads[0] not in pairs and len(along) + len(none) == 2:
        zero = reader.zero(base)
        return reader.apply("select_n", factors[0], *[
            zero if place in none else pairs[place][0] for place in reads[1:]
        ]), base  # fmt: skip
    return None


def _transposed(reader: Reader, equation: Any, factor: int, base: int) -> tuple[int, int] | None:
    order = equation.params["permutation"]
    turn = lambda a: np.transpose(a, order)
    if len(reader.shapes[factor]) not in (0, len(order)):
        return None
    key = str(equation.params)
    turned = tuple(reader.shapes[base][k] for k in order)
    new_base = reader.emit("transpose", turn, (base,), turned, key)
    reader.note_transposed(base, new_base, order)
    if not reader.shapes[factor]:
        return factor, new_base
    shape = tuple(reader.shapes[factor][k] for k in order)
    return reader.emit("transpose", turn, (factor,), shape, key), new_base


def chosen(summed: Any, side: int) -> Callable:
    """A product over axes `summed` with an array of units (the first factor, or the second) as a
    choice of entries."""
    of_units, of_other = summed[side], summed[1 - side]
    count = len(of_units)

    def product(a: Any, b: Any) -> Any:
        units, other = (a, b) if side == 0 else (b, a)
        units = np.moveaxis(units, of_units, range(count))
        other = np.moveaxis(other, of_other, range(count))
        where = np.nonzero(units)
        inside, outside, free = where[:count], where[count:], units.shape[count:]
        places = np.ravel_multi_index(outside, free) if free else np.zeros(len(where[0]), int)
        if len(np.unique(places)) < len(places):  # several to be added up
            return np.tensordot(a, b, summed)
        left = other.shape[count:]
        found = np.zeros((int(np.prod(free)), *left), other.dtype)
        found[places] = other[inside] * units[where].reshape(-1, *[1] * len(left))
        found = found.reshape(*free, *found.shape[1:])
        if side == 0:
            return found
        return np.moveaxis(found, range(len(free)), range(-len(free), 0))

    return product
