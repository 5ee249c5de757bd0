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
        if value is None and (name == "every" or form != "rows"):
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(
                f"{name}={brief(value)} is not usable; expected a whole number from 1."
            )
    if form == "batch" and every not in (None, 1):
        raise ValueError(
            f"every={brief(every)} was given with form='batch', whose weights hold for one batch; "
            "expected 1, or another form."
        )


def row_numbers(
    losses: torch.Tensor, index: torch.Tensor | None, table: torch.Tensor, needed: bool
) -> torch.Tensor | None:
    """The numbers of a batch's rows in a table with an entry for each row, or for none at all."""
    if losses.ndim != 1:
        raise ValueError(
            f"The losses have shape {tuple(losses.shape)}; expected one loss per row, so use "
            "reduction='none', and a mean over what one row has several of: losses.mean(1)."
        )
    if index is None:
        if not needed:
            return None
        raise ValueError(
            "index is None; expected the numbers of the batch's rows, since every row has "
            "a weight of its own. Let the data set give them, or use another form."
        )
    index = torch.as_tensor(index)
    is_whole = not (index.is_floating_point() or index.is_complex() or index.dtype == torch.bool)
    if index.shape != losses.shape or not is_whole:
        raise ValueError(
            f"index has shape {tuple(index.shape)} and type {index.dtype}; expected one whole "
            f"number for each of the {len(losses)} losses."
        )
    if len(index) and len(table) and not 0 <= int(index.min()) <= int(index.max()) < len(table):
        raise ValueError(
            f"index goes from {int(index.min())} to {int(index.max())}; expected numbers of "
            f"rows from 0 to {len(table) - 1}, as rows={len(table)} was given."
        )
    return index.to(table.device, torch.int64)


def row_classes(losses: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor | None:
    """The class of each row of a batch, if the user gave it."""
    if labels is None:
        return None
    labels = torch.as_tensor(labels)
    if labels.shape != losses.shape or labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"labels has shape {tuple(labels.shape)} and type {labels.dtype}; expected one whole "
            f"number for each of the {len(losses)} losses."
        )
    return labels.to(losses.device, torch.int64)
