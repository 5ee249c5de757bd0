"""Greedy Coreset: rows one by one, each by the hypergradient, as a method of `minimize`.

Borsos, Mutny and Krause, "Coresets via bilevel optimization for continual learning and streaming".
The proxy is a kernel machine, logits K alpha with penalty 1e-3 tr(alpha' K alpha), where K is the
tangent kernel of the inputs. From one random row: solve for alpha on the rows so far, solve for v,
and add the row of the most negative hypergradient. All rows have equal weight: the few steps of
Adam that the authors take on the weights move none by more than a twentieth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from untuned.closed_form.losses import LOSSES
from untuned.coreset.baselines import Selection
from untuned.coreset.inner_solution import train
from untuned.coreset.selectors.candidates import Candidates
from untuned.coreset.selectors.kernels import tangent_kernel
from untuned.data.batches import Batch
from untuned.ops import Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.run import minimize
from untuned.solvers.base import Info, Solver

PENALTY = 1e-3
MOST_LINEAR_STEPS = 50
ROUGH, FINE = 0.1, 0.03  # shares of residuals that may be left, of v and of y
SOFTMAX = LOSSES["softmax"]


class State(NamedTuple):
    """The corner of the simplex that is the coreset, its model, and the rows in their order."""

    x: Any
    y: Tree
    v: Tree
    order: tuple[int, ...]


@dataclass(frozen=True)
class Greedy(Solver):
    """Adds one row per step; x0 is the corner of the simplex of the rows to start from."""

    name: ClassVar[str] = "greedy-coreset"
    loops: ClassVar[str] = "double"
    cost: ClassVar[Counts] = Counts(1, None, None, 1)

    def init(self, o: Oracles, x: Any, y: Tree) -> State:
        """Start from the rows of x."""
        order = tuple(int(row) for row in np.flatnonzero(x))
        return State(x, y, o.ops.zeros_like(y), order)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Solve for the model and for v, then add a row."""
        ops, x = o.ops, state.x
        start = (state.y, state.v)
        trained = train(o, x, start, batch.inner, batch, (FINE, ROUGH), MOST_LINEAR_STEPS)
        inner, f, solved = trained
        cross = o.linear(x, inner.y, batch.inner).cross(solved.z)
        hypergrad = ops.sub(f.grad_x, cross)
        order = state.order + (int(np.argmin(np.where(x > 0, np.inf, hypergrad))),)
        info = Info(
            outer=f.value,
            inner_grad_norm=ops.norm(inner.grad),
            residual_norm=solved.residual_norm,
            hypergrad_norm=ops.norm(hypergrad),
            measure=f.value - ops.dot(solved.z, inner.grad),
            inner_steps=inner.newton_steps,
            linear_steps=solved.steps,
            counts=Counts(1, inner.gradients, trained.products, 1),
        )
        return State(corner(order, x), inner.y, solved.z, order), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at the rows before, with the y and v just solved for."""
        return old.x, new.y, new.v


def corner(rows: tuple[int, ...], like: Any) -> Any:
    """The corner of the simplex of an even coreset."""
    x = np.zeros_like(like)
    x[list(rows)] = 1 / len(rows)
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
    """g: the loss weighted by x, with the penalty. Rows without weight cost nothing."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self._x: np.ndarray | None = None

    def _coreset(self, x: np.ndarray) -> tuple[Machine, np.ndarray]:
        if self._x is None or not np.array_equal(x, self._x):
            rows = np.flatnonzero(x)
            self._x, self._found = x, (self.machine.of(rows), x[rows])
        return self._found

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        part, weight = self._coreset(x)
        return float(weight @ part.losses(y) + PENALTY * np.vdot(y, y))

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g."""
        part, weight = self._coreset(x)
        return ((weight * part.slopes(y)) @ part.X).T + 2 * PENALTY * y

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g and its gradients."""
        return self(x, y), self.machine.losses(y), self.grad_y(x, y)

    def products(self, x: np.ndarray, y: np.ndarray) -> Callable:
        """The second derivatives, to be applied to many v."""
        part, weight = self._coreset(x)
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
    first = int(c.rng.integers(len(c)))
    if size == 1:
        return np.array([first]), np.ones(1)
    result = minimize(
        Outer(machine, share), Inner(machine), corner((first,), share),
        np.zeros((len(c), len(c.classes)), np.float32), method=Greedy(), max_steps=size - 1,
        eval_every=size - 1,
    )  # fmt: skip
    return np.asarray(result.state.order), np.ones(size)
