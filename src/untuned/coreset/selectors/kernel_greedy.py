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


def corner(rows: list[int], like: Any) -> Any:
    """The corner of the simplex of an even coreset."""
    x = np.zeros_like(like)
    x[rows] = 1 / len(rows)
    return x


class Machine(NamedTuple):
    """Logits X y of all rows; X are features whose products are the kernel."""

    X: np.ndarray  # (rows, features)
    target: np.ndarray  # (classes, rows), 1 at each row's class

    def losses(self, y: np.ndarray) -> np.ndarray:
        """The loss of each row."""
        return SOFTMAX.value(y.T @ self.X.T, self.target, 0)

    def slopes(self, y: np.ndarray) -> np.ndarray:
        """Their derivatives in the logits, (classes, rows)."""
        return SOFTMAX.slope(y.T @ self.X.T, self.target, 0)

    def of(self, rows: np.ndarray) -> Machine:
        """The same with some of the rows."""
        return Machine(self.X[rows], self.target[:, rows])


class Inner:
    """g: the loss weighted by x, with the penalty, at one x, whose zeros cost nothing."""

    def __init__(self, machine: Machine, x: np.ndarray):
        rows = np.flatnonzero(x)
        self.machine, self.part, self.weight = machine, machine.of(rows), x[rows]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return float(self.weight @ self.part.losses(y) + PENALTY * np.vdot(y, y))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        return ((self.weight * self.part.slopes(y)) @ self.part.X).T + 2 * PENALTY * y

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        part, weight = self.part, self.weight
        bend = SOFTMAX.bend(y.T @ part.X.T, 0)

        def in_y(v: np.ndarray) -> np.ndarray:
            return ((weight * bend(v.T @ part.X.T)) @ part.X).T + 2 * PENALTY * v

        # Not recursive: a function that holds itself is freed late, and with it the rows.
        def pull(v: np.ndarray, wrt: str) -> Any:
            if wrt == "y":
                return in_y(v)
            in_x = (self.machine.slopes(y) * (v.T @ self.machine.X.T)).sum(axis=0)
            return in_x if wrt == "x" else (in_x, in_y(v))

        return pull


class Outer:
    """f: the loss of all rows, each by its share."""

    def __init__(self, machine: Machine, share: np.ndarray):
        self.machine, self.share = machine, share

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        return float(self.share @ self.machine.losses(y))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """f and its gradients."""
        in_y = ((self.share * self.machine.slopes(y)) @ self.machine.X).T
        return self(x, y), np.zeros_like(x), in_y


def greedy_coreset(c: Candidates, size: int) -> Selection:
    """Rows in the order they were added, with equal weights."""
    # A kernel machine's penalty is a plain ridge in the kernel's own features, where conjugate
    # gradients do not meet the kernel's condition twice.
    values, vectors = np.linalg.eigh(tangent_kernel(c.flat).astype(np.float64))
    X = (vectors * np.sqrt(values.clip(min=0))).astype(np.float32)
    machine = Machine(X, np.eye(len(c.classes), dtype=X.dtype)[:, c.label])
    share = c.share.astype(X.dtype)
    outer = Outer(machine, share)
    order, no_rows = [int(c.rng.integers(len(c)))], Batch(None, None)
    y = v = np.zeros((len(c), len(c.classes)), np.float32)
    while len(order) < size:
        x = corner(order, share)
        o = Oracles(ops, outer, Inner(machine, x))
        found = train(o, x, (y, v), None, no_rows, (FINE, ROUGH), MOST_LINEAR_STEPS)
        y, v = found.inner.y, found.linear.z
        hypergrad = found.outer.grad_x - o.linear(x, y, None).cross(v)
        order.append(int(np.argmin(np.where(x > 0, np.inf, hypergrad))))
    return np.array(order), np.ones(size)
