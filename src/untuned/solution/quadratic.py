"""Quadratic programs, one or a stack, with derivatives in all that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from untuned import ops as array_libraries
from untuned.ops import Tree
from untuned.problem import variables
from untuned.solution import failures, interior_point
from untuned.solution.interior_point import Program
from untuned.util.wording import brief, unknown

MODES = ("nan", "raise")
NAMES = ("Q", "c", "A", "b", "G", "h")


def quadratic_program(
    Q: Any,
    c: Any,
    A: Any = None,
    b: Any = None,
    G: Any = None,
    h: Any = None,
    *,
    on_failure: str = "raise",
) -> Any:
    """The y that minimizes y' Q y / 2 + c' y with A y = b and G y <= h.

    Differentiable in all six, in both modes and any number of times on JAX, on torch by autograd
    and `torch.func`: the inequalities that hold y stay the same for a small change, and with them y
    solves a system of linear equations, which is what is differentiated. One that y just touches
    counts as not holding it.

    Parameters
    ----------
    Q : matrix without negative eigenvalues, (n, n), or a stack of them, (..., n, n); only its
        symmetric part counts.
    c : vector (n,), or a stack.
    A, b : equalities, (m, n) and (m,), or stacks; None for none.
    G, h : inequalities, likewise. What is no stack is shared by all programs of one.
    on_failure : where there is no solution, or none that has a derivative (no positive curvature
        along what holds y, or more holds it than can), "raise" raises a RuntimeError (in a
        compiled or vectorized JAX function it is "nan"), "nan" gives NaN.

    Returns
    -------
    y, (..., n).

    Example
    -------
    >>> import numpy as np, untuned
    >>> y = untuned.quadratic_program(np.eye(2), -np.ones(2), G=np.ones((1, 2)), h=np.ones(1))
    >>> y.round(9)
    array([0.5, 0.5])
    """
    if on_failure not in MODES:
        raise unknown("on_failure", on_failure, MODES)
    given = {"Q": Q, "c": c, "A": A, "b": b, "G": G, "h": h}
    for pair in (("Q", "c"), ("A", "b"), ("G", "h")):
        if any(given[name] is None for name in pair) and not (
            pair[0] != "Q" and all(given[name] is None for name in pair)
        ):
            raise ValueError(f"{' or '.join(pair)} is missing; expected both.")
    named = {name: array for name, array in given.items() if array is not None}
    ops, returns_numpy = variables.library(named, named["c"], x_name="the program")
    dtypes = {name: variables.dtype_of(ops, array) for name, array in named.items()}
    if set(dtypes.values()) not in ({"float32"}, {"float64"}):
        raise ValueError(
            f"the arrays have dtypes {brief(dtypes)}; expected float32 for all, or float64 for all."
        )
    with ops.precision(np.zeros((), dtypes["c"])):
        lib = array_libraries.roots(ops.name)
        arrays = {name: lib.take_in(array) for name, array in named.items()}
        program = _program(lib, arrays)
        y = lib.active_solution(
            _search(lib, ops.epsilon(program.c)),
            partial(_on_held, lib),
            lambda code: failures.tell(code, on_failure, failures.OF_PROGRAMS),
            program,
            (lambda code: failures.marks(lib, code, on_failure)),
        )
        return ops.to_numpy(y) if returns_numpy else y


@cache
def _search(lib: Any, epsilon: float) -> Callable:
    """One function for one library and dtype, so that JAX compiles it once for each shape."""
    return partial(interior_point.search, lib, epsilon=epsilon)


def _on_held(lib: Any, program: Program, held: Any) -> Any:
    return interior_point.held_by(lib, program, held)[0]


def _rows(arrays: dict[str, Tree], matrix: str, right: str) -> int:
    """How many constraints there are: by their right sides, or by the matrix if those are wrong."""
    if right not in arrays:
        return 0
    if arrays[right].ndim:
        return int(arrays[right].shape[-1])
    return int(arrays[matrix].shape[-2]) if arrays[matrix].ndim > 1 else 1


def _program(lib: Any, arrays: dict[str, Tree]) -> Program:
    """All six arrays with the same axes in front."""
    like, n = arrays["c"], arrays["c"].shape[-1] if arrays["c"].ndim else 0
    empty = lib.zeros_like(like.reshape(-1)[:0])
    counts = {"A": _rows(arrays, "A", "b"), "G": _rows(arrays, "G", "h")}
    shapes = {"Q": (n, n), "c": (n,), "A": (counts["A"], n), "b": (counts["A"],),
              "G": (counts["G"], n), "h": (counts["G"],)}  # fmt: skip
    full = {name: arrays[name] if name in arrays else empty.reshape(shapes[name]) for name in NAMES}
    for name, array in full.items():
        own = tuple(array.shape)
        axes = len(shapes[name])
        if n == 0 or len(own) < axes or own[len(own) - axes :] != shapes[name]:
            raise ValueError(
                f"{name} has shape {own}; expected (..., {', '.join(map(str, shapes[name]))}), as "
                f"c has shape {tuple(like.shape)}, and b and h count the rows of A and G."
            )
    leads = [tuple(full[name].shape[: full[name].ndim - len(shapes[name])]) for name in NAMES]
    try:
        lead = lib.broadcast_shapes(*leads)
    except (ValueError, RuntimeError):
        raise ValueError(
            f"the axes in front of {', '.join(NAMES)} are {brief(leads)}; expected stacks of the "
            "same size, or none."
        ) from None
    full["Q"] = (full["Q"] + full["Q"].mT) / 2  # y' Q y knows no more of it
    return Program(*(lib.broadcast_to(full[name], (*lead, *shapes[name])) for name in NAMES))
