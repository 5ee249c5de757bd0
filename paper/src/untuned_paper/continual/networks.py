"""The networks of the two streams; both give one logit per class; the learner masks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def mlp(inputs: int, outputs: int) -> nn.Module:
    """Two hidden layers of 100."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 100),
        nn.ReLU(),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Linear(100, outputs),
    )


class Dropout(nn.Module):
    """As torch's, with numbers that NumPy draws.

    With torch's own a training step of this network takes a fifth longer. The seed is torch's,
    asked for when the first are needed, so that first weights do not depend on it.
    """

    def __init__(self, probability: float):
        super().__init__()
        self.zeros = round(probability * 2**16)  # of the values that two bytes have
        self.scale = np.float32(2**16 / (2**16 - self.zeros))
        self._random: np.random.Generator | None = None

    def forward(self, x: Any) -> Any:
        """Entries are zero with the probability given, the others larger by as much."""
        if not self.training:
            return x
        if self._random is None:
            self._random = np.random.Generator(np.random.SFC64(int(torch.randint(2**31, ()))))
        values = np.frombuffer(self._random.bytes(2 * x.numel()), np.uint16)
        kept = np.multiply(values >= self.zeros, self.scale, dtype=np.float32)
        # In the order in which x lies in memory: the product then needs no copy of either.
        return x * torch.from_numpy(kept).as_strided(x.shape, x.stride()).to(x)


class Block(nn.Module):
    """One convolution and a shortcut, each followed by ReLU, normalisation and dropout."""

    def __init__(self, inside: int, outside: int, stride: int, dropout: float):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm1, self.norm2 = _norm(outside), _norm(outside)
        changes = stride != 1 or inside != outside
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False) if changes else None
        self.drop = Dropout(dropout)

    def forward(self, x: Any) -> Any:
        """Drop(BN(ReLU(h + shortcut))), h = Drop(BN(ReLU(conv)))."""
        h = self.drop(self.norm1(functional.relu_(self.conv(x))))
        h += x if self.shortcut is None else self.shortcut(x)
        return self.drop(self.norm2(functional.relu_(h)))


class SmallResNet(nn.Module):
    """What the older code calls ResNet-18: 8 blocks of one convolution, 4 widths of 2 each.

    Normalisation keeps no running statistics: test batches normalise by themselves.
    """

    def __init__(self, outputs: int, channels: int = 3, width: int = 20, dropout: float = 0.2):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = _norm(width)
        blocks, inside = [], width
        for scale in (1, 2, 4, 8):
            for number in range(2):
                stride = 2 if scale > 1 and number == 0 else 1
                blocks.append(Block(inside, scale * width, stride, dropout))
                inside = scale * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inside, outputs)

    def forward(self, x: Any) -> Any:
        """Logits of all classes."""
        x = functional.relu_(self.norm(self.stem(x)))
        x = functional.adaptive_avg_pool2d(self.blocks(x), 1)
        return self.head(x.flatten(1))


def _norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, track_running_stats=False)
