"""One run of betty on a task saved by networks.py: one weight per row, Adam on both levels.

python betty_peer.py TASK.npz OUTER_RATE SEED EPOCHS     in an environment of its own, with betty-ml

It is given what ours is: the trusted rows are among those trained on, and an average of the network
over about its latest hundred steps is judged beside its last step.
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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 64


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
    """The weighted loss; what the network is at each step goes into an average of it."""

    mean: AveragedModel

    def training_step(self, batch: list[Tensor]) -> Tensor:
        self.mean.update_parameters(self.module)
        losses = cross_entropy(self.forward(batch[0]), batch[1], reduction="none")
        return (self.outer(batch[2]) * losses).mean()


def network(images: Tensor, classes: int) -> nn.Module:
    """That of examples/loops.py: two convolutions and one linear layer."""
    channels, side = images.shape[1], images.shape[2]
    left = ((side - 2) // 2 - 2) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 8 * channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8 * channels, 16 * channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * channels * left**2, classes),
    )  # fmt: skip


def main(file: str, rate: float, seed: int, epochs: int) -> None:
    """Train, and print a line of the table."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data = {name: torch.as_tensor(part) for name, part in np.load(file).items()}
    features = torch.cat([data["features"], data["trusted_features"]])
    labels = torch.cat([data["labels"], data["trusted_labels"]])
    rows, noisy = len(labels), len(data["labels"])
    model, weights = network(features, int(labels.max()) + 1), Weights(rows)
    training = TensorDataset(features, labels, torch.arange(rows))
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
    inner.mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    engine = Engine(
        config=EngineConfig(train_iters=epochs * (rows // BATCH), valid_step=10**9),
        problems=[outer, inner],
        dependencies={"u2l": {outer: [inner]}, "l2u": {inner: [outer]}},
    )  # fmt: skip
    start = time.process_time()
    engine.run()
    seconds = time.process_time() - start
    last, mean = (right(each, data) for each in (model, inner.mean))
    shown = ""
    if "wrong" in data:
        x, wrong = weights.x.detach()[:noisy], data["wrong"]
        above = x[~wrong][:, None] - x[wrong][None, :]
        shown = f"{((above > 0).float() + 0.5 * (above == 0).float()).mean().item():.3f}"
    print(
        f"| betty, outer rate {rate:g}, seed {seed} | {last:.4f} at the last step, {mean:.4f} "
        f"averaged | {shown} | {seconds:.1f} |"
    )


@torch.no_grad()
def right(model: nn.Module, data: dict[str, Tensor]) -> float:
    """Accuracy on the test rows."""
    found = torch.cat([model(part).argmax(1) for part in data["test_features"].split(500)])
    return float((found == data["test_labels"]).float().mean())


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
