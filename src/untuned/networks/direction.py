"""v: which way the trusted rows would have the network move."""

from __future__ import annotations

from typing import Any

import torch

from untuned.networks.products import Tensors

MEAN, SQUARES = 0.9, 0.999  # Adam's own: averages over about ten and a thousand batches


DAMPING = 0.01


class Direction:
    """The gradient on trusted rows, averaged over batches, divided entry by entry as Adam does.

        m <- 0.9 m + 0.1 t,    s <- 0.999 s + 0.001 g^2,    v = m / sqrt(s + 0.01 mean of s)

    with t the trusted gradient and g that of the training rows, or t where g is not at hand. v
    stands for (grad_yy g)^-1 grad_y f, which need not exist for a network: the diagonal brings
    layers to one scale, as it does for the steps of the network itself. The mean is over the
    tensor that an entry belongs to; without it entries that hardly ever have a gradient rule v.
    Where t is of a share of a batch alone, m forgets as much less: 0.9^share stands for 0.9.
    """

    def __init__(self, parameters: Tensors):
        self.mean, self.squares = _zeros(parameters), _zeros(parameters)
        self.seen, self.batches = 0, 0.0  # those looked at, and how many they were by their rows

    def add(self, trusted: Tensors, training: Tensors | None, share: float) -> None:
        """Take in the gradients of one more batch, unless one of them is not finite.

        `share` is how many of its trusted rows the trusted gradient is of.
        """
        streams = [trusted] if training is None else [trusted, training]
        norms = [torch.linalg.vector_norm(part) for stream in streams for part in stream.values()]
        if not bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all()):
            return
        self.seen += 1
        self.batches += share
        kept = MEAN**share
        for name, part in trusted.items():
            self.mean[name].mul_(kept).add_(part, alpha=1 - kept)
            self.squares[name].mul_(SQUARES)
            scale = streams[-1][name].to(self.squares[name].dtype)
            self.squares[name].addcmul_(scale, scale, value=1 - SQUARES)

    def value(self) -> Tensors:
        """v, of which no entry is far above one."""
        here = (1 - SQUARES**self.seen) ** 0.5 / (1 - MEAN**self.batches)
        return {name: part * here / _scale(self.squares[name]) for name, part in self.mean.items()}

    def state_dict(self) -> dict[str, Any]:
        counts = {"seen": self.seen, "batches": self.batches}
        return {"mean": dict(self.mean), "squares": dict(self.squares)} | counts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # The parameters of the state, which need not be those that are trained now.
        device = next(iter(self.mean.values())).device
        for kept, given in ((self.mean, state["mean"]), (self.squares, state["squares"])):
            kept.clear()
            kept.update((name, part.to(device, copy=True)) for name, part in given.items())
        self.seen, self.batches = int(state["seen"]), float(state["batches"])


def _zeros(parameters: Tensors) -> Tensors:
    """Running means at their start, in full precision: in bfloat16 0.999 of a number is itself."""
    wide = lambda dtype: torch.promote_types(dtype, torch.float32)
    return {
        name: torch.zeros_like(part, dtype=wide(part.dtype)) for name, part in parameters.items()
    }


def _scale(squares: torch.Tensor) -> torch.Tensor:
    damped = squares + DAMPING * squares.mean()
    return damped.clamp(min=torch.finfo(damped.dtype).tiny).sqrt()
