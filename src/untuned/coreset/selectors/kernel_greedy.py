"""Greedy Coreset: rows one by one, each by the hypergradient.

Borsos, Mutny and Krause, "Coresets via bilevel optimization for continual learning and streaming".
The proxy is a kernel machine, logits K alpha with penalty 1e-3 tr(alpha' K alpha), where K is the
tangent kernel of the inputs. From one random row: solve for alpha on the rows so far, solve for v,
and add the row of the most negative hypergradient. All rows have equal weight: the few steps of
Adam that the authors take on the weights move none by more than a twentieth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.closed_form.losses import LOSSES
from untuned.coreset.baselines import Selection
from untuned.coreset.inner_solution import train
from untuned.coreset.selectors.candidates import Candidates
from untuned.coreset.selectors.kernels import tangent_kernel
from untuned.data.batches import Batch
from untuned.ops import numpy as ops
from untuned.problem.derivatives import Oracles

PENALTY = 1e-3
MOST_LINEAR_STEPS = 50
ROUGH, FINE = 0.1, 0.03  # shares of residuals that may be left, of v and of y
SOFTMAX = LOSSES["softmax"]


class Machine(NamedTuple):
    """Logits X y of some rows, and the sum of their losses by their weights."""

    X: np.ndarray  # (rows, features), whose products are the kernel
    target: np.ndarray  # (classes, rows), 1 at each row's class
    weight: np.ndarray

    def loss(self, y: np.ndarray) -> float:
        """The sum."""
        return float(self.weight @ SOFTMAX.value(y.T @ self.X.T, self.target, 0))

    def slopes(self, y: np.ndarray) -> np.ndarray:
        """The derivatives of each row's loss in its logits, (classes, rows)."""
        return SOFTMAX.slope(y.T @ self.X.T, self.target, 0)

    def back(self, slopes: np.ndarray) -> np.ndarray:
        """The gradient in y of what has these slopes in the logits."""
        return ((self.weight * slopes) @ self.X).T


class Inner:
    """g: the loss weighted by x, with the penalty, at one x, whose zeros cost nothing."""

    def __init__(self, every: Machine, x: np.ndarray):
        rows = np.flatnonzero(x)
        self.every = every
        self.part = Machine(every.X[rows], every.target[:, rows], x[rows])

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.part.loss(y) + PENALTY * float(np.vdot(y, y))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        return self.part.back(self.part.slopes(y)) + 2 * PENALTY * y

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        every, part, bend = self.every, self.part, SOFTMAX.bend(y.T @ self.part.X.T, 0)

        # Not recursive: a function that holds itself is freed late, and with it the rows.
        def pull(v: np.ndarray, wrt: str) -> Any:
            in_y = None if wrt == "x" else part.back(bend(v.T @ part.X.T)) + 2 * PENALTY * v
            if wrt == "y":
                return in_y
            in_x = (every.slopes(y) * (v.T @ every.X.T)).sum(axis=0)
            return in_x if wrt == "x" else (in_x, in_y)

        return pull


class Outer:
    """f: the loss of all rows, each by its share."""

    def __init__(self, every: Machine):
        self.every = every

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.every.loss(y)

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f and its gradients."""
        return self.every.loss(y), np.zeros_like(x), self.every.back(self.every.slopes(y))


def greedy_coreset(c: Candidates, size: int) -> Selection:
    """Rows in the order they were added, with equal weights."""
    # A kernel machine's penalty is a plain ridge in the kernel's own features, where conjugate
    # gradients do not meet the kernel's condition twice.
    values, vectors = np.linalg.eigh(tangent_kernel(c.flat).astype(np.float64))
    X = (vectors * np.sqrt(values.clip(min=0))).astype(np.float32)
    share = c.share.astype(X.dtype)
    every = Machine(X, np.eye(len(c.classes), dtype=X.dtype)[:, c.label], share)
    order, no_rows = [int(c.rng.integers(len(c)))], Batch(None, None)
    y = v = np.zeros((len(c), len(c.classes)), np.float32)
    while len(order) < size:
        x = np.zeros_like(share)
        x[order] = 1 / len(order)
        o = Oracles(ops, Outer(every), Inner(every, x))
        found = train(o, x, (y, v), None, no_rows, (FINE, ROUGH), MOST_LINEAR_STEPS)
        y, v = found.inner.y, found.linear.z
        hypergrad = found.outer.grad_x - o.linear(x, y, None).cross(v)
        order.append(int(np.argmin(np.where(x > 0, np.inf, hypergrad))))
    return np.array(order), np.ones(size)
