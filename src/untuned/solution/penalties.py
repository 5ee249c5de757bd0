"""The strengths and groups of absolute penalties that the user gave to `argmin`, checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from untuned.ops import Ops, Tree
from untuned.problem import variables
from untuned.solution.sparse import Groups
from untuned.util.wording import brief


def groups(ops: Ops, lib: Any, given: Tree, y: Tree, l1: Tree) -> Groups:
    """The groups of a tree of whole numbers like y."""
    if given is None:
        return Groups()
    if l1 is None:
        raise ValueError("groups were given without l1; give the strength of their penalty as l1.")
    leaves, like = ops.flatten(given)[0], ops.flatten(y)[0]
    shapes = [tuple(np.shape(leaf)) for leaf in leaves]
    if shapes != [tuple(leaf.shape) for leaf in like]:
        raise ValueError(
            f"groups has leaves of shapes {brief(shapes)}; expected those of y0, "
            f"{brief([tuple(leaf.shape) for leaf in like])}."
        )
    known = (lib.numbers(leaf) if hasattr(leaf, "detach") else np.asarray(leaf) for leaf in leaves)
    numbers = np.concatenate([part.reshape(-1) for part in known])
    if numbers.dtype.kind not in "iu" or set(numbers) != set(range(len(set(numbers)))):
        raise ValueError(
            f"groups holds {brief(sorted(set(numbers.tolist())))}; expected whole numbers that "
            "count the groups: 0, 1, 2 and so on, none left out."
        )
    return Groups(tuple(int(number) for number in numbers))


def strengths(ops: Ops, lib: Any, l1: Tree, y: Tree, together: Groups) -> tuple[Any, ...]:
    """One strength for each entry of y, or for each group."""
    if l1 is None:
        return ()
    like = ops.flatten(y)[0][0]
    sizes = [math.prod(leaf.shape) for leaf in ops.flatten(y)[0]]
    count = together.number if together.of_entry else sum(sizes)

    for leaf, path in zip(ops.flatten(l1)[0], ops.paths(l1), strict=True):
        variables.check_real(ops, leaf, f"l1{path}", "x")

    def convert(leaf: Any) -> Any:
        plain = variables.is_plain_number(leaf)
        return lib.take_in(np.asarray(leaf, np.float64) if plain else leaf, like)

    leaves = [convert(leaf) for leaf in ops.flatten(l1)[0]]
    shapes = [tuple(leaf.shape) for leaf in leaves]
    expected = (
        [(count,)] if together.of_entry else [tuple(leaf.shape) for leaf in ops.flatten(y)[0]]
    )
    if shapes not in ([()], expected):
        raise ValueError(
            f"l1 has leaves of shapes {brief(shapes)}; expected one number, or shapes "
            f"{brief(expected)}."
        )
    for leaf in leaves:
        numbers = lib.numbers(leaf) if lib.is_known(leaf) else np.zeros(1)
        if not (np.isfinite(numbers) & (numbers >= 0)).all():
            raise ValueError(
                f"l1 holds {numbers.min():.6g}; expected strengths from 0 up, for example exp(x)."
            )
    if shapes == [()]:
        return (lib.zeros_like(ops.ravel(y)[:1]).repeat(count) + leaves[0],)
    return (lib.join([leaf.reshape(-1) for leaf in leaves], 0),)
