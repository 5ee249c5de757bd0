"""Compiled steps, kept for the next run of the same functions on arrays of the same shapes.

Compiling takes seconds, so an estimator that is fitted many times must not do it each time. But a
user's function may read a global that changes between two runs, and nobody can see that from
outside. So only functions that promise to depend on nothing but their arguments are kept:
those marked `reusable`. Others have to be traced anew, and are known by the text that gives.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from untuned.ops import Ops

MOST = 64  # executables kept, the longest unused dropped first; a few MB each

Function = TypeVar("Function", bound=Callable)

_pure: set[Callable] = set()
_kept: OrderedDict[Hashable, Callable] = OrderedDict()


def reusable(function: Function) -> Function:
    """Mark a module's function as one that depends on its arguments alone."""
    _pure.add(function)
    return function


def name_of(*parts: Any) -> Hashable | None:
    """A key that is the same from run to run for the same functions and settings, or None.

    A function that made no promise, or a setting without a hash, makes it None.
    """
    names = tuple(_name(part) if callable(part) else part for part in parts)
    try:
        hash(names)
    except TypeError:
        return None
    return None if any(name is None for name in names) else names


def _name(function: Callable) -> Hashable | None:
    if isinstance(function, partial):
        inside = (*function.args, *sorted(function.keywords.items()))
        return name_of(function.func, inside)
    return function if function in _pure else None


def kept_for(function: Callable, kind: Hashable, make: Callable[[], Any]) -> Any:
    """What `make` makes of a function: the last one where it is `reusable`, else a new one."""
    name = name_of(function)
    if name is None:
        return make()
    return _keep((name, kind), make)


def _keep(key: Hashable, make: Callable[[], Any]) -> Any:
    if key not in _kept:
        _kept[key] = make()
        if len(_kept) > MOST:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def kept_for_text(text: str, leaves: list, make: Callable[[], Any]) -> Any:
    """What `make` makes of a traced function: the last one with this text, else a new one.

    The text of a function that calls back into Python does not say what it calls.
    """
    if "callback" in text:
        return make()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return _keep((digest, tuple(map(_kind, leaves))), make)


def _kind(leaf: Any) -> Hashable:
    """What compiled code depends on: shape, dtype, and the devices that hold it."""
    return leaf.shape, str(leaf.dtype), getattr(leaf, "sharding", None)


def compiled(
    ops: Ops, name: Hashable | None, function: Callable, *args: Any, effort: str = "full"
) -> Callable:
    """`function` ready for arguments like these; `name` tells what else it depends on."""
    if name is None or not ops.compiles:
        return ops.compile(function, *args, effort=effort)
    leaves, structure = ops.flatten(args)
    key = (name, effort, structure, tuple(map(_kind, leaves)))
    return _keep(key, lambda: ops.compile(function, *args, effort=effort))
