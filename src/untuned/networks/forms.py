"""What a weight is a function of: the row itself, the row's loss, or the batch at hand."""

from __future__ import annotations

from typing import Any

import torch

RATE = 0.3  # of the products' root mean square: how far a knot's logit moves at most
KNOTS = 16
FORGET = 0.99  # running means are over about a hundred batches
LATEST = 4  # the mean of what the halves say is over about the latest quarter of all moves


class Rows:
    """One logit x_i per row; its weight is sigmoid(x_i).

    With p a row's product in units of the root mean square of all, S_i <- S_i + p^2 and
    x_i <- x_i + p / sqrt(1 + S_i): the steps of `auto` (`untuned.solvers.auto.network`). A row's
    first visits move it most, and none moves it by more than one.

    Where products come from two halves of the trusted rows in turn, what one half has done to x is
    tested on the other: with e the mean of p of one half times x of the other, less the latter's
    mean in the batch, all of x counts 1 + (sum of e) / sqrt(sum of e^2), but at most 1 and at least
    0. That may go from one end to the other within a few batches, and a network cannot follow it:
    so what x counts is a mean of it, over about the latest quarter of all moves.
    """

    def __init__(self, rows: int, device: torch.device):
        self.by_half = torch.zeros(2, rows, device=device)  # what each half has done
        self.squares = torch.zeros(rows, device=device)
        self.evidence, self.evidence_squares = 0.0, 0.0
        self.used, self.moves = 1.0, 0

    @property
    def x(self) -> torch.Tensor:
        """The logits of all rows."""
        return self.used * self.by_half.sum(0)

    def weigh(self, losses: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
        """The weights of a batch."""
        return torch.sigmoid(self.used * self.by_half[:, index].sum(0))

    def key(self, losses: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
        """What tells where a row's product belongs: here its number."""
        assert index is not None
        return index

    def move(self, key: torch.Tensor, scaled: torch.Tensor, half: int) -> None:
        """Move the logits by a half's products in units of their root mean square."""
        key, scaled = key.long(), scaled.to(self.squares.dtype)
        other = self.by_half[1 - half, key]
        found = float(((other - other.mean()) * scaled).mean())
        self.evidence += found
        self.evidence_squares += found * found
        if self.evidence_squares:
            now = min(1.0, max(0.0, 1 + self.evidence / self.evidence_squares**0.5))
            self.moves += 1
            self.used += LATEST / (LATEST + self.moves) * (now - self.used)
        self.squares.index_add_(0, key, scaled * scaled)
        self.by_half[half].index_add_(0, key, scaled / (1 + self.squares[key]).sqrt())

    def state_dict(self) -> dict[str, Any]:
        return {
            "x": self.x,
            "ways": self.by_half,
            "squares": self.squares,
            "evidence": self.evidence,
            "evidence_squares": self.evidence_squares,
            "used": self.used,
            "moves": self.moves,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.by_half.copy_(state["ways"])
        self.squares.copy_(state["squares"])
        self.evidence = float(state["evidence"])
        self.evidence_squares = float(state["evidence_squares"])
        self.used, self.moves = float(state["used"]), int(state["moves"])


class OfLoss:
    """One function of the loss for all rows, seen or not: linear between knots, then a sigmoid.

    Losses are placed by z = loss / (loss + their running mean), which is in [0, 1) and the same in
    all units.
    """

    def __init__(self, device: torch.device):
        self.x = torch.zeros(KNOTS, device=device)
        self.mean, self.seen = 0.0, 0

    def _hats(self, losses: torch.Tensor) -> torch.Tensor:
        """How much of each knot is in each loss: rows that sum to one."""
        losses = torch.nan_to_num(losses.detach().to(self.x.dtype)).clamp(min=0)
        typical = self.mean / (1 - FORGET**self.seen) if self.seen else float(losses.mean())
        z = losses / (losses + max(typical, torch.finfo(self.x.dtype).tiny))
        knots = torch.linspace(0, 1, KNOTS, device=self.x.device)
        return (1 - (z[:, None] - knots).abs() * (KNOTS - 1)).clamp(min=0)

    def weigh(self, losses: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor:
        """The weights of any rows, by their losses alone."""
        return torch.sigmoid(self._hats(losses) @ self.x)

    def key(self, losses: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
        """What tells where a row's product belongs: here its loss."""
        return losses.detach()

    def move(self, key: torch.Tensor, scaled: torch.Tensor, half: int) -> None:
        """Move each knot by the mean of the products near it, whichever half they are of."""
        hats = self._hats(key)
        near = hats.sum(0)
        self.x += RATE * (hats.T @ scaled.to(hats.dtype)) / near.clamp(min=1)
        self.mean = FORGET * self.mean + (1 - FORGET) * float(key.mean())
        self.seen += 1

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x, "mean": self.mean, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x.copy_(state["x"])
        self.mean, self.seen = float(state["mean"]), int(state["seen"])


class OfBatch:
    """No memory: rows of the batch that help the trusted rows now, each by how much it does.

        w_i = max(p_i, 0) / (2 mean of max(p, 0) in the batch),

    so that their mean is 1/2, as that of all others at the start; zero where no row helps. The
    trusted gradient is that of now, neither averaged nor scaled, as the weights are for now. A
    class that is learned already has rows that would only make the other one worse: they get
    nothing, however many they are, which a weight in [0, 1] for each would take long to learn.
    """

    def __init__(self, device: torch.device):
        self.x = torch.zeros(0, device=device)
        self.now: torch.Tensor | None = None

    def weigh(self, losses: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor:
        """The weights of the batch that was learned from last; before that 1/2 for each row."""
        return torch.full_like(losses.detach(), 0.5) if self.now is None else self.now

    def take(self, helpful: torch.Tensor, mean: torch.Tensor) -> None:
        """Make weights of products that are not negative, and of their mean in all processes."""
        self.now = helpful / (2 * mean) if bool(mean > 0) else torch.zeros_like(helpful)

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing is carried from batch to batch."""
