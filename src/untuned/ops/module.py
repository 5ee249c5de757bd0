"""A torch module as parameters and a function of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch


def from_module(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], Callable]:
    """Split a module into its parameters (a tree) and a function of them.

    Returns ``(parameters, apply)`` with ``apply(parameters, *inputs)`` the module's output, so
    that the weights of a network can be the inner variable y. The module is not changed.
    Frozen parameters (``requires_grad=False``) stay as they are, unless all of them are frozen.

    A module in training mode may hold batch norm and dropout. Batch norm then uses the statistics
    of the rows it is given, and its running ones stay as they are; once y is found, load it into
    the module and let ``torch.optim.swa_utils.update_bn`` make them. Dropout draws its masks by a
    seed that is made from the inputs, so the same parameters and rows always give the same loss,
    as every method here assumes.

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
    every = dict(module.named_parameters())
    trained = {key: part for key, part in every.items() if part.requires_grad} or every
    parameters = {key: part.detach().clone() for key, part in trained.items()}
    call = torch.func.functional_call

    def apply(parameters: dict[str, torch.Tensor], *inputs: Any, **options: Any) -> Any:
        if not module.training:
            return call(module, parameters, inputs, options)
        buffers = {key: part.clone() for key, part in module.named_buffers()}
        devices = _devices(inputs)
        with torch.random.fork_rng(devices=devices):
            # Not torch.manual_seed: where there is no GPU that writes down the stack for each kind
            # of them, at every call, which was a fifth of a small network's step.
            seed = _seed(inputs)
            torch.default_generator.manual_seed(seed)
            for device in devices:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            return call(module, (parameters, buffers), inputs, options)

    return parameters, apply


def _devices(inputs: tuple) -> list[torch.device]:
    tensors = [part for part in inputs if isinstance(part, torch.Tensor)]
    return [part.device for part in tensors if part.device.type == "cuda"]


def _seed(inputs: tuple) -> int:
    """A whole number that is the same for the same inputs."""
    tensors = [part for part in inputs if isinstance(part, torch.Tensor)]
    # Rows in another order are other inputs, so entries count by their place.
    sums = [
        float((flat * torch.arange(1, len(flat) + 1, device=flat.device)).sum())
        for flat in (part.detach().double().reshape(-1) for part in tensors)
    ]
    return zlib.crc32(repr(sums).encode())
