"""MNIST hyper-cleaning on torch, and S-TFBO on it as loops one would write by hand.

    f(x, y) = mean cross-entropy on validation rows
    g(x, y) = mean of sigmoid(x_i) times the cross-entropy of training row i + penalty * |y|^2

y holds the weights of a model; half of the training labels are drawn anew at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import untuned
from common import Problem, experiment

VALIDATION_ROWS, TRAIN_ROWS = 5_000, 20_000


class Rows(NamedTuple):
    """Images, labels, and where each row stands among all of its side."""

    images: Tensor
    labels: Tensor
    position: Tensor


class Cleaning(NamedTuple):
    """The problem for `untuned`, and what a loop written for this very problem works with."""

    problem: Problem
    parameters: list[Tensor]
    model: Callable[[Tensor], Tensor]  # of the parameters above, which it holds
    penalty: float

    def outer(self, rows: Rows) -> Tensor:
        return cross_entropy(self.model(rows.images), rows.labels)

    def inner(self, x: Tensor, rows: Rows) -> Tensor:
        squares = sum((part * part).sum() for part in self.parameters)
        return weighted_loss(x, self.model(rows.images), rows) + self.penalty * squares


def weighted_loss(x: Tensor, scores: Tensor, rows: Rows) -> Tensor:
    """The mean of sigmoid(x_i) CE_i."""
    losses = cross_entropy(scores, rows.labels, reduction="none")
    return (torch.sigmoid(x[rows.position]) * losses).mean()


def split(train_rows: int, shape: tuple[int, ...]) -> tuple[Rows, Rows]:
    """Training rows, half of their labels drawn anew, and clean validation rows."""
    mnist = experiment("mnist-0.5")

    def rows(side: Any, count: int) -> Rows:
        images, labels = (np.asarray(part[:count]) for part in side[:2])
        return Rows(
            torch.from_numpy(images).reshape(-1, *shape),
            torch.from_numpy(labels.astype(np.int64)),
            torch.arange(len(labels)),
        )

    return rows(mnist.inner_data, train_rows), rows(mnist.outer_data, VALIDATION_ROWS)


def softmax(train_rows: int = TRAIN_ROWS) -> Cleaning:
    """Softmax regression, 784 x 10 weights, as in the paper."""
    weights = torch.zeros(784, 10)
    held = weights.clone().requires_grad_()
    return _cleaning(
        split(train_rows, (784,)), weights, lambda y, images: images @ y,
        [held], lambda images: images @ held, penalty=0.2,
    )  # fmt: skip


def cnn(train_rows: int = 2_000) -> Cleaning:
    """A small convolutional network."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 6 * 6, 10),
    )
    weights, apply = untuned.from_module(module)
    rows = split(train_rows, (1, 28, 28))
    return _cleaning(rows, weights, apply, list(module.parameters()), module, penalty=1e-3)


def _cleaning(
    rows: tuple[Rows, Rows], y0: Any, apply: Callable[[Any, Tensor], Tensor],
    parameters: list[Tensor], model: Callable[[Tensor], Tensor], penalty: float,
) -> Cleaning:  # fmt: skip
    train, validation = rows

    def outer(x: Tensor, y: Any, rows: Rows) -> Tensor:
        return cross_entropy(apply(y, rows.images), rows.labels)

    def inner(x: Tensor, y: Any, rows: Rows) -> Tensor:
        leaves = y.values() if isinstance(y, dict) else [y]
        squares = sum((leaf * leaf).sum() for leaf in leaves)
        return weighted_loss(x, apply(y, rows.images), rows) + penalty * squares

    x0 = torch.full((len(train.position),), -2.0)
    problem = Problem(outer, inner, x0, y0, validation, train)
    return Cleaning(problem, parameters, model, penalty)


def batches(problem: Problem, batch_size: int | None, length: int) -> list[tuple[Any, Any]]:
    """Index pairs (inner, outer) of `length` steps, drawn before any clock runs."""
    if batch_size is None:
        return [(slice(None), slice(None))] * length
    random = torch.Generator().manual_seed(0)
    inner, outer = (
        torch.randint(len(rows.position), (length, batch_size), generator=random)
        for rows in (problem.inner_data, problem.outer_data)
    )
    return list(zip(inner, outer, strict=True))


def by_hand(cleaning: Cleaning, indices: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Algorithm 2 with torch.autograd.grad, one step per item; f has no x, so no grad_x f."""
    problem, y = cleaning.problem, cleaning.parameters
    x = problem.x0.clone().requires_grad_()
    v = [torch.zeros_like(part) for part in y]
    alpha = beta = gamma = torch.tensor(1.0)
    for inner_index, outer_index in indices:
        outer_rows = Rows(*(part[outer_index] for part in problem.outer_data))
        inner_rows = Rows(*(part[inner_index] for part in problem.inner_data))
        f_y = torch.autograd.grad(cleaning.outer(outer_rows), y)
        g_y = torch.autograd.grad(cleaning.inner(x, inner_rows), y, create_graph=True)
        cross, *hvp = torch.autograd.grad(g_y, [x, *y], v)
        with torch.no_grad():
            residual = [a - b for a, b in zip(hvp, f_y, strict=True)]
            beta = torch.hypot(beta, _norm(g_y))
            gamma = torch.hypot(gamma, _norm(residual))
            phi = torch.maximum(beta, gamma)
            alpha = torch.hypot(alpha, _norm([cross]))
            for part, move in zip(y, g_y, strict=True):
                part -= move / beta
            for part, move in zip(v, residual, strict=True):
                part -= move / phi
            x += cross / (alpha * phi)
        yield


def by_func(cleaning: Cleaning, indices: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """The same steps with torch.func, on the functions `untuned` is given."""
    problem = cleaning.problem
    x, y = problem.x0, problem.y0
    is_dict = isinstance(y, dict)
    v = {key: torch.zeros_like(part) for key, part in y.items()} if is_dict else y * 0
    alpha = beta = gamma = torch.tensor(1.0)
    f_gradient = torch.func.grad_and_value(problem.outer, argnums=1)
    g_gradient = torch.func.grad(problem.inner, argnums=1)

    def each(fn: Callable, a: Any, b: Any) -> Any:
        return {key: fn(a[key], b[key]) for key in a} if is_dict else fn(a, b)

    def size(tree: Any) -> Tensor:
        return _norm(list(tree.values()) if is_dict else [tree])

    for inner_index, outer_index in indices:
        outer_rows = Rows(*(part[outer_index] for part in problem.outer_data))
        inner_rows = Rows(*(part[inner_index] for part in problem.inner_data))
        f_y, _ = f_gradient(x, y, outer_rows)
        linearized = torch.func.vjp(lambda x, y, rows=inner_rows: g_gradient(x, y, rows), x, y)
        g_y, (cross, hvp) = linearized[0], linearized[1](v)
        residual = each(torch.sub, hvp, f_y)
        beta = torch.hypot(beta, size(g_y))
        gamma = torch.hypot(gamma, size(residual))
        phi = torch.maximum(beta, gamma)
        alpha = torch.hypot(alpha, _norm([cross]))
        y = each(lambda part, move, b=beta: part - move / b, y, g_y)
        v = each(lambda part, move, b=phi: part - move / b, v, residual)
        x = x + cross / (alpha * phi)
        yield


def _norm(parts: Iterable[Tensor]) -> Tensor:
    norms = [torch.linalg.vector_norm(part) for part in parts]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


def advance(loop: Iterator[None], steps: int) -> None:
    """Make the next `steps` steps of a loop."""
    for _ in islice(loop, steps):
        pass
