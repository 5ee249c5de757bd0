"""One run of betty on a task saved by networks.py: one weight per row, Adam on both levels.

python betty_peer.py TASK.npz OUTER_RATE SEED      in an environment of its own, with betty-ml
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from betty.configs import Config, EngineConfig
from betty.engine import Engine
from betty.problems import ImplicitProblem
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 15, 64


class Weights(nn.Module):
    """One logit per row."""

    def __init__(self, rows: int):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(rows))

    def forward(self, index: Tensor) -> Tensor:
        return torch.sigmoid(self.x[index])


class Outer(ImplicitProblem):
    """The trusted loss."""

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return cross_entropy(self.inner(batch[0]), batch[1])


class Inner(ImplicitProblem):
    """The weighted loss."""

    def training_step(self, batch: list[Tensor]) -> Tensor:
        losses = cross_entropy(self.forward(batch[0]), batch[1], reduction="none")
        return (self.outer(batch[2]) * losses).mean()


def main(file: str, rate: float, seed: int) -> None:
    """Train, and print a line of the table."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data = {name: torch.as_tensor(part) for name, part in np.load(file).items()}
    rows = len(data["labels"])
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 10),
    )  # fmt: skip
    weights = Weights(rows)
    training = TensorDataset(data["features"], data["labels"], torch.arange(rows))
    trusted = TensorDataset(data["trusted_features"], data["trusted_labels"])
    outer = Outer(
        name="outer", module=weights, optimizer=torch.optim.Adam(weights.parameters(), lr=rate),
        train_data_loader=DataLoader(trusted, BATCH, shuffle=True), config=Config(),
    )  # fmt: skip
    inner = Inner(
        name="inner", module=model, optimizer=torch.optim.Adam(model.parameters()),
        train_data_loader=DataLoader(training, BATCH, shuffle=True, drop_last=True),
        config=Config(type="darts", unroll_steps=1),
    )  # fmt: skip
    steps = EPOCHS * (rows // BATCH)
    engine = Engine(
        config=EngineConfig(train_iters=steps, valid_step=10**9), problems=[outer, inner],
        dependencies={"u2l": {outer: [inner]}, "l2u": {inner: [outer]}},
    )  # fmt: skip
    start = time.process_time()
    engine.run()
    seconds = time.process_time() - start
    with torch.no_grad():
        found = model(data["test_features"]).argmax(1)
    right = (found == data["test_labels"]).float().mean().item()
    x, wrong = weights.x.detach(), data["wrong"]
    above = x[~wrong][:, None] - x[wrong][None, :]
    auroc = ((above > 0).float() + 0.5 * (above == 0).float()).mean().item()
    print(
        f"| betty, outer rate {rate:g}, seed {seed} | {right:.4f} | {auroc:.3f} | {seconds:.1f} |"
    )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
