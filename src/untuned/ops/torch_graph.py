"""What a value was computed by on torch: a walk over its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from untuned.ops import Tree
from untuned.ops.torch import tracked


def has_own_functions(fn: Callable, x: Tree, y: Tree) -> bool:
    """Whether fn(x, y) uses a `torch.autograd.Function` written in Python."""
    (_, x), (_, y) = tracked(x), tracked(y)
    with torch.enable_grad():
        value = fn(x, y)
    nodes: list[Any] = [value.grad_fn]
    known: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in known:
            continue
        if isinstance(node, BackwardCFunction):
            return True
        known.add(node)
        nodes.extend(following for following, _ in node.next_functions)
    return False
