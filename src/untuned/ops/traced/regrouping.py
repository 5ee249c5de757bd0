"""Two passes over the rows as one product with a matrix that is made once, where that is the same.

Where a function is quadratic in what it makes of the rows, as least squares are, its gradient is
X^T (w * (X y - t)) and a product with its Hessian X^T (w * (X v)), with w and t of the rows alone:

    X^T (w * (X y - t))  =  (X^T (w * X)) y  -  X^T (w * t)

The matrix takes the time of some products, a run makes hundreds, and the Hessian is a choice of its
columns. Rounding is of the same size either way: that of |X^T| |w X| |y|. Values still take a pass,
as there the difference of large numbers would be a small one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.ops.traced import tangents
from untuned.ops.traced.tangents import ROWS, UNITS
from untuned.util import watch

if TYPE_CHECKING:
    from untuned.ops.traced.listing import Reader

MOST_VARIABLES = 1024  # whose matrix takes the time of 64 products; the shortest runs make hundreds
FEWER = 4  # times as many rows that there must be, so that matrices take less memory than rows
AT_ONCE = 64  # columns, between which there is a look at the clock


class CutError(Exception):
    """The time of a run was up before a matrix was made."""


class Product(NamedTuple):
    """What a place was made of: rows times vectors."""

    matrix: int
    variables: int  # its axis that is summed over
    vectors: int
    along: int  # their axis that is summed over
    rows: int  # the axis of rows in the result
    work: float


class Affine(NamedTuple):
    """A place as factor * base + offset, of which only the base, a Product, is not of the rows."""

    factor: int
    base: int
    offset: int | None


def note(reader: Reader, equation: Any, reads: tuple[int, ...], place: int, work: float) -> None:
    """Remember what a place was made of, if it is a product of rows or affine in one."""
    name = equation.primitive.name
    if name == "dot_general":
        product = _product_of(reader, equation, reads, work)
        if product is not None:
            reader.products[place] = product
            reader.affine[place] = Affine(reader.one(place), place, None)
    elif any(read in reader.affine for read in reads):
        affine = _affine(reader, equation, reads)
        if affine is not None and reader.shapes[affine.base] == reader.shapes[place]:
            reader.affine[place] = affine


def _is_fixed(reader: Reader, place: int) -> bool:
    return not reader.uses[place] & ~ROWS


def _product_of(
    reader: Reader, equation: Any, reads: tuple[int, ...], work: float
) -> Product | None:
    summed, together = equation.params["dimension_numbers"]
    fixed = [_is_fixed(reader, place) for place in reads]
    if any(together) or len(summed[0]) != 1 or fixed[0] == fixed[1]:
        return None
    side = fixed.index(True)
    matrix, vectors = reads[side], reads[1 - side]
    axes = len(reader.shapes[vectors])
    if len(reader.shapes[matrix]) != 2 or axes > 2:
        return None
    rows = 0 if side == 0 else axes - 1
    return Product(matrix, summed[side][0], vectors, summed[1 - side][0], rows, work)


def _affine(reader: Reader, equation: Any, reads: tuple[int, ...]) -> Affine | None:
    """The result of an operation, one of whose arguments is affine; None where it is not."""
    name = equation.primitive.name
    known = [reader.affine.get(place) for place in reads]
    first = known[0]
    if len(reads) == 1 and first is not None:
        if name in tangents.SAME and reader.same_kind(reads[0], equation):
            return first
        return _scaled(reader, "neg", first) if name == "neg" else None
    if len(reads) != 2:
        return None
    second = known[1]
    if name in ("add", "add_any", "sub"):
        sign = "sub" if name == "sub" else "add"
        if first is not None and second is not None:
            return _sum(reader, sign, first, second)
        if first is not None and _is_fixed(reader, reads[1]):
            offset = _added(reader, sign, first.offset, reader.thin(reads[1]))
            return first._replace(offset=offset)
        if second is not None and _is_fixed(reader, reads[0]):
            turned = _scaled(reader, "neg", second) if sign == "sub" else second
            return turned._replace(offset=_added(reader, "add", turned.offset, reads[0]))
    if first is not None and name in ("mul", "div") and _is_fixed(reader, reads[1]):
        return _scaled(reader, name, first, reader.thin(reads[1]))
    if second is not None and name == "mul" and _is_fixed(reader, reads[0]):
        return _scaled(reader, name, second, reader.thin(reads[0]))
    return None


def _scaled(reader: Reader, name: str, what: Affine, *by: int) -> Affine:
    offset = None if what.offset is None else reader.apply(name, what.offset, *by)
    return Affine(reader.apply(name, what.factor, *by), what.base, offset)


def _sum(reader: Reader, sign: str, a: Affine, b: Affine) -> Affine | None:
    if a.base != b.base:
        return None
    offset = a.offset if b.offset is None else _added(reader, sign, a.offset, b.offset)
    return Affine(reader.apply(sign, a.factor, b.factor), a.base, offset)


def _added(reader: Reader, sign: str, a: int | None, b: int) -> int:
    if a is not None:
        return reader.apply(sign, a, b)
    return reader.apply("neg", b) if sign == "sub" else b


def regrouped(
    reader: Reader, equation: Any, reads: tuple[int, ...], work: float, each: float
) -> int | None:
    """The place of a product of rows with what is affine in another one, by a matrix made once.

    `work` and `each` are those of the product as it stands, with the scaling before it. The new one
    counts as both passes that it is in place of: an evaluation with its value takes one still.
    """
    summed, together = equation.params["dimension_numbers"]
    if any(together) or len(summed[0]) != 1:
        return None
    for side in (0, 1):
        what, rows = _parts(reader, reads[side]), reads[1 - side]
        if what is None or not _is_fixed(reader, rows) or len(reader.shapes[rows]) != 2:
            continue
        product, axis = reader.products[what.base], summed[1 - side][0]
        if summed[side][0] == product.rows and _is_worth_it(reader, what, product, rows, axis):
            by, weight = _split(reader, what.factor)
            dtype = equation.outvars[0].aval.dtype
            matrix = _matrix(reader, weight, product, rows, axis, dtype)
            place = _times(reader, equation, matrix, product, side, product.work + work, each)
            place = reader.apply("mul", by, place)
            if what.offset is None:
                return place
            fixed = _times_fixed(reader, equation, what.offset, rows, side)
            return reader.apply("add", place, fixed)
    return None


def _times_fixed(reader: Reader, equation: Any, offset: int, rows: int, side: int) -> int:
    """The place of the product with what depends on the rows alone, spread to its whole shape."""
    summed, result = equation.params["dimension_numbers"][0], equation.outvars[0].aval
    shape = equation.invars[side].aval.shape

    def product(offset: Any, rows: Any) -> Any:
        offset = np.broadcast_to(offset, shape)
        return np.tensordot(*((offset, rows) if side == 0 else (rows, offset)), summed)

    key = f"spread {side} {shape} {summed}"
    reads = (offset, rows)
    place = reader.emit("dot_general", product, reads, result.shape, key, 0, result.dtype)
    return reader.lasts(place)


def _parts(reader: Reader, place: int) -> Affine | None:
    if place in reader.scaled:
        factor, base = reader.scaled[place]
        return Affine(factor, base, None) if base in reader.products else None
    if place in reader.products:
        return Affine(reader.one(place), place, None)
    return reader.affine.get(place)


def _is_worth_it(reader: Reader, what: Affine, product: Product, rows: int, axis: int) -> bool:
    shape, axes = reader.shapes[what.factor], len(reader.shapes[what.base])
    shape = (1,) * (axes - len(shape)) + shape
    if not _is_fixed(reader, what.factor):
        return False
    if any(length != 1 for k, length in enumerate(shape) if k != product.rows):
        return False  # it scales other entries of a row in another way
    count, across = reader.shapes[rows][axis], reader.shapes[rows][1 - axis]
    down = reader.shapes[product.matrix][product.variables]
    cheap = 2 * across * down <= MOST_VARIABLES * (across + down)
    is_less = across * down <= 2 * product.work  # than the two passes, also over sparse rows
    return cheap and is_less and FEWER * max(across, down) <= count


def _split(reader: Reader, factor: int) -> tuple[int, int]:
    """A number and a weight of each row whose product is the factor; of either there may be none.

    Derivatives multiply in different orders, and all of them are to find the same matrix.
    """
    parts, left = [], [factor]
    while left:
        name, reads = reader.made.get(part := left.pop(), ("", ()))
        left += reads if name == "mul" else ()
        parts += [] if name == "mul" else [part]
    by = weight = reader.one(factor)
    for part in sorted(parts):
        if np.prod(reader.shapes[part]) == 1:
            by = reader.apply("mul", by, part)
        else:
            weight = reader.apply("mul", weight, part)
    return by, weight


def _matrix(
    reader: Reader, weight: int, product: Product, rows: int, axis: int, dtype: Any
) -> int:  # fmt: skip
    """The place of A^T (w * B), some columns at a time."""
    turn_a, turn_b = axis == 1, product.variables == 0

    def make(w: Any, a: Any, b: Any) -> Any:
        a, b, w = a.T if turn_a else a, b.T if turn_b else b, np.reshape(w, (-1, 1))
        parts = []
        for start in range(0, b.shape[1], AT_ONCE):
            if watch.says_stop():
                raise CutError
            some = b[:, start : start + AT_ONCE]
            parts.append(a.T @ (some if w.size == 1 else w * some))
        return np.concatenate(parts, 1)

    shape = (reader.shapes[rows][1 - axis], reader.shapes[product.matrix][product.variables])
    size = int(np.prod(reader.shapes[rows]))
    place = reader.emit(
        "dot_general", make, (weight, rows, product.matrix), shape,
        f"matrix {axis} {product.variables}", 0, dtype, size,
    )  # fmt: skip
    return reader.lasts(place)


def _times(
    reader: Reader, equation: Any, matrix: int, product: Product, side: int, work: float,
    each: float,
) -> int:  # fmt: skip
    """The place of the matrix times the vectors; a choice of its columns where these are units."""
    vectors, along = product.vectors, product.along
    summed: tuple = ((along,), (1,)) if side == 0 else ((1,), (along,))
    reads = (vectors, matrix) if side == 0 else (matrix, vectors)
    times: Any = lambda a, b: np.tensordot(a, b, summed)
    if reader.is_given(vectors) and reader.uses[vectors] & UNITS:
        times = tangents.chosen(summed, side)
    return reader.emit(
        "dot_general", times, reads, equation.outvars[0].aval.shape, f"by matrix {summed}", 0,
        equation.outvars[0].aval.dtype, 0, work, each,
    )  # fmt: skip
