"""What each of JAX's operations is in NumPy (in_numpy.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class UnknownError(Exception):
    """There is no such operation here."""


def rules(equation: Any) -> list[Callable[..., Any]]:
    """The functions of arrays that an equation of JAX stands for, one for each result."""
    name = equation.primitive.name
    if name in PLAIN:
        return [PLAIN[name]]
    if name in FLOATS and equation.outvars[0].aval.dtype.kind == "f":
        return [FLOATS[name]]
    if name in WITH_PARAMETERS:
        return [WITH_PARAMETERS[name](equation)]
    if name in SEVERAL:
        return SEVERAL[name](equation)
    raise UnknownError


def _same(a: Any) -> Any:
    return a


# The same for every kind of number.
PLAIN: dict[str, Callable] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
    "max": np.maximum, "min": np.minimum, "abs": np.abs, "square": np.square, "sign": np.sign,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "is_finite": np.isfinite,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not,
    "copy": _same, "copy_p": _same, "stop_gradient": _same,
    "clamp": lambda low, a, high: np.minimum(np.maximum(a, low), high),
}  # fmt: skip
# Of whole numbers they would be others: their quotients are cut off, for one.
FLOATS: dict[str, Callable] = {
    "div": np.divide, "pow": np.power, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda a: 1 / np.sqrt(a),
    "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2,
    "floor": np.floor, "ceil": np.ceil, "logistic": lambda a: 1 / (1 + np.exp(-a)),
}  # fmt: skip


def _select(equation: Any) -> Callable:
    if len(equation.invars) != 3 or equation.invars[0].aval.dtype != bool:
        raise UnknownError
    return lambda which, no, yes: np.where(which, yes, no)


def _integer_pow(equation: Any) -> Callable:
    power = equation.params["y"]
    if power == 2:
        return np.square
    if power == 3:
        return lambda a: a * a * a
    if power < 0 and equation.outvars[0].aval.dtype.kind != "f":
        raise UnknownError
    return lambda a: a**power


def _broadcast(equation: Any) -> Callable:
    shape, dimensions = equation.params["shape"], equation.params["broadcast_dimensions"]
    if len(equation.invars) != 1:
        raise UnknownError
    given = equation.invars[0].aval.shape
    spread = [1] * len(shape)
    for place, length in zip(dimensions, given, strict=True):
        spread[place] = length
    return lambda a: np.broadcast_to(np.reshape(a, spread), shape)


def _reshape(equation: Any) -> Callable:
    if equation.primitive.name == "reshape" and equation.params["dimensions"] is not None:
        raise UnknownError
    if len(equation.invars) != 1:
        raise UnknownError
    shape = equation.outvars[0].aval.shape
    return lambda a: np.reshape(a, shape)


def _transpose(equation: Any) -> Callable:
    order = equation.params["permutation"]
    return lambda a: np.transpose(a, order)


def _convert(equation: Any) -> Callable:
    before, after = equation.invars[0].aval.dtype, equation.params["new_dtype"]
    if before.kind == "f" and np.dtype(after).kind in "iu":
        raise UnknownError  # numbers out of range become others
    return lambda a: np.asarray(a, after)


def _reduction(function: Callable) -> Callable:
    def of(equation: Any) -> Callable:
        axes, dtype = equation.params["axes"], equation.outvars[0].aval.dtype
        if function is np.sum:
            return lambda a: np.sum(a, axes, dtype)
        return lambda a: function(a, axes)

    return of


def _slice(equation: Any) -> Callable:
    starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or (1,) * len(starts)
    index = tuple(map(slice, starts, limits, strides))
    return lambda a: a[index]


def _split(equation: Any) -> list[Callable]:
    axis, ends = equation.params["axis"], np.cumsum(equation.params["sizes"])
    before = (slice(None),) * axis
    starts = (0, *ends[:-1])
    indices = [(*before, slice(a, b)) for a, b in zip(starts, ends, strict=True)]
    return [lambda a, index=index: a[index] for index in indices]


def _pad(equation: Any) -> Callable:
    shape, layout = equation.outvars[0].aval.shape, equation.params["padding_config"]
    if any(low < 0 or high < 0 for low, high, _ in layout):
        raise UnknownError
    index = tuple(
        slice(low, length - high, between + 1)
        for length, (low, high, between) in zip(shape, layout, strict=True)
    )

    def pad(a: Any, value: Any) -> Any:
        result = np.full(shape, value)
        result[index] = a
        return result

    return pad


def _concatenate(equation: Any) -> Callable:
    axis = equation.params["dimension"]
    return lambda *arrays: np.concatenate(arrays, axis)


def _stack(equation: Any) -> Callable:
    axis = equation.params["axis"]
    return lambda *arrays: np.stack(arrays, axis)


def _unstack(equation: Any) -> list[Callable]:
    axis = equation.params["axis"]
    return [lambda a, k=k: np.take(a, k, axis) for k in range(len(equation.outvars))]


def _iota(equation: Any) -> Callable:
    shape, dtype, axis = (equation.params[k] for k in ("shape", "dtype", "dimension"))
    spread = [1] * len(shape)
    spread[axis] = shape[axis]
    return lambda: np.broadcast_to(np.arange(shape[axis], dtype=dtype).reshape(spread), shape)


def _product(equation: Any) -> Callable:
    """A product of two arrays over some of their axes, with or without axes that go along."""
    (left, right), (left_along, right_along) = equation.params["dimension_numbers"]
    a, b = (variable.aval for variable in equation.invars)
    if not a.dtype == b.dtype == equation.outvars[0].aval.dtype or a.dtype.kind != "f":
        raise UnknownError
    if not left_along:
        axes = (tuple(left), tuple(right))
        return lambda a, b: np.tensordot(a, b, axes)
    order_a, free_a = _in_order(a.ndim, left_along, left, summed_last=True)
    order_b, free_b = _in_order(b.ndim, right_along, right, summed_last=False)
    along = [a.shape[k] for k in left_along]
    summed = int(np.prod([a.shape[k] for k in left]))
    shape = equation.outvars[0].aval.shape
    rows = int(np.prod([a.shape[k] for k in free_a]))
    columns = int(np.prod([b.shape[k] for k in free_b]))

    def product(a: Any, b: Any) -> Any:
        matrices = np.transpose(a, order_a).reshape(*along, rows, summed)
        others = np.transpose(b, order_b).reshape(*along, summed, columns)
        return (matrices @ others).reshape(shape)

    return product


def _in_order(
    count: int, along: Any, summed: Any, summed_last: bool
) -> tuple[list[int], list[int]]:
    """The axes that go along, then those that stay and those that are summed over."""
    free = [k for k in range(count) if k not in along and k not in summed]
    rest = [*free, *summed] if summed_last else [*summed, *free]
    return [*along, *rest], free


class _Picks:
    """The entries that a gather or scatter names one by one, whole along all other axes."""

    def __init__(self, equation: Any, along: Any, along_in_indices: Any, mapped: Any, named: Any):
        self.operand, indices = (variable.aval for variable in equation.invars[:2])
        self.along = dict(zip(along, along_in_indices, strict=True))
        self.mapped = list(mapped)
        self.shape = indices.shape[:-1]
        self.whole = [k for k in range(self.operand.ndim) if k not in {*along, *named}]
        if set(mapped) != set(named) or "FILL_OR_DROP" not in str(equation.params["mode"]):
            raise UnknownError
        self.order = [*self.whole, *(k for k in range(self.operand.ndim) if k not in self.whole)]

    def __call__(self, where: Any) -> tuple[tuple, Any]:
        """An index into the array with its whole axes first, and which of the entries exist."""
        index: list[Any] = [slice(None)] * len(self.whole)
        there = np.ones(self.shape, bool)
        for axis in self.order[len(self.whole) :]:
            length = self.operand.shape[axis]
            if axis in self.along:
                spread = [1] * len(self.shape)
                spread[self.along[axis]] = length
                index.append(np.arange(length).reshape(spread))
            else:
                entry = where[..., self.mapped.index(axis)]
                inside = (entry >= 0) & (entry < length)
                there &= inside
                index.append(np.where(inside, entry, 0))
        return tuple(index), there


def _gather(equation: Any) -> Callable:
    numbers, fill = equation.params["dimension_numbers"], equation.params["fill_value"]
    named = numbers.collapsed_slice_dims
    picks = _Picks(
        equation, numbers.operand_batching_dims, numbers.start_indices_batching_dims,
        numbers.start_index_map, named,
    )  # fmt: skip
    sizes = [picks.operand.shape[k] if k in picks.whole else 1 for k in range(picks.operand.ndim)]
    if list(equation.params["slice_sizes"]) != sizes or picks.operand.dtype.kind != "f":
        raise UnknownError
    places = list(numbers.offset_dims)
    missing = picks.operand.dtype.type(np.nan if fill is None else fill)

    def gather(array: Any, where: Any) -> Any:
        index, there = picks(where)
        found = np.transpose(array, picks.order)[index]
        found = found if there.all() else np.where(there, found, missing)
        return np.moveaxis(found, range(len(places)), places)

    return gather


def _scatter_add(equation: Any) -> Callable:
    numbers = equation.params["dimension_numbers"]
    picks = _Picks(
        equation, numbers.operand_batching_dims, numbers.scatter_indices_batching_dims,
        numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims,
    )  # fmt: skip
    places = list(numbers.update_window_dims)
    sizes = [equation.invars[2].aval.shape[k] for k in places]
    if sizes != [picks.operand.shape[k] for k in picks.whole]:
        raise UnknownError

    def scatter_add(array: Any, where: Any, more: Any) -> Any:
        index, there = picks(where)
        result = np.array(array)
        more = np.moveaxis(more, places, range(len(places)))
        np.add.at(np.transpose(result, picks.order), index, np.where(there, more, 0))
        return result

    return scatter_add


WITH_PARAMETERS: dict[str, Callable[[Any], Callable]] = {
    "select_n": _select, "integer_pow": _integer_pow, "broadcast_in_dim": _broadcast,
    "reshape": _reshape, "squeeze": _reshape, "expand_dims": _reshape, "transpose": _transpose,
    "convert_element_type": _convert, "reduce_sum": _reduction(np.sum),
    "reduce_max": _reduction(np.max), "reduce_min": _reduction(np.min),
    "reduce_and": _reduction(np.all), "reduce_or": _reduction(np.any), "slice": _slice,
    "concatenate": _concatenate, "stack": _stack, "iota": _iota, "dot_general": _product,
    "gather": _gather, "scatter-add": _scatter_add, "pad": _pad,
    "rev": lambda equation: lambda a: np.flip(a, equation.params["dimensions"]),
}  # fmt: skip
SEVERAL: dict[str, Callable[[Any], list[Callable]]] = {"split": _split, "unstack": _unstack}
