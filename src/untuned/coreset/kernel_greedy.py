"""Greedy Coreset: rows one by one, each by the hypergradient, as a method of `minimize`.

Borsos, Mutny and Krause, "Coresets via bilevel optimization for continual learning and streaming".
The proxy is a kernel machine, logits K alpha with penalty 1e-3 tr(alpha' K alpha), where K is the
tangent kernel of the inputs. From one random row: solve for alpha on the rows so far, solve for v,
and add the row of the most negative hypergradient. All rows weigh alike: the few steps of Adam that
the authors give the weights move none by more than a twentieth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch.nn import functional

import untuned
from untuned.batches import Batch
from untuned.coreset.baselines import Selection
from untuned.coreset.candidates import Candidates
from untuned.coreset.kernels import tangent_kernel
from untuned.coreset.trained import train
from untuned.derivatives import Counts, Oracles
from untuned.ops import Scalar, Tree
from untuned.solvers.base import Info

PENALTY = 1e-3
MOST_LINEAR_STEPS = 50
ROUGH, FINE = 0.1, 0.03  # shares of residuals that may be left, of v and of y


class State(NamedTuple):
    """The corner of the simplex that is the coreset, its model, and the rows in their order."""

    x: Any
    y: Tree
    v: Tree
    order: tuple[int, ...]


@dataclass(frozen=True)
class Greedy:
    """Adds one row per step; x0 is the corner of the simplex of the rows to start from."""

    name: ClassVar[str] = "greedy-coreset"
    loops: ClassVar[str] = "double"
    inner_draws: ClassVar[int] = 1
    outer_draws: ClassVar[int] = 1
    needs_uniform: ClassVar[bool] = False
    to_tune: ClassVar[tuple[str, ...]] = ()
    cost: ClassVar[Counts] = Counts(1, None, None, 1)

    def init(self, o: Oracles, x: Any, y: Tree) -> State:
        """Start from the rows of x."""
        order = tuple(int(row) for row in torch.nonzero(x)[:, 0])
        return State(x, y, o.ops.zeros_like(y), order)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Solve for the model and for v, then add a row."""
        ops, x = o.ops, state.x
        rows = ops.take(batch.inner, state.order)  # others have no weight
        start = (state.y, state.v)
        trained = train(o, x, start, rows, batch, (FINE, ROUGH), MOST_LINEAR_STEPS)
        inner, f, solved = trained
        cross = o.linear(x, inner.y, batch.inner).cross(solved.z)
        hypergrad = ops.sub(f.grad_x, cross)
        free = torch.where(x > 0, torch.inf, hypergrad)
        order = state.order + (int(torch.argmin(free)),)
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

    def measured(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken at the rows before, with the y and v just solved for."""
        return old.x, new.y, new.v


def corner(rows: tuple[int, ...], like: Any) -> Any:
    """The corner of the simplex of an even coreset."""
    x = torch.zeros_like(like)
    x[list(rows)] = 1 / len(rows)
    return x


def greedy_coreset(c: Candidates, size: int) -> Selection:
    """Rows in the order they were added, all alike."""
    kernel = torch.tensor(tangent_kernel(c.flat), dtype=torch.float64)
    label = torch.tensor(c.label)
    share = torch.tensor(c.share, dtype=torch.float32)
    # A kernel machine's penalty is a plain ridge in the kernel's own features, where conjugate
    # gradients do not meet the kernel's condition twice.
    values, vectors = torch.linalg.eigh(kernel)
    rows = {
        "X": (vectors * torch.sqrt(values.clamp(min=0))).float(),
        "label": label,
        "number": torch.arange(len(c)),
    }

    def losses(y: Any, rows: Tree) -> Any:
        return functional.cross_entropy(rows["X"] @ y, rows["label"], reduction="none")

    def outer(x: Any, y: Any, rows: Tree) -> Any:
        return share @ losses(y, rows)

    def inner(x: Any, y: Any, rows: Tree) -> Scalar:
        return x[rows["number"]] @ losses(y, rows) + PENALTY * torch.sum(y**2)

    first = int(c.rng.integers(len(c)))
    if size == 1:
        return np.array([first]), np.ones(1)
    result = untuned.minimize(
        outer, inner, corner((first,), share), share.new_zeros((len(c), len(c.classes))),
        outer_data=rows, inner_data=rows, method=Greedy(), max_steps=size - 1,
        eval_every=size - 1,
    )  # fmt: skip
    return np.asarray(result.state.order), np.ones(size)
