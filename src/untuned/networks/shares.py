"""The classes of rows: how much a trusted row of each counts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import torch

UNKNOWN = -1
NEAR = 20  # nodes of a graph: whatever stands between losses and their cross-entropy is in these
CROSS_ENTROPIES = ("NllLoss", "BinaryCrossEntropy")  # what torch calls their nodes begins so, and
LABELS = "_saved_target"  # the labels there


class Shares:
    """The class of every training row that was seen, for trusted rows to have the same shares.

    Trusted rows drawn at random have other shares of the classes than the training rows, by chance.
    Their gradient asks for its own shares, and weights would follow it: where classes overlap, that
    moves the border between them. So trusted rows of class k in a half count

        (share of class k in the training rows) / (share of class k in the half),

    unless the shares differ by more than chance, as where trusted rows are drawn class by class
    from classes of different sizes. With o_k of T trusted rows and a share pi_k of N training rows
    in class k of K, it is taken for chance up to two standard errors:

        sum over k of (o_k - T pi_k)^2 / (T pi_k (1 + T / N)) <= K - 1 + 2 sqrt(2 (K - 1)).

    Where a class has no trusted row by chance, its rows keep their weights: trusted rows of
    other classes alone would only lower them.
    """

    def __init__(self, rows: int, device: torch.device):
        self.rows = rows
        self._labels = torch.full((rows,), UNKNOWN, device=device)
        self._counts: Counter[int] = Counter()
        # When last told: classes without a trusted row by chance, and whether shares are meant.
        self._absent: list[int] = []
        self.meant = False

    def see(self, index: torch.Tensor, labels: torch.Tensor) -> None:
        """Note the classes of training rows; a row may come again, and with another label."""
        index, first = _once(index)
        old, new = self._labels[index].tolist(), labels.to(self._labels)[first]
        self._counts.subtract(old)
        self._counts.update(new.tolist())
        self._labels[index] = new

    def worth(self, trusted: Mapping[int, int], half: Mapping[int, int]) -> dict[int, float]:
        """How much a trusted row of each class counts, from the numbers of trusted rows of a class
        in all and in the half; nothing where all count the same."""
        counts = sorted(self._counts.items())  # the same order, and sums, after a resume
        seen = {label: count for label, count in counts if label >= 0 and count > 0}
        rows, drawn = sum(seen.values()), sum(trusted.values())
        self._absent, self.meant = [], False
        if len(seen) < 2 or not trusted.keys() <= seen.keys():
            return {}
        expected = {label: drawn * count / rows for label, count in seen.items()}
        distance = sum((trusted.get(k, 0) - usual) ** 2 / usual for k, usual in expected.items())
        free = len(seen) - 1
        self.meant = distance > (free + 2 * (2 * free) ** 0.5) * (1 + drawn / rows)
        if self.meant:
            return {}
        self._absent = [label for label in seen if label not in trusted]
        size = sum(half.values())
        return {label: seen[label] / rows * size / count for label, count in half.items()}

    def usable(self, index: torch.Tensor) -> torch.Tensor:
        """Which rows are of a class of which trusted rows tell something."""
        absent = index.new_tensor(self._absent, dtype=torch.int64)
        return ~torch.isin(self._labels[index], absent)

    def state_dict(self) -> dict[str, Any]:
        return {"labels": self._labels, "absent": self._absent, "meant": self.meant}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._labels.copy_(state["labels"])
        self._counts = Counter(self._labels.tolist())
        # Trusted rows may come in another form from now on, which tells neither anew.
        self._absent, self.meant = list(state.get("absent", [])), bool(state.get("meant"))


def labels_of(losses: torch.Tensor) -> torch.Tensor:
    """The class of each row by the graph of its loss; UNKNOWN where that is no cross-entropy,
    or is gone."""
    nodes = deque([losses.grad_fn])
    for _ in range(NEAR):
        if not nodes:
            break
        node = nodes.popleft()
        if node is None:
            continue
        if node.name().startswith(CROSS_ENTROPIES):
            try:
                target = getattr(node, LABELS).reshape(-1)
            except RuntimeError:  # what torch says of a graph after backward()
                break
            if len(target) == len(losses):
                return (target > 0.5).long() if target.is_floating_point() else target.long()
        nodes.extend(following for following, _ in node.next_functions)
    return torch.full((len(losses),), UNKNOWN, device=losses.device)


def _once(index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers without repetition, and where each of them stands."""
    places = {number: place for place, number in enumerate(index.tolist())}
    return (
        torch.tensor(list(places), dtype=torch.int64, device=index.device),
        torch.tensor(list(places.values()), dtype=torch.int64, device=index.device),
    )
