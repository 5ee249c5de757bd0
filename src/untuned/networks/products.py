"""How much each row's loss changes along v: <grad loss_i, v> for all rows of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

Tensors = dict[str, torch.Tensor]


def gradients(loss: torch.Tensor, parameters: Tensors) -> Tensors:
    """The gradient of one loss; zero where it does not depend on a parameter."""
    if not loss.requires_grad:
        raise ValueError(
            "The trusted loss does not depend on the model's parameters; expected one number with "
            "its graph, so compute it with the model, outside of torch.no_grad()."
        )
    found = torch.autograd.grad(
        loss, list(parameters.values()), allow_unused=True, materialize_grads=True
    )
    return {name: dense(part) for name, part in zip(parameters, found, strict=True)}


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient as numbers for every entry; an embedding may give those of its rows alone."""
    return gradient.to_dense() if gradient.is_sparse else gradient


class Pullback:
    """The gradient of weighted losses, and products with a direction from the same graph.

    With G(u) = sum of u_i grad loss_i, which is linear in u, <G(u), v> has the products
    <grad loss_i, v> as its gradient in u: two passes backwards give them for all rows.
    """

    def __init__(self, losses: torch.Tensor, weights: torch.Tensor, parameters: Tensors):
        self.weights = weights.detach().to(losses.dtype).requires_grad_()
        if not losses.requires_grad:
            raise ValueError(
                "The losses carry no graph; expected them as the model gave them, so compute them "
                "outside of torch.no_grad() and do not detach them."
            )
        try:
            found = torch.autograd.grad(
                losses, list(parameters.values()), self.weights,
                create_graph=True, allow_unused=True,
            )  # fmt: skip
        except RuntimeError as error:
            if "second time" in str(error):
                raise ValueError(
                    "The graph of the losses is gone, as after losses.backward(); call the "
                    "reweighter first, then backward() on the weighted losses."
                ) from error
            raise _no_second(error) from error
        if all(part is None for part in found):
            raise ValueError(
                "The losses do not depend on the parameters of the model that the Reweighter was "
                "given; expected losses of that model. (Checkpointed layers need "
                "use_reentrant=False: the other kind shows no parameters.)"
            )
        self._graph = {
            name: torch.zeros_like(own) if part is None else dense(part)
            for (name, own), part in zip(parameters.items(), found, strict=True)
        }
        self.gradient = {name: part.detach() for name, part in self._graph.items()}

    def along(self, v: Tensors) -> torch.Tensor:
        """The products, one per row."""
        parts = {name: part for name, part in self._graph.items() if part.requires_grad}
        try:
            (products,) = torch.autograd.grad(
                list(parts.values()), self.weights,
                [v[name].to(part.dtype) for name, part in parts.items()],
                allow_unused=True, materialize_grads=True, retain_graph=True,
            )  # fmt: skip
        except RuntimeError as error:
            raise _no_second(error) from error
        return products.detach()


def _no_second(error: RuntimeError) -> ValueError:
    return ValueError(
        f"The losses cannot be differentiated twice ({error}); use Reweighter(order=1), which asks "
        "for gradients alone, and give it a function that computes the losses."
    )


def differences(
    losses: Callable[[], torch.Tensor], v: Tensors, parameters: Tensors, model: torch.nn.Module
) -> torch.Tensor:
    """The products by symmetric differences of the losses along v: two passes forwards."""
    # Where rounding and curvature spoil a symmetric difference of about one about equally.
    finest = max(torch.finfo(part.dtype).eps for part in parameters.values())
    move = finest ** (1 / 3) / max(1e-30, float(max(part.abs().max() for part in v.values())))
    sides = []
    with torch.no_grad(), buffers_kept(model), _same_random_numbers() as again:
        for sign in (1.0, -1.0):
            kept = {name: part.detach().clone() for name, part in parameters.items()}
            # Past the version counters: a graph of the user's that holds these tensors stays whole.
            for name, part in parameters.items():
                part.data.add_(v[name], alpha=sign * move)
            try:
                again()
                sides.append(losses().detach().double())
            finally:
                for name, part in parameters.items():
                    part.data.copy_(kept[name])
    return (sides[0] - sides[1]) / (2 * move)


@contextmanager
def buffers_kept(model: torch.nn.Module) -> Iterator[None]:
    """Inside, running statistics may move; afterwards they are what they were."""
    kept = [part.clone() for part in model.buffers()]
    try:
        yield
    finally:
        for part, old in zip(model.buffers(), kept, strict=True):
            part.data.copy_(old)


@contextmanager
def _same_random_numbers() -> Iterator[Callable[[], None]]:
    """Gives a function that takes torch's generators back to where they are now."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        here = torch.get_rng_state()
        others = [torch.cuda.get_rng_state(device) for device in devices]

        def again() -> None:
            torch.set_rng_state(here)
            for device, state in zip(devices, others, strict=True):
                torch.cuda.set_rng_state(state, device)

        yield again
