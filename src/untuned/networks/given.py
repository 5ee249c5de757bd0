"""What a user gives to `Reweighter`, looked at before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from untuned.util.wording import brief

Loss = Callable[[], torch.Tensor]
Trusted = Loss | Sequence[Loss]

FORMS = ("rows", "loss", "batch")


def halves_of(trusted: Any) -> Sequence[Loss]:
    """The functions that give the trusted loss: one, or one for each half of the trusted rows."""
    halves = trusted if isinstance(trusted, tuple | list) else (trusted,)
    if len(halves) not in (1, 2) or not all(callable(half) for half in halves):
        raise ValueError(
            f"trusted is {brief(trusted)}; expected a function that gives the mean loss on trusted "
            "rows, or a pair of them, each for a half of the trusted rows."
        )
    return halves


def one_number(loss: Any) -> torch.Tensor:
    """What a trusted function gave, if it is a mean loss."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise ValueError(
            f"The trusted function gave {shape}; expected one number, the mean trusted loss."
        )
    return loss.reshape(())


def require_usable(model: Any, rows: Any, form: Any, order: Any, every: Any) -> None:
    """Refuse arguments of `Reweighter` in one sentence each."""
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model is a {type(model).__name__}; expected a torch.nn.Module.")
    if not any(part.requires_grad for part in model.parameters()):
        raise ValueError("The model has no parameter to train; expected at least one.")
    if form not in FORMS:
        raise ValueError(f"form={brief(form)} is not one of 'rows', 'loss' and 'batch'.")
    if order not in (1, 2):
        raise ValueError(f"order={brief(order)} is not 1 or 2, the derivatives that may be used.")
    for name, value in (("rows", rows), ("every", every)):
        if name == "rows" and value is None and form != "rows":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(
                f"{name}={brief(value)} is not usable; expected a whole number from 1."
            )
    if form == "batch" and every != 1:
        raise ValueError(
            f"every={brief(every)} was given with form='batch', whose weights hold for one batch; "
            "expected 1, or another form."
        )
