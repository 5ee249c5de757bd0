"""PBCS: probabilistic bilevel coresets, as a method of `minimize`.

Zhou, Pi, Zhang, Lin and Zhang, "Probabilistic bilevel coreset selection". Row i is kept with
probability s_i; s lies in [0, 1]^n and sums to K. A step draws masks, trains on each from the model
as it was, and moves s by the policy gradient of the loss on all rows,

    1 / (masks - 1) * sum_k (L_k - mean L) (mask_k - s) / (s (1 - s)),   clipped,

by Adam; no derivative of the trained model is needed. The model is the last layer. The budget is
that of the authors: 2000 steps of 5 masks with 100 inner steps each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from untuned.closed_form.losses import LOSSES
from untuned.coreset.baselines import Selection
from untuned.coreset.selectors.candidates import Candidates
from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.run import minimize
from untuned.solvers.base import Info, Solver
from untuned.solvers.hyperparameters import require_count

STEPS, MASKS, INNER_STEPS = 2000, 5, 100
CLIP = 3.0
RATE, INNER_RATE = 5e-2, 5e-3
CLOSEST = 0.01  # to 0 and 1 that s counts as in the gradient, which would be infinite there
SOFTMAX = LOSSES["softmax"]


class State(NamedTuple):
    """The probabilities, the models that training starts from, and Adam's memory of x."""

    x: Any
    y: Tree
    v: Tree
    first: Any
    second: Any
    steps: int


@dataclass(frozen=True)
class PBCS(Solver):
    """Policy gradients on the probabilities of rows; x sums to `size`.

    Parameters
    ----------
    size : how many rows are kept on average.
    masks, inner_steps : masks per step, and steps of training on each.
    seed : of the masks.
    """

    size: int
    masks: int = MASKS
    inner_steps: int = INNER_STEPS
    seed: int = 0

    name: ClassVar[str] = "pbcs"
    loops: ClassVar[str] = "double"

    def __post_init__(self) -> None:
        require_count(self, "size", "masks", "inner_steps")

    @property
    def cost(self) -> Counts:
        """Evaluations per step."""
        return Counts(self.masks, self.masks * self.inner_steps, 0, 0)

    def init(self, o: Oracles, x: Any, y: Tree) -> State:
        """Start at x, with one model per mask."""
        zero = o.ops.zeros_like(x)
        return State(x, y, o.ops.zeros_like(y), zero, zero, 0)

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Draw, train, compare, move."""
        ops, x = o.ops, state.x
        rng = np.random.default_rng([self.seed, state.steps])
        masks = (rng.random((self.masks, x.size)) < x).astype(x.dtype)
        trained, norm = self._train(o, masks, state.y, batch.inner)
        models = (trained[k : k + 1] for k in range(self.masks))
        losses = np.array([o.outer_value(x, model, batch.outer) for model in models], x.dtype)
        inside = np.clip(x, CLOSEST, 1 - CLOSEST)
        slope = (losses - losses.mean()) @ (masks - x) / (inside * (1 - inside))
        slope = slope / max(self.masks - 1, 1)
        slope_norm = ops.norm(slope)
        slope = slope * min(1.0, CLIP / slope_norm) if slope_norm > 0 else slope
        move, first, second = adam(slope, state.first, state.second, state.steps + 1)
        info = Info(
            outer=float(losses.mean()), inner_grad_norm=norm, hypergrad_norm=slope_norm,
            step_x=RATE, step_y=INNER_RATE, measure=float(losses.mean()),
            inner_steps=self.inner_steps, counts=self.cost,
        )  # fmt: skip
        moved = onto_sum(x - RATE * move, self.size)
        return State(moved, state.y, state.v, first, second, state.steps + 1), info

    def _train(self, o: Oracles, masks: Any, y: Tree, rows: Tree) -> tuple[Tree, Scalar]:
        """Adam on every mask, from the model as it was, its rate falling along a cosine."""
        ops = o.ops
        weights = masks / masks.sum(axis=1, keepdims=True).clip(min=1)
        first = second = np.zeros_like(y)
        for k in range(self.inner_steps):
            slope = o.inner_grad(weights, y, rows)
            move, first, second = adam(slope, first, second, k + 1)
            y = y - INNER_RATE * 0.5 * (1 + math.cos(math.pi * k / self.inner_steps)) * move
        return y, ops.norm(slope)


def adam(slope: Any, first: Any, second: Any, step: int) -> tuple[Any, Any, Any]:
    """Adam's direction, and its two running means after it."""
    first = 0.9 * first + 0.1 * slope
    second = 0.999 * second + 0.001 * slope**2
    move = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return move, first, second


