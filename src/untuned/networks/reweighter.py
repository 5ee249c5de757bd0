"""`Reweighter`: a weight for every row, learned inside a user's own torch training loop."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch

from untuned.networks import together
from untuned.networks.direction import Direction
from untuned.networks.forms import FORGET, OfBatch, OfLoss, Rows
from untuned.networks.given import (
    Loss,
    Trusted,
    halves_of,
    one_number,
    require_usable,
    row_classes,
    row_numbers,
)
from untuned.networks.halves import Halves, calls_of
from untuned.networks.products import Pullback, Tensors, buffers_kept, differences, gradients
from untuned.networks.shares import Shares, labels_of

FIRST = 5  # visits of all rows, at each of which weights move where shares of classes are meant


class Reweighter:
    """Weights of training rows that lower the loss on a few trusted rows.

    Call it once per batch inside your own training loop, and multiply the losses by what it gives.

    With f the trusted loss and w_i the weight of row i, a step of the network along its weighted
    gradient changes f by -sum of w_i <grad loss_i, v>, v being the trusted gradient in the metric
    of the step (`untuned.networks.direction`). So the logit of a row's weight moves by

        x_i <- x_i + p_i / sqrt(1 + S_i),    p_i = <grad loss_i, v> / (their root mean square),

    with a running mean over all rows in the latter and S_i the sum of p_i^2: a step in the geometry
    of weights in [0, 1], in which there is no rate to choose.

    There are far more weights than trusted rows, so weights could learn these by heart and do harm
    where all labels are right. Therefore the trusted rows are taken as two halves, and what weights
    learn from one half is tested on the other. Where it does not help there, all are equal again.

    Parameters
    ----------
    model : the network that is trained, alone or inside DistributedDataParallel.
    rows : how many training rows there are; needed for form="rows".
    form : "rows" for one weight per row, "loss" for one function of a row's loss, which also weighs
        rows never seen (`weigh`), "batch" for weights made anew from each batch: a mean of 1/2, and
        zero for rows that do not lower the trusted loss now. It suits classes of very different
        sizes.
    order : 2 differentiates the losses twice; 1 needs gradients alone and asks for a function
        that computes the losses, of which it takes differences along v.
    every : how many calls from one move of the weights to the next; 2 by default, and 1 with
        form="batch". By default it is also 1 until all rows were visited five times where the
        trusted rows have other shares of the classes than the training rows, and not by chance: all
        rows of a class have to move, and a row's first moves are its largest. A call that moves
        them adds two to three times the cost of a plain step; a call that does not adds nothing.

    Example
    -------
    >>> import torch, untuned
    >>> from torch.nn.functional import cross_entropy
    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> reweighter = untuned.Reweighter(model, rows=4)
    >>> features, labels, index = torch.eye(4, 3), torch.tensor([0, 1, 0, 1]), torch.arange(4)
    >>> losses = cross_entropy(model(features), labels, reduction="none")
    >>> trusted = lambda: cross_entropy(model(features), labels)
    >>> weights = reweighter(losses, index, trusted)
    >>> optimizer.zero_grad(); (weights * losses).mean().backward(); optimizer.step()
    >>> reweighter.weights.shape
    torch.Size([4])
    """

    def __init__(
        self,
        model: torch.nn.Module,
        rows: int | None = None,
        *,
        form: str = "rows",
        order: int = 2,
        every: int | None = None,
    ):
        require_usable(model, rows, form, order, every)
        self._model, self._order = model, order
        self._every = 1 if form == "batch" else every
        parameters = self._parameters()
        device = next(iter(parameters.values())).device
        self._directions = [Direction(parameters)]
        self._form: Rows | OfLoss | OfBatch
        if form == "rows":
            self._form = Rows(int(rows or 0), device)
        else:
            self._form = OfLoss(device) if form == "loss" else OfBatch(device)
        # Other forms have no table of rows: what each was given last is kept apart.
        self._last = None if form == "rows" else torch.full((rows or 0,), 0.5, device=device)
        self._halves = Halves(limit=rows) if form == "rows" and rows else None
        self._shares = Shares(int(rows or 0) if form == "rows" else 0, device)
        self._square, self._moves, self._calls = 0.0, 0, 0
        self._due, self._turns, self._moved = 0, 0, 0

    def __call__(
        self,
        losses: torch.Tensor | Loss,
        index: torch.Tensor | None,
        trusted: Trusted,
        labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The weights of a batch, detached; every few calls they learn first.

        They are in [0, 1]. With form="batch" their mean is 1/2, or all are zero.

        Parameters
        ----------
        losses : one loss per row, with its graph, or a function that computes them.
        index : the numbers of these rows, from 0 to rows - 1; needed for form="rows" only.
        trusted : a function that gives the mean loss on a batch of trusted rows. Let it call the
            model once, on the rows as they are: which half a row belongs to is told by what the
            model is given for it (`untuned.networks.halves`). Where that cannot be (rows changed at
            random, a model called in parts), give a pair of functions, one for each half; one is
            called at a time. The halves must not share a row, and should have as many rows of each
            class.
        labels : the class of each row, a whole number as the model's outputs count them. Without
            it classes are read from the cross-entropy in the graph of the losses, if there is one.
        """
        halves = halves_of(trusted)
        closure = losses if callable(losses) else None
        if closure is None and self._order == 1:
            raise ValueError(
                "Reweighter(order=1) was given the losses themselves; expected a function that "
                "computes them, such as lambda: cross_entropy(model(X), y, reduction='none')."
            )
        due = self._calls >= self._due
        if closure is not None:
            with torch.set_grad_enabled(due and self._order == 2), buffers_kept(self._model):
                losses = closure()
        assert isinstance(losses, torch.Tensor)
        table = self._form.squares if isinstance(self._form, Rows) else self._last
        assert table is not None  # weights are a row's own, or the last ones are kept
        index = row_numbers(losses, index, table, needed=self._last is None)
        labels = row_classes(losses, labels)
        if due:
            self._learn(losses, closure, index, halves, labels)
            self._turns += 1
            first = self._shares.meant and self._moved < FIRST * self._shares.rows
            self._due = self._calls + (self._every or (1 if first else 2))
        self._calls += 1
        weights = self._form.weigh(losses, index).to(losses.dtype).detach()
        if self._last is not None and index is not None and len(self._last):
            columns = torch.stack([index.double(), weights.double()], dim=1)
            rows, given = together.gathered(columns, together.group_of(self._model)).T
            self._last[rows.long()] = given.to(self._last.dtype)
        return weights

    @property
    def weights(self) -> torch.Tensor:
        """The weights of all rows; with another form than "rows", those that each had last."""
        if self._last is None:
            return torch.sigmoid(self._form.x)
        if not len(self._last):
            raise ValueError(
                "This Reweighter was not told how many rows there are; give rows=..., or keep "
                "the weights that each call gives."
            )
        return self._last.clone()

    def weigh(self, losses: torch.Tensor) -> torch.Tensor:
        """The weights of rows with these losses, seen or not; for form="loss"."""
        if not isinstance(self._form, OfLoss):
            raise ValueError(
                "Only Reweighter(form='loss') is a function of the loss; with another form read "
                "`weights`."
            )
        return self._form.weigh(losses)

    def _learn(
        self,
        losses: torch.Tensor,
        closure: Loss | None,
        index: torch.Tensor | None,
        halves: Sequence[Loss],
        labels: torch.Tensor | None,
    ) -> None:
        parameters, group = self._parameters(), together.group_of(self._model)
        turn = self._turns % 2
        half, share = turn if len(halves) == 2 else 0, 1.0
        if isinstance(self._form, Rows) and index is not None:
            labels = labels_of(losses) if labels is None else labels
            columns = together.gathered(torch.stack([index, labels], dim=1), group)
            self._shares.see(*columns.T)
        # Trusted rows leave no trace in running statistics: those are the training rows'.
        with torch.enable_grad(), buffers_kept(self._model), calls_of(self._model) as calls:
            loss = one_number(halves[half]())
            if len(halves) == 1 and self._halves is not None:
                half, share = self._halves.choose(loss, calls, turn, group, self._shares)
            wanted = gradients(loss, parameters)
        if isinstance(self._form, OfBatch):
            self._form.now = None
        pullback = None
        if self._order == 2:
            now = self._form.weigh(losses, index) / max(1, len(losses))
            pullback = Pullback(losses, now, parameters)
        sent = [*wanted.values(), *(pullback.gradient.values() if pullback else ())]
        shared = together.mean(sent, group)
        wanted = dict(zip(parameters, shared, strict=False))
        training = (
            dict(zip(parameters, shared[len(parameters) :], strict=True)) if pullback else None
        )
        if isinstance(self._form, OfBatch):
            v = wanted
        else:
            direction = self._direction(half)
            direction.add(wanted, training, share)
            if not direction.seen:
                return
            seen = direction.value()
            v = {name: part for name, part in seen.items() if name in parameters}
        if pullback is not None:
            products = pullback.along(v)
        else:
            assert closure is not None
            products = differences(closure, v, parameters, self._model)
        if isinstance(self._form, OfBatch):
            helpful = torch.nan_to_num(products, posinf=0.0).clamp(min=0).to(losses.dtype)
            (mean,) = together.mean([helpful.mean()], group)
            self._form.take(helpful, mean)
        else:
            self._move(self._form, self._form.key(losses, index), products, half, group)

    def _move(
        self, form: Rows | OfLoss, key: torch.Tensor, products: torch.Tensor, half: int, group: Any
    ) -> None:
        # Doubles hold every row number.
        columns = torch.stack([key.double(), products.double()], dim=1)
        columns = together.gathered(columns, group)
        columns = columns[torch.isfinite(columns).all(dim=1)]
        self._moved += len(columns)
        if isinstance(form, Rows):
            columns = columns[self._shares.usable(columns[:, 0].long())]
        if not len(columns):
            return
        key, products = columns.T
        self._moves += 1
        self._square = FORGET * self._square + (1 - FORGET) * float(products.square().mean())
        size = (self._square / (1 - FORGET**self._moves)) ** 0.5
        if size > 0:
            form.move(key, products / size, half)

    def _direction(self, half: int) -> Direction:
        """v of a half of the trusted rows; that of the second is made when it is first needed.

        A direction begins anew where a parameter is trained that was frozen before: its squares
        would be those of a few batches in a mean over a thousand, and it would rule v.
        """
        parameters = self._parameters()
        while len(self._directions) <= half:
            self._directions.append(Direction(parameters))
        if not parameters.keys() <= self._directions[half].mean.keys():
            self._directions[half] = Direction(parameters)
        return self._directions[half]

    def _parameters(self) -> Tensors:
        parts = together.inside(self._model).named_parameters()
        return {name: part for name, part in parts if part.requires_grad}

    def state_dict(self) -> dict[str, Any]:
        """A copy of all that a later run needs to go on bit for bit; torch.save takes it."""
        state = {
            "form": self._form.state_dict(),
            "directions": [direction.state_dict() for direction in self._directions],
            "halves": self._halves.state_dict() if self._halves else None,
            "shares": self._shares.state_dict(),
            "last": self._last,
            "square": self._square,
            "moves": self._moves,
            "calls": self._calls,
            "due": self._due,
            "turns": self._turns,
            "moved": self._moved,
        }
        return deepcopy(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken."""
        given, own = state["form"]["x"], self._form.x
        last, size = state["last"], None if self._last is None else len(self._last)
        is_other = state["form"].keys() != self._form.state_dict().keys()
        if is_other or given.shape != own.shape or size != (None if last is None else len(last)):
            raise ValueError(
                f"The state holds {len(given)} weights and this Reweighter has {len(own)}; "
                "expected the state of one with the same form and rows."
            )
        self._form.load_state_dict(state["form"])
        self._directions = [Direction(self._parameters())]
        for half, kept in enumerate(state["directions"]):
            self._direction(half).load_state_dict(kept)
        if self._halves is not None:
            self._halves.load_state_dict(state["halves"])
        self._shares.load_state_dict(state["shares"])
        if self._last is not None:
            self._last.copy_(state["last"])
        self._square, self._moves = float(state["square"]), int(state["moves"])
        self._calls, self._due = int(state["calls"]), int(state["due"])
        self._turns, self._moved = int(state["turns"]), int(state["moved"])
