"""The cheapest form in NumPy of a product that JAX has traced, and its counted work.

With unit vectors it is a choice of columns (tangents.py), with rows that are mostly zeros a sparse
product (sparse_rows.py), and otherwise NumPy's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.ops.traced import sparse_rows, tangents

if TYPE_CHECKING:
    from untuned.ops.traced.listing import Reader

PER_NUMBER = 8  # multiplications that a product of matrices makes in the time it reads a number


class Product(NamedTuple):
    """A function of the places it reads."""

    function: Callable
    reads: tuple[int, ...]
    factor: int  # entries of the larger factor
    work: float  # in numbers that a product reads
    each: float  # the work for one of many vectors at a time, of which there is one here
    is_choice: bool = False


def product(
    reader: Reader, equation: Any, reads: tuple[int, ...], function: Callable, given: list[int]
) -> Product:
    """`function` is NumPy's; `given` are the factors that are vectors of a derivative."""
    found = Product(function, reads, *size(equation))
    sparse = [side for side, place in enumerate(reads) if place in reader.sparse]
    if sparse:
        found = _sparse(reader, equation, found, sparse[0])
    summed, along = equation.params["dimension_numbers"]
    if len(given) == 1 and not any(along):
        if reader.is_unit(given[0]):
            choice = tangents.chosen(summed, reads.index(given[0]))
            return Product(choice, reads, 0, 0.0, 0.0, True)
        found = found._replace(each=0.0)  # along units it is a choice of columns
    return found


def size(equation: Any) -> tuple[int, float, float]:
    """Entries of the larger factor, the work, and that for one of many vectors, of NumPy's."""
    summed = equation.params["dimension_numbers"][0][0]
    a, b = (variable.aval for variable in equation.invars)
    factor = max(a.size, b.size)
    multiplications = equation.outvars[0].aval.size * int(np.prod([a.shape[k] for k in summed]))
    each = multiplications / PER_NUMBER
    return factor, max(factor, each), each


def _sparse(reader: Reader, equation: Any, dense: Product, side: int) -> Product:
    """A product with a sparse array if that takes less work."""
    rows = reader.sparse[dense.reads[side]]
    work, each = sparse_rows.work(rows.array.nnz, equation, side)
    if work >= dense.work:
        return dense
    reads = tuple(rows.place if k == side else place for k, place in enumerate(dense.reads))
    function = sparse_rows.product(equation, side)
    return Product(function, reads, rows.array.nnz, work, each)
