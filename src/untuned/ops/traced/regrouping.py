"""Products with the Hessian of least squares, by a matrix that is made once.

If a function is quadratic in X y, as least squares are, a product with its Hessian takes a matrix
that depends on the rows alone, in place of two passes over the rows:

    X^T (w * (X v))  =  (X^T (w * X)) v

The matrix takes the time of some products, a run makes hundreds, and the Hessian is a choice of its
columns. Only what is linear in v is made so. A gradient X^T (X y - t) is small where y is good, and
the difference (X^T X) y - X^T t of large numbers is not: columns with a mean far from zero would
leave no digit of it.
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


def note(reader: Reader, equation: Any, reads: tuple[int, ...], place: int, work: float) -> None:
    """Remember what a product along vectors was made of, if it is rows times vectors."""
    product = _product_of(reader, equation, reads, work)
    if product is not None:
        reader.products[place] = product


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


def regrouped(
    reader: Reader, equation: Any, reads: tuple[int, ...], work: float, each: float
) -> int | None:
    """The place of a product of rows with another one, scaled, by a matrix made once.

    `work` and `each` are those of the product as it stands, with the scaling before it. The new one
    counts as both passes that it is in place of.
    """
    summed, together = equation.params["dimension_numbers"]
    if any(together) or len(summed[0]) != 1:
        return None
    for side in (0, 1):
        factor, base = reader.scaled.get(reads[side], (reader.one(reads[side]), reads[side]))
        product, rows = reader.products.get(base), reads[1 - side]
        if product is None or not _is_fixed(reader, rows) or len(reader.shapes[rows]) != 2:
            continue
        axis = summed[1 - side][0]
        if summed[side][0] == product.rows and _is_worth_it(
            reader, factor, base, product, rows, axis
        ):
            by, weight = _split(reader, factor)
            dtype = equation.outvars[0].aval.dtype
            matrix = _matrix(reader, weight, product, rows, axis, dtype)
            place = _times(reader, equation, matrix, product, side, product.work + work, each)
            return reader.apply("mul", by, place)
    return None


def _is_worth_it(
    reader: Reader, factor: int, base: int, product: Product, rows: int, axis: int
) -> bool:  # fmt: skip
    shape, axes = reader.shapes[factor], len(reader.shapes[base])
    shape = (1,) * (axes - len(shape)) + shape
    if not _is_fixed(reader, factor):
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
    reader.lasting.add(place)
    return place


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
