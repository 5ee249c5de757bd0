"""Products with rows that are mostly zeros, for JAX in NumPy (in_numpy.py).

A table of words or of categories comes as a dense array of which nine in ten numbers are zero. A
product reads them all. SciPy's reads those that are not zero and their columns, which takes a
quarter to a twelfth of the time on such tables, and makes the same sum but for rounding. What is
cheaper is found by counting (docs/lab/clock.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LARGE = 2**20  # entries, from which on importing SciPy's sparse arrays takes less than it saves
# What a number with its column takes, in the time that a dense product reads a number: for one
# vector, and for each of many vectors at a time.
FOR_ONE, FOR_EACH = 4, 1


class SparseRows(NamedTuple):
    """Rows that are mostly zeros as a sparse array, for products."""

    place: int  # in the list of operations
    number: int  # which of the rows' arrays
    made_of: Any
    array: Any


def of(array: Any) -> Any:
    """The same numbers as a sparse array, or None where no product would be cheaper for it."""
    if not isinstance(getattr(array, "nbytes", None), int):  # a shape without numbers
        return None
    if array.ndim != 2 or array.size < LARGE or np.dtype(array.dtype).kind != "f":
        return None
    array = np.asarray(array)
    if FOR_ONE * np.count_nonzero(array) >= array.size:
        return None
    from scipy import sparse

    return sparse.csr_array(array)


def work(nonzeros: int, equation: Any, side: int) -> tuple[float, float]:
    """The work for a product, and that for one of many vectors, if the factor of that side (the
    first, or the second) is sparse; no end of it where that factor is no matrix of one sum."""
    summed, along = equation.params["dimension_numbers"]
    if len(summed[side]) != 1 or along[side]:
        return math.inf, math.inf
    rows, other = (equation.invars[k].aval for k in (side, 1 - side))
    vectors = other.size // max(1, rows.shape[summed[side][0]])
    each = float(FOR_EACH * nonzeros * vectors)
    return max(float(FOR_ONE * nonzeros), each), each


def product(equation: Any, side: int) -> Callable:
    """A product over one axis of two arrays, of which one (the first, or the second) is a matrix
    that may be sparse."""
    summed = [axes[0] for axes in equation.params["dimension_numbers"][0]]

    def multiplied(a: Any, b: Any) -> Any:
        rows, other = (a, b) if side == 0 else (b, a)
        rows = rows if summed[side] == 1 else rows.T
        other = np.moveaxis(other, summed[1 - side], 0)
        found = rows @ other.reshape(len(other), -1)
        found = found.reshape(-1, *other.shape[1:])
        return found if side == 0 else np.moveaxis(found, 0, -1)

    return multiplied