def onto_sum(x: Any, total: float) -> Any:
    """The nearest point with entries in [0, 1] that sum to `total`: a shift, by bisection."""
    low, high = float(x.min()) - 1, float(x.max())
    for _ in range(50):
        middle = (low + high) / 2
        if (x - middle).clip(0, 1).sum() > total:
            low = middle
        else:
            high = middle
    return (x - (low + high) / 2).clip(0, 1)


class Heads:
    """Last layers side by side, each weighing rows in its own way; ridge on all their entries.

    x are weights, (heads, rows) or (rows,); y is (heads, classes, features + 1), the intercept
    last. As an outer function x does not count, and every row weighs its share.
    """

    def __init__(self, c: Candidates, share: np.ndarray | None = None):
        self.A = np.column_stack([c.features, np.ones(len(c), c.features.dtype)])
        self.target = np.eye(len(c.classes), dtype=self.A.dtype)[:, c.label]
        self.ridge, self.share = c.ridge, share
        self._x: np.ndarray | None = None

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        losses = self._losses(y)
        if self.share is not None:
            return float((losses @ self.share).mean())
        return float((x * losses).sum() + 0.5 * self.ridge * np.vdot(y, y))

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """g and its gradients."""
        losses = self._losses(y)
        return self(x, y), losses if x.ndim == 2 else losses.sum(axis=0), self.grad_y(x, y)

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """grad_y g; rows without weight cost nothing."""
        weight, A, transposed, target = self._kept(x)
        slopes = SOFTMAX.slope(y @ transposed, target, 1)
        slopes *= weight[:, None]
        return slopes @ A + self.ridge * y

    def _losses(self, y: np.ndarray) -> np.ndarray:
        return SOFTMAX.value(y @ self.A.T, self.target, 1)

    def _kept(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Weights, rows and targets of the rows that each head keeps, for all its inner steps.

        Heads keep different numbers of rows; the shorter ones are filled up by rows that weigh
        nothing.
        """
        if self._x is not x:
            weights = np.atleast_2d(x)
            most = max(int(np.count_nonzero(weights, axis=1).max()), 1)
            rows = np.argsort(weights == 0, axis=1, kind="stable")[:, :most]
            A = self.A[rows]
            transposed = np.ascontiguousarray(A.transpose(0, 2, 1))
            target = np.ascontiguousarray(self.target[:, rows].transpose(1, 0, 2))
            self._x = x  # the array itself, so that no other can take its place
            self._rows = np.take_along_axis(weights, rows, axis=1), A, transposed, target
        return self._rows


def pbcs(
    c: Candidates, size: int, *, steps: int = STEPS, masks: int = MASKS,
    inner_steps: int = INNER_STEPS,
) -> Selection:  # fmt: skip
    """The rows of largest probability, and these as weights."""
    method = PBCS(size, masks, inner_steps, seed=int(c.rng.integers(2**31)))
    share = c.share.astype(c.features.dtype)
    head = np.vstack([c.head.coef, c.head.intercept]).T
    result = minimize(
        Heads(c, share), Heads(c), np.full_like(share, size / len(c)),
        np.stack([head] * method.masks), method=method, max_steps=steps, eval_every=steps,
    )  # fmt: skip
    s = result.state.x.astype(np.float64)
    order = np.lexsort((c.rng.random(len(c)), -s))[:size]
    return order, s[order] / s[order].max()
