"""A torch module as parameters and a function of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def from_module(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], Callable]:
    """Split a module into its parameters (a tree) and a function of them.

    Returns ``(parameters, apply)`` with ``apply(parameters, *inputs)`` the module's output, so
    that the weights of a network can be the inner variable y. Buffers stay as they are in the
    module, which is not changed.

    Example
    -------
    >>> import torch, untuned
    >>> weights, apply = untuned.from_module(torch.nn.Linear(3, 2))
    >>> sorted(weights)
    ['bias', 'weight']
    >>> apply(weights, torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """
    if not isinstance(module, torch.nn.Module):
        raise ValueError(
            f"from_module was given a {type(module).__name__}; it expects a torch.nn.Module."
        )
    changing = [
        type(part).__name__
        for part in module.modules()
        if part.training and getattr(part, "track_running_stats", False)
    ]
    random = [
        type(part).__name__
        for part in module.modules()
        if part.training and "dropout" in type(part).__name__.lower()
    ]
    if changing or random:
        raise ValueError(
            f"The module is in training mode and holds {(changing + random)[0]}, so the same "
            "parameters do not always give the same loss; call module.eval() first."
        )
    parameters = {key: part.detach().clone() for key, part in module.named_parameters()}
    call = torch.func.functional_call

    def apply(parameters: dict[str, torch.Tensor], *inputs: Any, **options: Any) -> Any:
        return call(module, parameters, inputs, options)

    return parameters, apply
