"""One run of torchopt on a task saved by networks.py: learning to reweight by one step ahead.

python torchopt_peer.py TASK.npz INNER_RATE SEED EPOCHS      in an environment of its own

As in torchopt's own example: a differentiable SGD step with weights that start from zero, the
gradient of the trusted loss in them, its negative part dropped, the rest scaled to sum to one.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
import torchopt
from torch import nn
from torch.nn.functional import cross_entropy

BATCH = 100


def main(file: str, rate: float, seed: int, epochs: int) -> None:
    """Train, and print a line of the table."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data = {name: torch.as_tensor(part) for name, part in np.load(file).items()}
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2),
    )  # fmt: skip
    ahead = torchopt.MetaSGD(model, lr=rate)
    optimizer = torch.optim.Adam(model.parameters())
    trusted = data["trusted_features"], data["trusted_labels"]
    rows, start = len(data["labels"]), time.process_time()
    for _ in range(epochs):
        for index in torch.randperm(rows).split(BATCH):
            features, labels = data["features"][index], data["labels"][index]
            here, moments = (torchopt.extract_state_dict(part) for part in (model, ahead))
            weights = torch.zeros(len(index), requires_grad=True)
            ahead.step((weights * cross_entropy(model(features), labels, reduction="none")).sum())
            (slope,) = torch.autograd.grad(cross_entropy(model(trusted[0]), trusted[1]), weights)
            torchopt.recover_state_dict(model, here)
            torchopt.recover_state_dict(ahead, moments)
            found = (-slope).clamp(min=0)
            found = found / found.sum() if found.sum() > 0 else found
            optimizer.zero_grad()
            (found * cross_entropy(model(features), labels, reduction="none")).sum().backward()
            optimizer.step()
    seconds = time.process_time() - start
    with torch.no_grad():
        right = (model(data["test_features"]).argmax(1) == data["test_labels"]).float().mean()
    print(f"| torchopt, step ahead {rate:g}, seed {seed} | {right:.4f} | | {seconds:.1f} |")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
